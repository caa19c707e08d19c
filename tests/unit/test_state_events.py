"""Events of importance in the replicated state: a few signed rows a node, that newcomers and restarts have too.

The law: whatever one author signs, it takes `EVENTS_MAX` rows of everybody and none of anybody else's.
"""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import Alarm
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.state.crdt.batch import RECORD_MAX_BYTES, NodeSigner, Stream, open_batch, seal_batch
from swarmd_protocols.state.crdt.messages import Batches
from swarmd_protocols.state.crdt.records import (
    EVENTS_BODY_MAX_BYTES,
    EVENTS_MAX,
    EventRow,
    add_event,
    decode_events,
    encode_events,
)
from swarmd_protocols.state.observations import EventsLearned, SayEvent
from tests.support.state_mesh import CRYPTO, Mesh
from tests.unit.test_state_attacks import say

LIFE = 5
TEXT = st.text(max_size=60)
ROWS = st.builds(
    EventRow,
    life=st.integers(0, 3),
    number=st.integers(1, 40),
    at_ms=st.integers(0, (1 << 46) - 1),
    kind=st.text(min_size=1, max_size=32),
    subject=TEXT,
    reason=st.text(max_size=240),
    evidence=st.text(max_size=240),
)


def row(number, kind="failed", life=LIFE, reason="", at_ms=1_000):
    return EventRow(life, number, at_ms, kind, f"drone-{number}", reason, "")


def kinds_of(replica, node):
    return [one.kind for one in replica.views.events().get(node, ())]


def learned(member):
    news = [detail for detail in member.details if isinstance(detail, EventsLearned)]
    return [(one.origin, row.key) for one in news for row in one.rows]


@settings(max_examples=200, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=40))
def test_a_record_is_bounded_in_order_and_reads_back(rows):
    held = ()
    for one in rows:
        before, held = held, add_event(held, one)
        assert one in held or all(one.key < kept.key for kept in held)
        assert {kept.key for kept in held} <= {kept.key for kept in before} | {one.key}
        assert len(held) <= EVENTS_MAX
        assert decode_events(encode_events(held)) == held


def check_the_newest_stay(reason):
    held = ()
    for number in range(1, 101):
        held = add_event(held, row(number, reason=reason))
    assert held[-1].number == 100
    assert len(held) <= EVENTS_MAX
    return held


def test_the_newest_rows_stay_and_a_full_record_fits_a_batch():
    assert len(check_the_newest_stay("x")) == EVENTS_MAX
    held = check_the_newest_stay("ü" * 240)
    assert EVENTS_BODY_MAX_BYTES - 600 < len(encode_events(held)) <= EVENTS_BODY_MAX_BYTES
    signer = NodeSigner(CRYPTO, bytes(32))
    raw = seal_batch(Stream.EVENTS, bytes(16), (1, 1), (1, 0), bytes(16), 5, bytes(EVENTS_BODY_MAX_BYTES), signer).raw
    assert len(open_batch(raw).raw) <= RECORD_MAX_BYTES


@pytest.mark.parametrize(
    "body",
    [
        encode_events(()),
        encode_events((row(2), row(1))),
        encode_events((row(1), row(1))),
        encode_events(tuple(row(number) for number in range(1, EVENTS_MAX + 2))),
        encode_events((row(1, reason="x" * 241),)),
        encode_events((row(0),)),
        encode_events((row(1, kind=""),)),
        msgspec.msgpack.encode([1, 2]),
        bytes(EVENTS_BODY_MAX_BYTES + 1),
    ],
)
def test_what_is_no_record_is_refused(body):
    with pytest.raises(WireError):
        decode_events(body)


def test_what_does_not_fit_is_refused_to_the_caller_and_changes_nothing():
    mesh = Mesh(2)
    mesh.run(1)
    mesh.command(0, SayEvent(row(1)))
    with pytest.raises(StateError):
        mesh.command(0, SayEvent(row(2, reason="x" * 241)))
    mesh.run(6)
    assert kinds_of(mesh.replicas[1], mesh.members[0].node) == ["failed"]


def test_everybody_has_them_each_is_told_once_and_none_later_than_it_was_said():
    mesh = Mesh(4, loss=0.2, seed=3)
    mesh.run(2)
    author = mesh.members[1]
    mesh.command(1, SayEvent(row(1, at_ms=(1 << 45))))
    mesh.run(1)
    mesh.command(1, SayEvent(row(4, "halted")))
    mesh.run(20)
    for member in mesh.members:
        assert kinds_of(member.replica, author.node) == ["failed", "halted"]
        stamp_ms = member.replica.clock.physical_ms(member.local_ns(mesh.now_ns))
        assert member.replica.views.events()[author.node][0].at_ms <= stamp_ms
        assert learned(member) == ([] if member is author else [(author.node, (LIFE, 1)), (author.node, (LIFE, 4))])
    assert mesh.agree_on_all()


