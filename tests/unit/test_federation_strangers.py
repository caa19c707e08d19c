"""What somebody who follows docs/federation.md tries next: each slip is refused where it is made, in words."""

from pathlib import Path

import pytest

from swarmd.cli.gateway import region_key_of
from swarmd.cli.main import main
from swarmd.config.bridges import FederationConfig, MqttConfig
from swarmd.errors import ConfigError
from swarmd.federation.pipes import check_paths
from swarmd.federation.rows import ObjectQuery
from swarmd.federation.settings import make_region
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.federation.wire import SiteRow
from tests.support.federation_world import one_gateway

KEY = NaClCrypto().public_key(bytes(32)).hex()


def check(folder: Path, *settings: str) -> int:
    (folder / "empty.toml").write_text("")
    flags = [part for setting in settings for part in ("--set", f"federation.{setting}")]
    return main(["check-config", "-c", str(folder / "empty.toml"), *flags])


@pytest.mark.parametrize(
    ("settings", "key", "said"),
    [
        (("paths=mqtt://b", "region_key=abc"), "region_key", "swarmd region show"),
        (("paths=mqtt://b", f"region_key={'00' * 32}"), "region_key", "swarmd region show"),
        (("paths=mqtt://b",), "region_key", "swarmd region show"),
        ((f"region_key={KEY}",), "paths", "is empty"),
        (("paths=htp://b", f"region_key={KEY}"), "paths", "zenoh://HOST:PORT"),
        (("paths=zenoh://b:99999", f"region_key={KEY}"), "paths", "no address"),
        (("paths=mqtt://b,mqtt://b", f"region_key={KEY}"), "paths", "named twice"),
        (("neighbours=foo://",), "neighbours", "is no path"),
        (("neighbours=mqtt://b", "password_file=/nowhere/p"), "password_file", "/nowhere/p"),
        (("neighbours=mqtts://b", "ca_file=/nowhere/ca"), "ca_file", "/nowhere/ca"),
        (("neighbours=zenohs://b", "ca_file=/nowhere/ca"), "ca_file", "/nowhere/ca"),
    ],
)
def test_check_config_refuses_what_a_gateway_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: tuple[str, ...], key: str, said: str
) -> None:
    if any("zenoh" in text for text in settings):
        pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed (extra zenoh)")
    assert check(tmp_path, *settings) == 1
    told = capsys.readouterr().err
    assert f"federation.{key}: " in told
    assert said in told
    assert len(told.splitlines()) == 1


def test_check_config_lets_a_gateway_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    credential = "password_file=/run/credentials/swarmd.service/broker"
    assert check(tmp_path, "paths=mqtt://b,mqtts://me@b", f"region_key={KEY}", "neighbours=mqtt://c", credential) == 0
    assert check(tmp_path) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("flag", ["--path", "--neighbour"])
def test_a_gateway_does_not_start_on_what_is_no_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    (tmp_path / "empty.toml").write_text("")
    arguments = ["gateway", "-c", str(tmp_path / "empty.toml"), "--dev-fleet", str(tmp_path / "fleet"), "--name", "gw"]
    state = ["--state", str(tmp_path / "state"), "--control", str(tmp_path / "control")]
    assert main([*arguments, *state, flag, "htp://broker", "--region-key", KEY]) == 1
    assert "'htp://broker' is no path" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["paths", "neighbours"])
def test_who_runs_no_gateway_is_told_that_it_speaks_to_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    (tmp_path / "swarmd.toml").write_text(f'[federation]\n{key} = ["mqtt://broker"]\n[pose]\nsource = "fixed:1,2"\n')
    arguments = ["run", "-c", str(tmp_path / "swarmd.toml"), "--dev-fleet", str(tmp_path / "fleet"), "--no-eye"]
    assert main([*arguments, "--state", str(tmp_path / "state"), "--name", "a"]) == 1, "its pose is none"
    assert "swarmd run speaks to no region or neighbour" in capsys.readouterr().err


def test_one_broker_twice_is_no_second_path() -> None:
    check_paths(["mqtt://a", "mqtt://b"], MqttConfig())
    with pytest.raises(ConfigError, match="mqtt://a is named twice"):
        check_paths(["mqtt://a", "mqtt://b", "mqtt://a"], MqttConfig())
    assert region_key_of(FederationConfig(region_key=KEY)) == bytes.fromhex(KEY)


