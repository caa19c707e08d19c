"""What somebody gives `swarmd fleet` and `swarmd region` that cannot be is one line with its remedy, and changes
nothing."""

import os
import random
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from swarmd.api.neighbours import _agree
from swarmd.cli.main import main
from swarmd.config.bridges import FederationConfig
from swarmd.config.loading import load
from swarmd.errors import ConfigError, DaemonError
from swarmd.federation.marks import Marks
from swarmd.federation.settings import CONFIG_FILE, SwarmEntry, add_pin, make_region, read_config
from swarmd.federation.store import FILE_NAME, Store
from swarmd.federation.whole_files import make_for_owner
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.neighbours.words import Agreement, encode_agreement, seal_agreement
from swarmd_protocols.trust.identity import dev_root
from tests.support.federation_world import make_world

ROOT = dev_root(b"the secret of a swarm", NaClCrypto())


def filled(folder: Path, region: Path, things: int) -> None:
    world = make_world(folder, random.Random(1), swarms=1, gateways=1)
    [swarm] = world.swarms
    for thing in range(things):
        swarm.gateways[0].say(thing, 900)
    world.settle()
    world.close()
    make_region(region)
    add_pin(region, SwarmEntry(swarm.pin.name, swarm.pin.swarm), dev_root(swarm.secret, NaClCrypto()))
    (folder / FILE_NAME).replace(region / FILE_NAME)


@pytest.mark.parametrize("name", ["of 100%41", "what?", "number#1", "a&b=c"])
def test_a_regions_folder_may_be_called_as_it_likes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    region = tmp_path / name
    make_region(region)
    Store(region / FILE_NAME).close()
    assert main(["fleet", "sites", "--region", str(region)]) == 0
    capsys.readouterr()
    assert [one.name for one in tmp_path.iterdir()] == [name], "a question makes no file"


def test_a_file_that_is_no_regions_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region = tmp_path / "region"
    make_region(region)
    for content in (b"", b"garbage" * 100):
        (region / FILE_NAME).write_bytes(content)
        assert main(["fleet", "sites", "--region", str(region)]) == 1
        said = capsys.readouterr().err
        assert f"{region / FILE_NAME} is damaged, or of another version" in said
        assert "put it back from a copy, or move it away" in said


def test_an_export_and_a_note_wait_for_no_one_who_writes_without_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    region = tmp_path / "region"
    filled(tmp_path, region, 1)
    pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra parquet)")
    other = sqlite3.connect(region / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert main(["region", "export", str(region), str(tmp_path / "past")]) == 1
    assert "cannot be used now: database is locked" in capsys.readouterr().err
    other.execute("ROLLBACK")
    other.close()
    assert main(["region", "export", str(region), str(tmp_path / "past")]) == 0


@pytest.mark.parametrize("since", ["3000w", "9" * 30 + "d", "9" * 400 + "w"])
def test_whatever_is_longer_ago_is_as_long_ago(tmp_path: Path, capsys: pytest.CaptureFixture[str], since: str) -> None:
    filled(tmp_path, tmp_path / "region", 1)
    assert main(["fleet", "objects", "--region", str(tmp_path / "region"), "--since", since]) == 0
    assert "hot-spot" in capsys.readouterr().out


def test_what_history_counts_is_what_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra parquet)")
    region, past = tmp_path / "region", tmp_path / "past"
    filled(tmp_path, region, 3)
    assert main(["region", "export", str(region), str(past)]) == 0
    ask = ["fleet", "objects", "--region", str(region), "--history", str(past)]
    for limit, is_cut in ((2, "true"), (3, "false")):
        capsys.readouterr()
        assert main([*ask, "--limit", str(limit), "--json"]) == 0
        shown = capsys.readouterr().out.replace(" ", "").replace("\n", "")
        assert f'"is_cut":{is_cut}' in shown
        assert f'"objects":{limit}' in shown
    assert main([*ask, "--label", "none-such", "--json"]) == 0
    assert '"objects":0' in capsys.readouterr().out.replace(" ", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mission", "m", "--area", "AREA", "--cell-m", "nan"], "--cell-m is nan; write 1 to 100,000"),
        (["mission", "m", "--area", "AREA", "--cell-m", "inf"], "--cell-m is inf"),
        (["mission", "m", "--area", "AREA", "--cell-m", "-5"], "--cell-m is -5.0"),
        (["note", "n", "x", "--revision", "0"], "--revision is 0; write 1 to"),
        (["note", "n", "x", "--revision", "9" * 30], "--revision is 999"),
        (["note", "n", "\udcff"], "no such fact can be signed"),
        (["neighbour", "n", "--other", "b", "--root", "ROOT", "--days", "nan"], "--days is nan; write more than 0"),
        (["neighbour", "n", "--other", "b", "--root", "ROOT", "--days", "-1"], "--days is -1"),
        (["neighbour", "n", "--other", "b", "--root", "ROOT", "--area-m2", "9" * 30], "no such agreement can be"),
    ],
)
def test_what_cannot_be_signed_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    fleet, out = tmp_path / "fleet", tmp_path / "out"
    assert main(["keys", "root", str(fleet), "--name", "acme"]) == 0
    assert main(["keys", "role", str(fleet), "operator", "--need", "1", "--keys", "2"]) == 0
    area = tmp_path / "area.json"
    area.write_text('{"type": "Polygon", "coordinates": [[[1, 1], [1, 2], [2, 2], [1, 1]]]}')
    named = {"AREA": str(area), "ROOT": str(fleet / "roots" / "0001.root")}
    given = [named.get(word, word) for word in words]
    key = str(fleet / "keys" / "operator-1.key")
    assert main(["fleet", *given, "--swarm", "farm", "--key", key, "--out", str(out)]) == 1
    assert said in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("held", ["swarm = []", 'swarm = [{name = "lake", swarm = "lake"}]'])