def test_a_newcomer_learns_what_a_node_said_that_is_gone():
    mesh = Mesh(4, seed=7)
    mesh.run(2)
    author = mesh.members[3].node
    mesh.command(3, SayEvent(row(1, "halted")))
    mesh.run(8)
    mesh.crash(3)
    mesh.crash(0, lose_disk=True)
    mesh.run(2)
    mesh.boot(0)
    mesh.run(15)
    assert kinds_of(mesh.members[0].replica, author) == ["halted"]
    assert learned(mesh.members[0])[-1:] == [(author, (LIFE, 1))]


def test_an_author_goes_on_where_its_last_life_ended():
    mesh = Mesh(3, seed=9)
    mesh.run(2)
    mesh.command(0, SayEvent(row(1, "halted")))
    mesh.command(0, SayEvent(row(2, "revoked")))
    mesh.crash(0)
    mesh.run(2)
    mesh.boot(0)
    mesh.command(0, SayEvent(row(1, "started", life=LIFE + 1)))
    mesh.run(15)
    for replica in mesh.replicas:
        assert kinds_of(replica, mesh.members[0].node) == ["halted", "revoked", "started"]


def test_who_is_revoked_has_said_nothing():
    mesh = Mesh(4, seed=11)
    mesh.run(2)
    mesh.command(2, SayEvent(row(1)))
    mesh.run(8)
    culprit = mesh.members[2]
    mesh.revoke(culprit)
    mesh.run(8)
    for index in (0, 1, 3):
        assert kinds_of(mesh.replicas[index], culprit.node) == []


def check_a_flood(messages=600):
    """A member signs new rows as fast as it can: it takes its own few rows, and honest ones arrive all the same."""
    mesh = Mesh(4, seed=13)
    mesh.run(2)
    victim, thief, honest = mesh.members[0], mesh.members[3], mesh.members[1]
    mesh.command(1, SayEvent(row(1, "halted")))
    mesh.run(8)
    life, signer = 1 << 40, NodeSigner(CRYPTO, thief.identity.seed)
    rng = random.Random(1)
    for n in range(1, messages + 1):
        rows = tuple(row(n * 100 + i, "failed", life, "x" * rng.randrange(100)) for i in range(EVENTS_MAX))
        body = encode_events(rows)
        raw = seal_batch(Stream.EVENTS, thief.node, (life, n), (life, 0), bytes(16), n << 16, body, signer).raw
        say(mesh, 0, 3, Batches((raw,)))
        mesh.run(0.005)
        if n == messages // 2:
            mesh.command(2, SayEvent(row(1, "revoked")))
    mesh.run(20)
    events = victim.replica.views.events()
    assert len(events[thief.node]) <= EVENTS_MAX
    assert kinds_of(victim.replica, honest.node) == ["halted"]
    assert kinds_of(victim.replica, mesh.members[2].node) == ["revoked"]
    assert sum(origin == thief.node for origin, _ in learned(victim)) <= messages * EVENTS_MAX
    return mesh


def test_a_flood_takes_its_authors_rows_and_nobody_elses():
    mesh = check_a_flood()
    held = mesh.members[0].replica._holdings.store.logs[mesh.members[3].node]
    assert len(held.records) <= 3, "one record of events, whatever was signed"


def test_who_floods_is_named():
    mesh = Mesh(2, seed=15)
    mesh.run(2)
    victim, thief = mesh.members
    life, signer = 1 << 40, NodeSigner(CRYPTO, thief.identity.seed)
    for n in range(1, 3_000):
        body = encode_events((row(n, life=life),))
        raw = seal_batch(Stream.EVENTS, thief.node, (life, n), (life, 0), bytes(16), n << 16, body, signer).raw
        say(mesh, 0, 1, Batches((raw,)))
        mesh.run(0.001)
    assert any(isinstance(effect, Alarm) and thief.node.hex() in effect.text for effect in victim.effects)


def test_a_swarm_of_twenty_has_them_soon_and_a_newcomer_too():
    """Larger swarms spread records by comparison: still within a minute, and without a word of their author."""
    mesh = Mesh(20, seed=17)
    mesh.run(3)
    author = mesh.members[7].node
    mesh.command(7, SayEvent(row(1, "halted")))
    mesh.run_until(lambda: all(kinds_of(replica, author) for replica in mesh.replicas), 60)
    mesh.crash(7)
    mesh.crash(0, lose_disk=True)
    mesh.boot(0)
    mesh.run_until(lambda: bool(kinds_of(mesh.members[0].replica, author)), 60)