@pytest.mark.parametrize(
    ("name", "swarm", "quota", "said"),
    [
        ("a/b", "farm", 1, "'a/b' is no name; write 1 to 64 letters"),
        ("north", "fa/rm", 1, "'fa/rm' is no name"),
        ("n" * 65, "farm", 1, "is no name"),
        ("north", "farm", 0, "0 is no quota; write --quota-kib-s 1 to"),
    ],
)
def test_a_pin_says_what_is_wrong_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, swarm: str, quota: int, said: str
) -> None:
    assert main(["keys", "root", str(tmp_path / "fleet"), "--name", "acme"]) == 0
    make_region(tmp_path / "region")
    pin = ["region", "pin", str(tmp_path / "region"), name, "--root", str(tmp_path / "fleet" / "roots" / "0001.root")]
    assert main([*pin, "--swarm", swarm, "--quota-kib-s", str(quota)]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert "regex" not in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["note", "Mast", "x", "--swarm", "farm"], "'Mast' is no name; write 1 to 40 of a-z"),
        (["note", "a/b", "x", "--swarm", "farm"], "'a/b' is no name"),
        (["note", "mast", "x", "--swarm", "fa/rm"], "'fa/rm' is no swarm's name"),
        (["note", "mast", "x" * 201, "--swarm", "farm"], "the words take more than 200 bytes"),
        (["mission", "Field", "--swarm", "farm"], "'Field' is no name"),
        (["neighbour", "the blue", "--swarm", "farm", "--other", "b", "--root", "ROOT"], "'the blue' is no name"),
        (["neighbour", "blue", "--swarm", "farm", "--other", "b/l", "--root", "ROOT"], "'b/l' is no swarm's name"),
    ],
)
def test_a_name_that_cannot_be_is_said_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    key, root = signing(tmp_path, "fleet")
    given = [root if word == "ROOT" else word for word in words]
    assert main(["fleet", *given, "--key", key, "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert "regex" not in told


def test_a_region_sends_no_swarm_what_it_would_pass_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, root = signing(tmp_path, "fleet")
    other_key, other_root = signing(tmp_path, "other")
    region, out = str(tmp_path / "region"), str(tmp_path / "out")
    make_region(tmp_path / "region")
    assert main(["region", "pin", region, "north", "--root", root, "--swarm", "farm"]) == 0
    note = ["fleet", "note", "mast", "mind it", "--out", out, "--key"]

    assert main([*note, key, "--swarm", "lake"]) == 0
    assert main(["region", "send", region, "north", out]) == 1
    assert "is for the swarm lake, and north is the swarm farm" in capsys.readouterr().err
    assert main(["region", "send", region, "north", other_root]) == 1
    assert "is the first root of another fleet than north is pinned by" in capsys.readouterr().err
    assert main(["region", "send", region, "north", root]) == 0

    # Whom the newest root names may not be known here yet: it goes down, with a remark.
    assert main([*note, other_key, "--swarm", "farm"]) == 0
    assert main(["region", "send", region, "north", out]) == 0
    assert "it counts once a root names who has" in capsys.readouterr().err


def test_a_way_to_gateways_that_nobody_asks_by_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_region(tmp_path / "region")
    assert main(["fleet", "objects", "--region", str(tmp_path / "region"), "--path", "zenoh://router"]) == 1
    assert "give --live too" in capsys.readouterr().err


def test_what_came_before_the_origin_has_a_latitude_once_it_is_known(tmp_path: Path) -> None:
    """A region whose disk was lost hears objects before the site's own word: they are not seen again for that."""
    world, swarm, gateway = one_gateway(tmp_path)
    gateway.say(1, 900)
    world.settle()
    name, store, node = swarm.pin.key.hex(), world.store, gateway.identity.node

    def latitudes() -> set[object]:
        words = [*store.objects(ObjectQuery(), 0, 10**9).objects, *(word for _, word in store.history(9))]
        return {word["latitude_deg"] is None for word in words}

    site = SiteRow(2**40, 1, 1, 1, 1, 0, 0, False, 0, 0, "")
    with store.transaction():
        store.put_site(name, node, site, 1)
    assert latitudes() == {True}
    with store.transaction():
        store.put_site(name, node, SiteRow(2**40 + 1, 1, 1, 1, 1, 0, 0, True, 473_977_420, 85_455_940, ""), 1)
    assert latitudes() == {False}
    world.close()


def signing(folder: Path, name: str) -> tuple[str, str]:
    """An operator's key and the first root of a fleet."""
    fleet = folder / name
    assert main(["keys", "root", str(fleet), "--name", name]) == 0
    assert main(["keys", "role", str(fleet), "operator", "--need", "1", "--keys", "1"]) == 0
    return str(fleet / "keys" / "operator-1.key"), str(fleet / "roots" / "0001.root")
