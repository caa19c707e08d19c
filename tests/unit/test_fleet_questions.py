"""`swarmd fleet objects` and `sites`: a slip is said in one line with what to do."""

import random
from pathlib import Path

import msgspec
import pytest

from swarmd.cli.main import main
from swarmd.federation.settings import SwarmEntry, add_pin, make_region, read_config, read_pins
from swarmd.federation.store import FILE_NAME, Store, add_trust, held_down
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.federation.gate import Pin
from swarmd_protocols.federation.wire import FactKind
from swarmd_protocols.trust.identity import dev_root
from tests.support.federation_world import make_world


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "holds nothing yet: start it with swarmd region run"),
        (["--limit", "0"], "--limit is 0; write 1 to 1,000,000"),
        (["--limit", "-1"], "--limit is -1; write 1 to 1,000,000"),
        (["--since", "soon"], "'soon' is no time; write 90s"),
        (["--live", "--history", "past"], "give one of them"),
    ],
)
def test_a_slip_is_said_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["region", "init", str(tmp_path / "region")]) == 0
    assert main(["fleet", "objects", "--region", str(tmp_path / "region"), *words]) == 1
    assert said in capsys.readouterr().err


def test_gateways_are_asked_over_zenoh_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region = tmp_path / "region"
    assert main(["region", "init", str(region)]) == 0
    Store(region / FILE_NAME).close()
    assert main(["fleet", "objects", "--region", str(region), "--live", "--path", "mqtt://broker"]) == 1
    assert "names no zenoh:// path" in capsys.readouterr().err


def test_a_swarm_that_is_not_pinned_is_no_empty_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region = tmp_path / "region"
    assert main(["region", "init", str(region)]) == 0
    Store(region / FILE_NAME).close()
    assert main(["fleet", "objects", "--region", str(region)]) == 0
    assert main(["fleet", "sites", "--region", str(region), "--swarm", "lake"]) == 1
    assert "pins no swarm 'lake'; it pins none" in capsys.readouterr().err


def test_what_no_gateway_has_said_is_named_and_not_dated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region = tmp_path / "region"
    assert main(["region", "init", str(region)]) == 0
    pin = Pin("north", "farm", dev_root(b"the secret of a swarm", NaClCrypto()))
    add_pin(region, SwarmEntry("north", "farm"), pin.root)
    store = Store(region / FILE_NAME)
    store.know_swarms([pin])
    store.close()
    assert main(["fleet", "sites", "--region", str(region)]) == 0
    assert "STALE: north was never heard" in capsys.readouterr().err


def test_sites_are_told_however_many_objects_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What objects lack is said where objects are asked for, and there alone."""
    world = make_world(tmp_path, random.Random(1), swarms=1, gateways=1)
    [swarm] = world.swarms
    for thing in range(2):
        swarm.gateways[0].say(thing, 900)
    world.settle()
    world.close()
    region = tmp_path / "region"
    make_region(region)
    add_pin(region, SwarmEntry(swarm.pin.name, swarm.pin.swarm), dev_root(swarm.secret, NaClCrypto()))
    (tmp_path / FILE_NAME).replace(region / FILE_NAME)
    for verb, said in (("sites", ""), ("objects", "know no origin: give them node.origin")):
        assert main(["fleet", verb, "--region", str(region)]) == 0
        told = capsys.readouterr().err
        assert "more than" not in told
        assert (said in told) if said else "origin" not in told
    assert main(["fleet", "objects", "--region", str(region), "--limit", "1"]) == 0
    assert "there are more than 1; --limit N shows more" in capsys.readouterr().err


def test_what_too_few_have_seen_is_counted_where_nothing_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = make_world(tmp_path, random.Random(1), swarms=1, gateways=1)
    [swarm] = world.swarms
    swarm.pin = msgspec.structs.replace(swarm.pin, confirm_observers=2)
    world.open()
    swarm.gateways[0].say(1, 900)
    world.settle()
    world.close()
    region = tmp_path / "region"
    make_region(region)
    add_pin(region, SwarmEntry(swarm.pin.name, swarm.pin.swarm), dev_root(swarm.secret, NaClCrypto()))
    (tmp_path / FILE_NAME).replace(region / FILE_NAME)
    assert main(["fleet", "objects", "--region", str(region)]) == 0
    assert "1 are not shown: fewer nodes saw them than confirm_observers" in capsys.readouterr().err


def test_a_folder_that_is_no_publication_is_not_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region = tmp_path / "region"
    make_region(region)
    add_pin(region, SwarmEntry("north", "farm"), dev_root(b"the secret of a swarm", NaClCrypto()))
    assert main(["region", "send", str(region), "north", str(tmp_path)]) == 1
    assert "is no publication: it holds no release.swm; make one by swarmd model build" in capsys.readouterr().err


def test_an_older_revision_takes_no_newer_ones_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet, region = tmp_path / "fleet", tmp_path / "region"
    roots, key = fleet / "roots", str(fleet / "keys" / "operator-1.key")
    assert main(["keys", "root", str(fleet), "--name", "acme"]) == 0
    assert main(["keys", "role", str(fleet), "operator", "--need", "1", "--keys", "2"]) == 0
    assert main(["region", "init", str(region)]) == 0
    assert main(["region", "pin", str(region), "north", "--root", str(roots / "0001.root"), "--swarm", "farm"]) == 0

    def note(revision: int, *words: str) -> str:
        out = str(tmp_path / f"{revision}.fact")
        said = ["fleet", "note", "mast", f"revision {revision}", "--swarm", "farm", "--key", key, "--out", out]
        assert main([*said, "--revision", str(revision), *words]) == 0
        return out

    send = ["region", "send", str(region), "north"]
    older, newer = note(1), note(2)
    assert main([*send, newer]) == 0
    assert main([*send, older]) == 0, "whose operators are not known here keeps nothing out"
    assert main([*send, newer]) == 0
    store = Store(region / FILE_NAME)
    pin = read_pins(region, read_config(region))[0].key.hex()
    with store.transaction():
        add_trust(store, pin, "root", (roots / "0002.root").read_bytes())
    assert main([*send, older]) == 1
    assert "is sent revision 2 of the note mast already, and this is revision 1" in capsys.readouterr().err
    assert held_down(store, pin, FactKind.FACT, b"mast") == Path(newer).read_bytes()
    assert main([*send, newer, note(3)]) == 0
    store.close()