def test_a_pin_that_the_file_does_not_take_leaves_it_as_it_was(tmp_path: Path, held: str) -> None:
    make_region(tmp_path / "region")
    path = tmp_path / "region" / CONFIG_FILE
    path.write_text(f"{held}\n")
    (tmp_path / "region" / "roots" / "lake.root").write_bytes(dev_root(b"another secret, of a lake", NaClCrypto()))
    with pytest.raises(ConfigError, match=r"does not take one more \[\[swarm\]\].*write each as a \[\[swarm\]\]"):
        add_pin(tmp_path / "region", SwarmEntry("north", "farm"), ROOT)
    assert path.read_text() == f"{held}\n"
    assert not (tmp_path / "region" / "roots" / "north.root").exists()


@pytest.mark.parametrize("prefix", ["", "/", "a/+/b", "#", "a//b", "a*", "$SYS/x", "a\x00b"])
def test_a_prefix_that_no_pipe_takes_is_refused_at_the_region_and_at_a_gateway(tmp_path: Path, prefix: str) -> None:
    make_region(tmp_path / "region")
    text = prefix.replace("\x00", "\\u0000")
    (tmp_path / "region" / CONFIG_FILE).write_text(f'prefix = "{text}"\n')
    with pytest.raises(ConfigError, match=r"prefix is .* without wildcards, as in swarm-fed/1"):
        read_config(tmp_path / "region")
    with pytest.raises(ConfigError, match=r"federation.prefix is .* without wildcards"):
        load(None, {}, {"federation.prefix": prefix})


def test_strokes_around_a_prefix_are_nothing(tmp_path: Path) -> None:
    make_region(tmp_path / "region")
    (tmp_path / "region" / CONFIG_FILE).write_text('prefix = "/fed/7/"\n')
    assert read_config(tmp_path / "region").prefix == "fed/7"
    assert load(None, {}, {"federation.prefix": "/fed/7/"}).config.federation != FederationConfig()


