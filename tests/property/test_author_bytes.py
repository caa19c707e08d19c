"""The law of one author's bytes: what it makes others take in and send is a rate, whatever it writes and whoever asks.

Taken in of one author, in any time of t seconds: a burst + t * `AUTHOR_BYTES_S` + one batch.
Sent of it by one other node: a burst + what is held + what is taken in meanwhile + t * `RELAY_BYTES_S` + one batch.
So each honest member stays within twice its budget of traffic while one author writes as much as it can, and after.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import Alarm
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import open_batch
from swarmd_protocols.state.crdt.facts import Facts, NotePut
from swarmd_protocols.state.crdt.messages import BUCKETS, LASTING, ROOM, Batches, Have
from swarmd_protocols.state.quota import (
    AUTHOR_BURST_BYTES,
    AUTHOR_BYTES_S,
    AUTHOR_RESUME_BYTES,
    RELAY_BURST_BYTES,
    RELAY_BYTES_S,
    Relays,
    Volumes,
)
from swarmd_protocols.state.replica import ReplicaConfig
from swarmd_protocols.subprotocol import Send
from tests.support.state_mesh import Mesh, S, detection
from tests.support.state_pen import pen_of

AUTHOR = NodeId(b"\7" * 16)
BATCH_BYTES = 960
BURST_BYTES = 20_000
BUDGET_BYTES_S = 20_000
"""What a node may send in ordinary times (`checks.attacked_bytes_s` of the fuzz scenario is twice that)."""
WINDOW_S = 10
STEPS = st.lists(
    st.tuples(st.sampled_from([0, S // 50, S // 2, 3 * S, 40 * S]), st.integers(1, BATCH_BYTES), st.booleans()),
    max_size=60,
)


@settings(deadline=None)
@given(STEPS)
def test_what_is_taken_in_of_an_author_keeps_its_rate(steps):
    volumes, now, taken = Volumes("x", "signed", BURST_BYTES, AUTHOR_BYTES_S, AUTHOR_RESUME_BYTES), 0, []
    for pause, size, _ in steps:
        now += pause
        # Twelve at once: an author that floods.
        for _ in range(12):
            room = volumes.room(AUTHOR, now)
            if volumes.is_in_debt(AUTHOR, now):
                assert room == 0
                break
            assert room is None or room >= 0
            volumes.charge(AUTHOR, size, now)
            taken.append((now, size))
    for at, (since, _) in enumerate(taken):
        total = 0
        for until, size in taken[at:]:
            total += size
            assert total <= BURST_BYTES + (until - since) * AUTHOR_BYTES_S / S + size
    # Whoever was quiet for long may say everything again.
    assert not volumes.is_in_debt(AUTHOR, now + 60 * S)
    assert volumes.room(AUTHOR, now + 60 * S) is None


@settings(deadline=None)
@given(STEPS, st.integers(0, 50_000))
def test_what_is_sent_of_an_author_keeps_its_rate(steps, held):
    check_relays(steps, held)


def check_relays(steps, held):
    relays, now, joined, sent = Relays(), 0, 0, []
    for pause, size, is_news in steps:
        now += pause
        if is_news:
            relays.join(AUTHOR, size, now)
            held += size
            joined += size
        for _ in range(12):
            if not relays.may_send(AUTHOR, held, now):
                break
            relays.spend(AUTHOR, size)
            sent.append((now, joined, held, size))
    for at, (since, joined_before, held_then, first) in enumerate(sent):
        # What was joined in the same step is held at the beginning as well.
        total, before = 0, sent[at - 1][1] if at else 0
        for until, joined_then, _, size in sent[at:]:
            total += size
            bound = RELAY_BURST_BYTES + held_then + joined_then - min(before, joined_before)
            assert total <= bound + (until - since) * RELAY_BYTES_S / S + max(size, first)
    # With time, one copy of everything may go again.
    relays.may_send(AUTHOR, held, now)
    later = now + int((RELAY_BURST_BYTES + held) / RELAY_BYTES_S + 1) * S
    total = 0
    while total <= RELAY_BURST_BYTES + held + BATCH_BYTES and relays.may_send(AUTHOR, held, later):
        relays.spend(AUTHOR, BATCH_BYTES)
        total += BATCH_BYTES
    assert held <= total <= RELAY_BURST_BYTES + held + BATCH_BYTES


class Watched(Mesh):
    """A mesh that counts what each member sends."""

    def __init__(self, count, seed):
        self.sent = dict.fromkeys(range(count), 0)
        self.of_author = dict.fromkeys(range(count), 0)
        """Bytes of the author's batches among it."""
        self.author = NodeId(bytes(16))
        self.to_paused = 0
        """Bytes of the author's batches to peers whose last summary said that they take none."""
        self.paused: set[tuple[int, NodeId]] = set()
        super().__init__(count, seed=seed)

    def send(self, member, effect: Send):
        self.sent[member.index] += len(effect.payload)
        match messages.decode(effect.payload):
            case Batches(raws):
                size = sum(len(raw) for raw in raws if open_batch(raw).origin == self.author)
                self.of_author[member.index] += size
                if (member.index, effect.to) in self.paused:
                    self.to_paused += size
        super().send(member, effect)

    def deliver(self, member, other, payload):
        match messages.decode(payload):
            case Have(rows):
                for origin, positions in rows:
                    if origin == self.author:
                        key = (other.index, member.node)
                        if (ROOM, 0, 0, b"") in positions:
                            self.paused.add(key)
                        else:
                            self.paused.discard(key)
        super().deliver(member, other, payload)


