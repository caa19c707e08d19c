"""Disks that take nothing for a while, below an outbox and below a region: nothing dies, and nothing is lost."""

import random
import sqlite3
from pathlib import Path

import pytest

from swarmd.errors import ConfigError, DaemonError
from swarmd.federation.outbox import FILE_NAME, Outbox, Waiting
from swarmd.federation.region import LIVE_S
from swarmd.federation.settings import CONFIG_FILE, SwarmEntry, add_pin, make_region, read_config, read_pins
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.federation.wire import EPOCH_BYTES, RowKind, TrustRow, Way, encode_row
from swarmd_protocols.trust.identity import dev_root
from tests.support.federation_hostile import inject, revocation_of
from tests.support.federation_world import World, make_world, one_gateway


def write_fails(world: World) -> None:
    """The region hears everything that is on its way, and its disk takes nothing."""
    assert world.store is not None
    world.store._db.execute("PRAGMA query_only=ON")
    flying, world.flying = world.flying, []
    for frame in flying:
        world.deliver(frame)
    with pytest.raises(Exception, match="readonly"):
        world.region.write()
    assert not [frame for frame in world.flying if frame.place.way is Way.DOWN], "what was not written is acknowledged"
    world.store._db.execute("PRAGMA query_only=OFF")


def test_an_outbox_that_takes_nothing_answers_nothing_and_loses_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path, random.Random(1), 1, 1)
    gateway = world.swarms[0].gateways[0]
    world.settle()
    gateway.say(1, 500)
    world.pump(100)
    for frame in [world.flying.pop() for _ in range(len(world.flying))]:
        world.deliver(frame)
    world.region.write()
    gateway.outbox._db.execute("PRAGMA query_only=ON")
    answers, world.flying = world.flying, []
    assert answers
    for frame in answers:
        with pytest.raises(DaemonError, match="make room on its disk"):
            world.deliver(frame)
    with pytest.raises(DaemonError, match="make room on its disk"):
        gateway.outbox.have = (bytes(8), 1)
    for _ in range(20):
        world.pump(10)
    assert world.flying == [], "rows that the disk still has leave again with every answer"
    gateway.outbox._db.execute("PRAGMA query_only=OFF")
    world.settle()
    world.check()
    world.close()


def test_a_region_that_writes_nothing_acknowledges_nothing_and_keeps_a_revocation(tmp_path: Path) -> None:
    world = make_world(tmp_path, random.Random(1), 1, 2)
    [swarm] = world.swarms
    good, thief = swarm.gateways
    thief.say(1, 500)
    world.settle()
    statement = revocation_of(swarm, thief)
    row = Waiting(RowKind.TRUST, statement[-64:], encode_row(TrustRow("revoke", statement)))
    good.outbox.put([row], world.now_ms)
    world.pump(100)
    write_fails(world)
    world.settle()
    world.open()
    gate = world.region.gates[swarm.pin.key]
    assert thief.node in gate.trust.revoked, "the revocation was acknowledged, and is not on the disk"
    world.close()


def test_a_region_whose_disk_is_full_says_so_and_goes_on(tmp_path: Path) -> None:
    world = make_world(tmp_path, random.Random(1), 1, 1)
    world.settle()
    assert world.store is not None
    world.store._db.execute("PRAGMA query_only=ON")
    world.region.tidy(0.0)
    assert "make room" in world.said[-1]
    world.store._db.execute("PRAGMA query_only=OFF")
    [line] = [line for lines in world.region._lines.values() for line in lines.values()]
    world.region.tidy(line.heard_s + LIVE_S)
    assert not any(world.region._lines.values()), "gateways that are silent are remembered for ever"
    world.close()


def test_a_region_says_that_a_path_is_well_again(tmp_path: Path) -> None:
    world = make_world(tmp_path, random.Random(1), 1, 1)
    assert world.region._tell_paths({}) == {"path-0": "", "path-1": ""}
    assert world.said == []
    world.cut.add(1)
    told = world.region._tell_paths({"path-0": ""})
    world.cut.clear()
    world.region._tell_paths(world.region._tell_paths(told))
    assert world.said == ["not connected", "path-1: connected"]
    world.close()


@pytest.mark.parametrize(
    ("entry", "remedy"),
    [
        (SwarmEntry("../evil", "farm"), "'../evil' cannot be let in"),
        (SwarmEntry("a'b", "farm"), "cannot be let in"),
        (SwarmEntry("north", "farm", 0), "cannot be let in"),
        (SwarmEntry("north", "farm", 128), "this swarm already: it is called farm"),
    ],
)
def test_a_pin_that_no_region_could_read_is_refused(entry: SwarmEntry, remedy: str, tmp_path: Path) -> None:
    folder = tmp_path / "region"
    make_region(folder)
    root = dev_root(b"a secret of a fleet", NaClCrypto())
    add_pin(folder, SwarmEntry("farm", "farm"), root)
    before = (folder / CONFIG_FILE).read_bytes()
    with pytest.raises(ConfigError, match=remedy):
        add_pin(folder, entry, root)
    with pytest.raises(ConfigError, match="give FLEET"):
        add_pin(folder, SwarmEntry("south", "farm"), root[:-1] + b"x")
    assert (folder / CONFIG_FILE).read_bytes() == before
    assert len(read_pins(folder, read_config(folder))) == 1
    assert sorted(path.name for path in (folder / "roots").iterdir()) == ["farm.root"]
    assert not list(tmp_path.glob("*.root"))


