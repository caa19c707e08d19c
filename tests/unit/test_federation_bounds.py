"""What one swarm, gateway or node can fill or hold up at a region; what a gateway says once there is room."""

import random
from pathlib import Path

import msgspec
import pytest

from swarmd.cli import region as cli
from swarmd.errors import ConfigError
from swarmd.federation.outbox import FILE_NAME, Outbox
from swarmd.federation.settings import SwarmEntry, add_pin, make_region
from swarmd.federation.store import Store
from swarmd_protocols.federation.allowance import WINDOW, Numbers
from swarmd_protocols.federation.gate import Gate, Pin
from swarmd_protocols.federation.wire import (
    EPOCH_BYTES,
    FRAME_MAX_BYTES,
    KNOWN_MAX,
    ROWS_MAX,
    WANTED_MAX,
    Down,
    FactKind,
    Known,
    RowKind,
)
from swarmd_protocols.trust.envelopes import STATEMENT_MAX_BYTES, sign_statement
from swarmd_protocols.trust.identity import dev_role_seeds, dev_root, make_dev_identity
from tests.support import federation_bounds as laws
from tests.support.federation_world import CRYPTO, make_world
from tests.unit.test_federation_publisher import ALL, Site


@pytest.mark.parametrize(
    "law",
    [
        laws.words_of_times_to_come_are_refused,
        laws.a_restart_forgets_no_certificate,
        laws.a_statement_costs_what_it_is,
        laws.frames_of_before_a_restart_are_copies,
        laws.a_row_that_cannot_be_written_stops_nobody,
        laws.a_swarm_has_a_bound_and_each_node_its_share,
        laws.what_a_node_alone_says_pushes_out_its_own_objects,
        laws.a_file_of_before_the_bounds_is_read_on,
    ],
    ids=lambda law: law.__name__,
)
def test_law(law: object, tmp_path: Path) -> None:
    law(tmp_path)  # type: ignore[operator]


def test_certificates_that_replace_each_other_leave_nothing_at_a_gate() -> None:
    """A swarm that enrols its node anew every minute fills no region's memory: a gate has no journal to clear."""
    secret = b"s" * 32
    node, enrol = make_dev_identity(secret, "farm", "eye", CRYPTO).claims(), dev_role_seeds(secret, "enrol")
    gate = Gate(Pin("farm", "farm", dev_root(secret, CRYPTO)), bytes(32), CRYPTO)
    for counter in range(1, 5):
        told = sign_statement("node", msgspec.structs.replace(node, counter=counter), enrol, CRYPTO)
        assert gate._holds("node", told)
    assert not gate.trust.news
    assert gate.trust.news.take_gone() == []


@pytest.mark.parametrize("seed", range(20))
def test_numbers_over_a_restart_never_take_a_copy(seed: int) -> None:
    rng = random.Random(seed)
    numbers, there = Numbers(), set()
    for _ in range(400):
        life, number = rng.randrange(1, 4), rng.randrange(2 * WINDOW)
        if not numbers.is_copy(life, number):
            assert (life, number) not in there, "a copy is taken"
            numbers.add(life, number)
            there.add((life, number))
        if rng.random() < 0.02:
            numbers = Numbers.restored(numbers.life, numbers.highest)
    assert not numbers.is_copy(numbers.life, numbers.highest + 1)
    assert not numbers.is_copy(numbers.life + 1, 0)


def test_a_region_file_of_before_numbers_were_kept_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "region.sqlite")
    store._db.execute("ALTER TABLE lives DROP COLUMN number")
    store.close()
    store = Store(tmp_path / "region.sqlite")
    assert store.lives("any") == {}
    store.close()


async def test_what_the_outbox_dropped_is_said_again_once_there_is_room(tmp_path: Path) -> None:
    site = Site(tmp_path)
    publisher, daemon = site.publishers[0], site.daemons[0]
    site.outboxes[0].close()
    outbox = site.outboxes[0] = publisher._outbox = Outbox(tmp_path / "small" / FILE_NAME, 6_000, 1e9)
    publisher.claim(ALL, 1)
    for thing in range(12):
        site.see(thing)
    assert daemon.above is not None
    first = await site.said(0)
    assert 0 < len(first) < 12, "not all of them have room"
    for _ in range(4):
        assert set(await site.said(0)) == set(first), "what was dropped pushes out what waits"
    for _ in range(12):
        site.acknowledge(0)
        await site.said(0)
    assert len(publisher.known) == 12, "what was dropped is never said again"
    assert not outbox.take_lost()
    for one in site.outboxes:
        one.close()


async def test_what_the_region_refused_is_said_again(tmp_path: Path) -> None:
    site = Site(tmp_path)
    publisher = site.publishers[0]
    publisher.claim(ALL, 1)
    site.see(1)
    assert len(await site.said(0)) == 1
    refused = [row for row in site.outboxes[0].acknowledge([(0, 1 << 40)]) if row.kind == RowKind.OBJECT]
    publisher.on_refused(refused)
    publisher._compare_s = 0.0
    assert len(await site.said(0)) == 1, "what was refused once is never said again"
    for one in site.outboxes:
        one.close()


def test_what_goes_wrong_with_a_pin_or_what_is_sent_has_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give what"):
        cli._rows(tmp_path / "nothing.fact", [])
    (tmp_path / "other").write_bytes(b"no fact")
    with pytest.raises(ConfigError, match="swarmd fleet note"):
        cli._rows(tmp_path / "other", [])
    make_region(tmp_path / "region")
    with pytest.raises(ConfigError, match="write 1 to 64 letters, digits"):
        add_pin(tmp_path / "region", SwarmEntry("../evil", "farm"), b"")


def test_an_answer_is_never_larger_than_what_a_gateway_opens(tmp_path: Path) -> None:
    """However much is refused, wanted and known beside the largest statement: such a one would arrive never."""
    world = make_world(tmp_path, random.Random(1), swarms=1, gateways=1)
    [swarm] = world.swarms
    swarm.gateways[0].say(1, 900)
    world.settle()
    key, region, store = swarm.pin.key, world.region, world.store
    assert store is not None
    [(gateway, line)] = region._lines[key].items()
    store.send_down(key.hex(), FactKind.STATEMENT, b"large", bytes(STATEMENT_MAX_BYTES))
    region._look_down()
    many = [(1 << 40) + 2 * n for n in range(ROWS_MAX)]
    refused = tuple((n, "x" * 96) for n in many)
    down = Down(bytes(EPOCH_BYTES), tuple((n, n) for n in many), refused, tuple([bytes(range(16))] * WANTED_MAX))
    sizes = []
    for one in (down, msgspec.structs.replace(down, refused=())):
        line.learn(Known(n.to_bytes(8, "big"), n, bytes(8)) for n in range(1 << 40, (1 << 40) + KNOWN_MAX))
        world.flying.clear()
        region._answer(region.gates[key], gateway, line, one)
        sizes += [len(frame.data) for frame in world.flying]
    assert len(sizes) == 2
    assert STATEMENT_MAX_BYTES < max(sizes) <= FRAME_MAX_BYTES
    world.close()