@pytest.mark.parametrize("sources", [["x" * 513], ["https://a.example/"] * 9, [""]])
def test_places_that_no_gateway_could_read_are_not_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sources: list[str]
) -> None:
    """One row that cannot be read keeps every row after it, and all that is said beside it, from the gateways."""
    region = tmp_path / "region"
    make_region(region)
    add_pin(region, SwarmEntry("north", "farm"), ROOT)
    folder = tmp_path / "release"
    folder.mkdir()

    class Published:
        digest = bytes(32)

        class release:
            model, version = "person", 2

    monkeypatch.setattr("swarmd.release.author.read_publication", lambda path: Published)
    given = [word for one in sources for word in ("--source", one)]
    assert main(["region", "send", str(region), "north", str(folder), *given]) == 1
    assert "give --source 1 to 8 times, each of at most 512 characters" in capsys.readouterr().err
    store = Store(region / FILE_NAME)
    assert store.down_count() == 0
    store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be another account")
def test_what_another_account_sends_first_is_a_file_of_the_regions_account(tmp_path: Path) -> None:
    """Else the region, which has not run yet, cannot open it."""
    region = tmp_path / "region"
    make_region(region)
    os.chown(region, 4711, 4712)
    store = Store(region / FILE_NAME)
    store.send_down("00", 4, b"", b"")
    assert {(one.stat().st_uid, one.stat().st_gid) for one in region.glob(f"{FILE_NAME}*")} == {(4711, 4712)}
    store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be another account")
def test_the_regions_account_is_given_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is its own: it may put a link to somebody else's in the place of what was made for it."""
    region, other = tmp_path / "region", tmp_path / "other"
    make_region(region)
    os.chown(region, 4711, 4712)
    other.touch()
    real = Path.stat

    def stat(self: Path, **named: Any) -> os.stat_result:
        if self == region and (region / FILE_NAME).exists():
            (region / FILE_NAME).unlink()
            (region / FILE_NAME).symlink_to(other)
        return real(self, **named)

    monkeypatch.setattr(Path, "stat", stat)
    make_for_owner(region / FILE_NAME)
    assert real(other).st_uid == os.geteuid()


def test_two_neighbours_are_not_called_alike() -> None:
    """An alarm names the neighbour that holds on: which of two would nobody know."""
    taken: list[object] = []
    views: list[object] = []
    daemon: Any = SimpleNamespace(
        in_parts=SimpleNamespace(neighbours=lambda: views), ask=lambda to, request: taken.append(request)
    )
    said = [Agreement("amber", "the-blue", bytes([n]) * 32, "blue", 1, 1, 2) for n in (1, 2)]
    statements = [seal_agreement(encode_agreement(one), bytes(32), bytes(64)).hex() for one in said]
    views[:] = [SimpleNamespace(key=said[0].key, name="the-blue", swarm="blue", state="agreed")]
    assert _agree(daemon, {"statement": statements[0]})["name"] == "the-blue"
    with pytest.raises(DaemonError, match=r"another neighbour is called the-blue here .*sign this agreement with"):
        _agree(daemon, {"statement": statements[1]})
    end = msgspec.structs.replace(said[1], revision=2, until_ms=0)
    _agree(daemon, {"statement": seal_agreement(encode_agreement(end), bytes(32), bytes(64)).hex()})
    assert len(taken) == 2, "what an earlier version let in ends all the same"
    views[:] = [SimpleNamespace(key=said[0].key, name="the-blue", swarm="blue", state="ended")]
    _agree(daemon, {"statement": statements[1]})
    assert len(taken) == 3


@pytest.mark.parametrize(
    "turned",
    [
        "UPDATE facts SET value = x'c1' WHERE name = 'gaps'",
        "UPDATE facts SET value = x'ffffffffffffffff' WHERE name = 'life'",
        "ALTER TABLE swarms ADD COLUMN later TEXT",
    ],
)
def test_a_regions_file_that_is_damaged_or_of_a_later_version_is_named_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], turned: str
) -> None:
    region = tmp_path / "region"
    make_region(region)
    store = Store(region / FILE_NAME)
    store.next_life(7)
    Marks(store, 1 << 42)
    store.close()
    database = sqlite3.connect(region / FILE_NAME)
    database.execute(turned)
    database.commit()
    database.close()
    assert main(["region", "run", str(region), "--path", "mqtt://127.0.0.1:1"]) == 1
    said = capsys.readouterr().err
    assert f"{region / FILE_NAME} is damaged, or of another version" in said
    assert said.count("\n") == 1
    assert (region / FILE_NAME).exists()