def test_a_revocation_that_a_stranger_brings_is_on_the_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    """Whose certificate the region lacks may be the first to say who was shut out."""
    world = make_world(tmp_path, random.Random(1), 1, 1)
    [swarm] = world.swarms
    [thief] = swarm.gateways
    thief.say(1, 500)
    world.settle()
    statement = revocation_of(swarm, thief)
    revoked = Waiting(RowKind.TRUST, b"", encode_row(TrustRow("revoke", statement)))
    inject(world, b"x" * 32, swarm.pin.key, thief, [revoked])
    assert thief.node in world.region.gates[swarm.pin.key].trust.revoked
    world.open()
    assert thief.node in world.region.gates[swarm.pin.key].trust.revoked, "what was acknowledged is forgotten"
    world.close()


def test_what_a_region_acknowledges_is_synced(tmp_path: Path) -> None:
    world = make_world(tmp_path, random.Random(1), 1, 1)
    assert world.store is not None
    assert world.store._db.execute("PRAGMA synchronous").fetchone() == (2,), "a power cut takes what is acknowledged"
    world.close()


def test_an_old_acknowledgement_takes_no_row_of_an_outbox_that_a_power_cut_set_back(tmp_path: Path) -> None:
    world, _swarm, gateway = one_gateway(tmp_path)
    gateway.say(1, 500)
    world.settle()
    path = gateway.folder / FILE_NAME
    gateway.outbox._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    on_disk = path.read_bytes()
    for thing in (2, 4):
        gateway.say(thing, 500)
    world.pump(100)
    for frame in [world.flying.pop() for _ in range(len(world.flying))]:
        world.deliver(frame)
    world.region.write()
    answers, world.flying = world.flying, []
    assert answers
    gateway.outbox.close()
    path.write_bytes(on_disk)
    gateway.boot()
    gateway.say(3, 500)
    [(seq, _)] = [row for row in gateway.outbox.waiting(10) if row[1]]
    for frame in answers:
        world.deliver(frame)
    assert seq in [number for number, _ in gateway.outbox.waiting(10)], "a row that the region never had is done"
    world.settle()
    world.check()
    world.close()


@pytest.mark.parametrize(
    "turned",
    [
        "UPDATE rows SET proofs = x'c1ff'",
        "UPDATE rows SET body = 'text'",
        "UPDATE rows SET kind = 'text'",
        "UPDATE facts SET value = x'c1' WHERE name = 'dropped'",
        "UPDATE facts SET value = x'ffffffffffffffff' WHERE name = 'life'",
        "UPDATE facts SET value = x'01020304050607080910' WHERE name = 'life'",
        "UPDATE facts SET value = x'ff' WHERE name = 'have'",
    ],
)
def test_bits_that_turned_in_an_outbox_move_it_aside_and_end_no_gateway(tmp_path: Path, turned: str) -> None:
    """SQLite calls such a file sound; a row that cannot be read ended the gateway at every start."""
    path = tmp_path / FILE_NAME
    outbox = Outbox(path, 1 << 20, 1e9)
    outbox.have = (b"a log..."[:EPOCH_BYTES], 7)
    outbox.put([Waiting(RowKind.OBJECT, b"k", b"body", (b"proof",)), Waiting(RowKind.SITE, b"s", bytes(1 << 20))], 1)
    outbox.close()
    database = sqlite3.connect(path)
    assert database.execute(turned).rowcount > 0
    database.commit()
    database.close()
    outbox = Outbox(path, 1 << 20, 1e9)
    assert outbox.moved_aside is not None
    assert (len(outbox), outbox.have) == (0, (bytes(EPOCH_BYTES), 0))
    outbox.close()


def test_an_index_in_which_bits_have_turned_is_damage_too(tmp_path: Path) -> None:
    """A quick look finds nothing; each row was found by its table and by no index, or ended the gateway."""
    path = tmp_path / FILE_NAME
    outbox = Outbox(path, 1 << 20, 1e9)
    outbox.put([Waiting(RowKind.OBJECT, b"one-key-%d" % number, b"body") for number in range(9)], 1)
    outbox.close()
    database = sqlite3.connect(path)
    [(page,)] = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'rows_by_key'").fetchall()
    database.close()
    data = path.read_bytes()
    at = data.index(b"one-key-4", 4096 * (page - 1))
    path.write_bytes(data[:at] + b"two" + data[at + 3 :])
    outbox = Outbox(path, 1 << 20, 1e9)
    assert outbox.moved_aside is not None
    outbox.close()


def test_a_row_of_a_kind_that_is_not_known_is_dropped_like_any_other(tmp_path: Path) -> None:
    """A later version wrote it: its age ended the gateway at every start."""
    path = tmp_path / FILE_NAME
    outbox = Outbox(path, 1 << 20, 1.0)
    outbox.put([Waiting(RowKind.OBJECT, b"k", b"body")], 1)
    outbox.close()
    database = sqlite3.connect(path)
    database.execute("UPDATE rows SET kind = 200")
    database.commit()
    database.close()
    outbox = Outbox(path, 1 << 20, 1.0)
    outbox.tidy(1 << 40)
    assert (len(outbox), outbox.dropped, outbox.moved_aside) == (0, {"200": 1}, None)
    outbox.close()


def test_a_proof_that_cannot_be_read_is_taken_back_with_those_of_its_node(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / FILE_NAME, 1 << 20, 1e9)
    outbox.put([Waiting(RowKind.OBJECT, b"k", b"body", (b"no batch, of the node " + bytes(16),))], 1)
    assert [row.key for row in outbox.take_back(bytes(16))] == [b"k"]
    outbox.close()
