"""Configuration: order, origins, all problems at once, with file and line."""

from pathlib import Path

import pytest

from swarmd.config.loading import changed_keys, load
from swarmd.config.reference import reference
from swarmd.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_later_wins_and_every_value_knows_where_it_came_from(tmp_path: Path) -> None:
    main = write(tmp_path / "swarmd.toml", '[node]\nname = "a"\n\n[log]\nlevel = "debug"\nformat = "text"\n')
    write(tmp_path / "swarmd.toml.d" / "10.toml", '[log]\n\nformat = "json"\n')
    write(tmp_path / "swarmd.toml.d" / "20.toml", 'node.name = "b"\n')
    environment = {"SWARMD_DEDUP__RADIUS_M": "7.5", "SWARMD_SWARM__JOIN": "10.0.0.1:1, 10.0.0.2:2", "HOME": "/"}
    loaded = load(main, environment, {"transport.listen": "127.0.0.1:9"})
    config, origins = loaded.config, loaded.origins
    assert (config.node.name, config.log.level, config.log.format) == ("b", "debug", "json")
    assert config.dedup.radius_m == 7.5
    assert config.swarm.join == ("10.0.0.1:1", "10.0.0.2:2")
    assert config.transport.listen == "127.0.0.1:9"
    assert origins["node", "name"] == f"{tmp_path}/swarmd.toml.d/20.toml:1"
    assert origins["log", "level"] == f"{main}:5"
    assert origins["log", "format"] == f"{tmp_path}/swarmd.toml.d/10.toml:3"
    assert origins["dedup", "radius_m"] == "environment SWARMD_DEDUP__RADIUS_M"
    assert origins["transport", "listen"] == "flag --listen"
    assert origins["http", "listen"] == "default"


@pytest.mark.parametrize(
    ("written", "mode"), [("true", "on"), ("false", "off"), ('"auto"', "auto"), ('"on"', "on"), ('"off"', "off")]
)
def test_a_switch_that_became_a_choice_takes_what_it_took(tmp_path: Path, written: str, mode: str) -> None:
    main = write(tmp_path / "x.toml", f"[gossip]\nmesh = {written}\n")
    assert load(main, {}, {}).config.gossip.mesh == mode
    assert load(None, {"SWARMD_GOSSIP__MESH": written.strip('"')}, {}).config.gossip.mesh == mode
    assert load(None, {}, {"gossip.mesh": written.strip('"')}).config.gossip.mesh == mode


def test_all_problems_at_once_each_with_its_place(tmp_path: Path) -> None:
    main = write(
        tmp_path / "x.toml",
        '[node]\nnmae = "a"\norigin = [1.0]\n[gosip]\nprofile = "lan"\n'
        '[dedup]\nradius_m = "far"\nconfirm_observers = 0\n'
        '[log]\nlevel = "loud"\n[swarm]\njoin = ["nowhere"]\n[http]\nlisten = "x"\n',
    )
    with pytest.raises(ConfigError) as caught:
        load(main, {"SWARMD_EYE__MAX_FRAMES": "many"}, {})
    text = str(caught.value)
    for piece in (
        f"{main}:2: [node] has no key `nmae`; did you mean `name`?",
        f"{main}:3: node.origin has 1 elements; it takes 2",
        f"{main}:5: there is no section [gosip]; did you mean `gossip`?",
        f"{main}:7: dedup.radius_m is 'far'; it takes a number",
        f"{main}:8: dedup.confirm_observers is 0; it must be at least 1",
        f"{main}:10: log.level is 'loud'; it may be one of: debug, info, warning, error",
        f"{main}:12: swarm.join holds 'nowhere'; write IP:PORT",
        f"{main}:14: http.listen is 'x'; write IP:PORT",
        "environment SWARMD_EYE__MAX_FRAMES: 'many' is no whole number",
    ):
        assert piece in text
    assert len(text.splitlines()) == 9


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[node\n", "is no valid TOML"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"name = 1\n", "stands outside a section"),
        (b"x" * (1 << 20) + b"xx", "has at most"),
        (b"[node]\norigin = [nan, 0.0]\n", "takes a finite number"),
        (b"[node]\norigin = [91.0, 0.0]\n", "no place on Earth"),
        (b'[pose]\nterrain_home = "a,b"\n', "terrain_home is 'a,b'; write LAT,LON in degrees"),
        (b'[pose]\nterrain_home = "47.1"\n', "write LAT,LON in degrees"),
        (b'[pose]\nterrain_home = "nan,8"\n', "write LAT,LON in degrees"),
        (b'[swarm]\nidentity = "a"\ndev_fleet = "b"\n', "exclude each other"),
        (b"[eye]\nenabled = 1\n", "takes true or false"),
        (b'[operators]\nlisten = "[::]:7981"\n', r"opens a door, which needs operators\.ca_file"),
        (b'[operators]\nlisten = "[::]:7981"\n', r"opens a door, which needs operators\.allow"),
        (b'[operators]\nlisten = "7981"\n', "write IP:PORT"),
        (b'[inference]\nlisten = "7983"\n', "write a loopback address and a port"),
        (b'[inference]\nlisten = "127.0.0.1:99999"\n', "write a loopback address and a port"),
        (b'[operators]\nallow = ["alice:all"]\n', "write NAME, or NAME:look"),
        (b'[operators]\nallow = [""]\n', "write NAME, or NAME:look"),
    ],
)
def test_a_bad_file_says_what_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "''; write off, auto, or one interface, such as wlan0"),
        ("no", "'no'; write off"),
        ("False", "'False'; write off"),
        ("OFF", "'OFF'; write off"),
        ("on", "'on'; write auto"),
        ("wlan0 wlan1", "'wlan0 wlan1', no name of an interface; write off, auto"),
        ("wlan0/1", "no name of an interface"),
        ("a" * 16, "no name of an interface"),
        (" ", "no name of an interface"),
    ],
)
def test_casts_that_are_neither_a_choice_nor_an_interface_are_refused(tmp_path: Path, text: str, said: str) -> None:
    main = write(tmp_path / "x.toml", f'[transport]\ncasts = "{text}"\n')
    with pytest.raises(ConfigError) as caught:
        load(main)
    assert str(caught.value).startswith(f"{main}:2: transport.casts is ")
    assert said in str(caught.value)
    with pytest.raises(ConfigError, match=r"^environment SWARMD_TRANSPORT__CASTS: transport\.casts is "):
        load(None, {"SWARMD_TRANSPORT__CASTS": text})


@pytest.mark.parametrize("text", ["auto", "off", "wlan0", "wlp2s0f1.100", "a" * 15])
def test_casts_are_a_choice_or_an_interface(tmp_path: Path, text: str) -> None:
    main = write(tmp_path / "x.toml", f'[transport]\ncasts = "{text}"\n')
    assert load(main).config.transport.casts == text


def test_a_missing_file_is_an_error_only_when_it_was_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load(tmp_path / "none.toml")
    assert load(None).config.transport.listen == "[::]:7946"


def test_reload_tells_what_can_be_applied(tmp_path: Path) -> None:
    old = load(write(tmp_path / "a.toml", '[log]\nlevel = "info"\n')).config
    new = load(write(tmp_path / "b.toml", '[log]\nlevel = "debug"\n[transport]\nlisten = "127.0.0.1:1"\n')).config
    assert changed_keys(old, new) == (["log.level"], ["transport.listen"])


def test_the_reference_page_is_the_code() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == reference(), "run: python -m swarmd check-config --reference > docs/configuration.md"