def flood(mesh, thief, pen, rng, seconds, windows):
    """Batches as long as may be, to two members at a time; counts what each sends in every second."""
    for _ in range(int(seconds * 10)):
        raws = []
        for _ in range(32):
            put = NotePut(pen.life, pen.n + 1, 0, f"fill-{pen.n}", rng.randbytes(512), ())
            more = NotePut(pen.life, 1 << 30 | pen.n, 0, f"more-{pen.n}", rng.randbytes(220), ())
            raws.append(pen.write(Facts(puts=[put, more])).raw)
        payload = messages.encode(Batches(tuple(raws)))
        for _ in range(2):
            victim = rng.choice([member for member in mesh.members[:-1] if member.replica is not None])
            mesh.deliver(mesh.members[thief], victim, payload)
        mesh.run(0.1)
        windows.append(dict(mesh.sent))


def busiest(windows):
    """Bytes a second of the busiest member in the busiest ten seconds."""
    most, steps = 0, 10 * WINDOW_S
    for first, last in zip(windows, windows[steps:], strict=False):
        most = max(most, max(last[index] - first[index] for index in last) // WINDOW_S)
    return most


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_law_an_author_that_writes_all_it_can_stays_within_twice_the_budget(seed):
    check_a_flood(seed)


def taken_in(mesh):
    replicas = [member.replica for member in mesh.members if member.replica is not None]
    return sum(replica._holdings.store.logs[mesh.author].size_bytes for replica in replicas)


def check_a_flood(seed, count=6, seconds=20):
    mesh, rng = Watched(count, seed), random.Random(seed)
    mesh.run(2)
    thief = count - 1
    mesh.author = mesh.members[thief].node
    mesh.crash(thief)
    windows: list[dict[int, int]] = []
    flood(mesh, thief, pen_of(thief), rng, seconds, windows)
    assert busiest(windows) <= 2 * BUDGET_BYTES_S
    relayed, taken = sum(mesh.of_author.values()), taken_in(mesh)
    assert taken <= (count - 1) * (AUTHOR_BURST_BYTES + (seconds + 2) * AUTHOR_BYTES_S + BATCH_BYTES)
    # What was sent before a peer's word that it takes nothing had come.
    assert mesh.to_paused <= relayed // 20
    assert relayed <= 1.25 * taken
    for member in mesh.members[:thief]:
        alarms = [one for one in member.effects if isinstance(one, Alarm) and one.code == "state-flood"]
        assert alarms
        assert all(mesh.author.hex() in one.text for one in alarms)
        assert "digest" in alarms[0].text
    # Honest authors' rows are as fresh as ever, at a node that has just restarted too.
    mesh.crash(1)
    mesh.boot(1)
    mesh.paused = {(teller, to) for teller, to in mesh.paused if teller != 1}
    mesh.tell_peers()
    mesh.run(1)
    mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), 1, 5_000_000, 5_000_000))
    mesh.run(1)
    assert all(any(thing.east_cm == 5_000_000 for thing in replica.views.objects()) for replica in mesh.replicas)
    # Ten seconds after its end an attack costs less than a budget, though much of it is still owed.
    mesh.run(8)
    after = [dict(mesh.sent)]
    for _ in range(100):
        mesh.run(0.1)
        after.append(dict(mesh.sent))
    assert busiest(after) <= BUDGET_BYTES_S
    # Nor was anything sent in vain to whoever had no room for it.
    relayed = sum(mesh.of_author.values())
    assert relayed <= 1.25 * taken_in(mesh)
    assert mesh.to_paused <= relayed // 20
    return mesh


def test_whoever_asks_for_more_than_one_answer_holds_uses_up_only_what_it_is_sent():
    """One question with nothing in it would else keep every author from whoever asks next."""
    mesh = Mesh(5, seed=1, config=ReplicaConfig(repair_bytes_max=30_000, stream_bytes_max=10_000))
    mesh.run(1)
    holder, asker = mesh.members[3], mesh.members[4]
    for index in range(3):
        mesh.crash(index)
        pen = pen_of(index)
        raws = [pen.write(Facts(puts=[NotePut(pen.life, n + 1, 0, f"n{n}", bytes(500), ())])).raw for n in range(40)]
        mesh.deliver(mesh.members[index], holder, messages.encode(Batches(tuple(raws))))
    mesh.crash(4)
    mesh.run(60)
    relays, now_ns = holder.replica._intake.quotas.relays, holder.local_ns(mesh.now_ns)
    for author, log in holder.replica._holdings.store.logs.items():
        relays.may_send(author, log.size_bytes, now_ns)
    before = {author: left.level for author, left in relays._levels.items()}
    assert len(before) == 3
    question = messages.encode(Have((), LASTING, False, (1 << BUCKETS) - 1))
    effects = holder.replica.on_message(asker.node, question, now_ns)
    sent: dict[NodeId, int] = {}
    for payload in [messages.decode(one.payload) for one in effects if isinstance(one, Send)]:
        for raw in payload.raws if isinstance(payload, Batches) else ():
            author = open_batch(raw).origin
            sent[author] = sent.get(author, 0) + len(raw)
    assert 20_000 < sum(sent.values()) <= 30_000
    assert {author: (level - relays._levels[author].level) // S for author, level in before.items()} == {
        author: sent.get(author, 0) for author in before
    }
