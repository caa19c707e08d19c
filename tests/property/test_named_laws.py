"""Two laws of what one member does to others through the state of a third.

Whom an alarm names: no inputs of one member make any node name an honest one, as an author, as who passes on or as who
asks. Whoever asks: what it asks of a node keeps from another, of each author, at most two copies' time at the rate of
repairs.
"""

import random
from collections import Counter, deque

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import Alarm
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.facts import Facts, NotePut
from swarmd_protocols.state.crdt.messages import BUCKETS, LASTING, VITALS, Batches, Certificates, Have, Recent
from swarmd_protocols.state.observations import SetNote
from swarmd_protocols.state.quota import RELAY_ASKER_SHARE, RELAY_BURST_BYTES, RELAY_BYTES_S, Relays
from tests.support.state_gone import alarms, gone_authors
from tests.support.state_mesh import Mesh, S
from tests.support.state_pen import pen_of

AUTHOR, GREEDY, NEWCOMER = (NodeId(bytes([who]) * 16) for who in (1, 2, 3))
BATCH_BYTES = 960
EVERYTHING = (1 << BUCKETS) - 1


def delay_s(held: int) -> float:
    """How long one who asks may keep a copy of an author from another: its own copy, then 15/16 of the rate."""
    return (held + BATCH_BYTES) * (1 + RELAY_ASKER_SHARE / (RELAY_ASKER_SHARE - 1)) / RELAY_BYTES_S


@settings(deadline=None)
@given(
    st.integers(1_000, 300_000),
    st.integers(0, 300),
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 10)), max_size=30),
)
@example(120_000, 0, [])
@example(120_000, 100, [])
@example(120_000, 0, [(30, 10)] * 20)
@example(1_000, 5, [(66, 3)])
def test_whoever_asks_without_end_keeps_a_copy_from_another_for_so_long_at_most(held, first_s, news):
    check_askers(held, first_s, news)


def check_askers(held, first_s, news):
    """What is held at any moment has reached a newcomer in the time of a copy of all of that.

    Args:
        held: Bytes at the beginning.
        first_s: When the newcomer asks for the first time; from then on it asks without end, as the greedy one does.
        news: What the author says anew: so many steps of 0.1 s later, so many batches.
    """
    relays, step_ns, got = Relays(), S // 10, 0
    coming = Counter[int]()
    for at, (_, count) in enumerate(news):
        coming[sum(pause for pause, _ in news[: at + 1])] += count
    owed = deque[tuple[int, int]]()
    step, last = 0, max(10 * first_s, *coming, 0)
    while step <= last or owed:
        now_ns = step * step_ns
        for _ in range(coming[step]):
            relays.join(AUTHOR, BATCH_BYTES, now_ns)
            held += BATCH_BYTES
        while relays.may_send(AUTHOR, held, now_ns, GREEDY):
            relays.spend(AUTHOR, BATCH_BYTES, held, GREEDY)
        while step >= 10 * first_s and got < held and relays.may_send(AUTHOR, held, now_ns, NEWCOMER):
            relays.spend(AUTHOR, BATCH_BYTES, held, NEWCOMER)
            got += BATCH_BYTES
        if step >= 10 * first_s and (step in coming or step == 10 * first_s):
            owed.append((step + int(delay_s(held) * 10) + 2, held))
        while owed and owed[0][0] <= step:
            due, bytes_then = owed.popleft()
            assert got >= bytes_then, f"{got:,} of {bytes_then:,} B after {due / 10:.1f} s"
        step += 1


def test_whoever_came_long_ago_leaves_a_whole_copy():
    relays, held, now_ns = Relays(), 120_000, 0
    for second in range(60):
        now_ns = second * S
        while relays.may_send(AUTHOR, held, now_ns, GREEDY):
            relays.spend(AUTHOR, BATCH_BYTES, held, GREEDY)
    got = 0
    while relays.may_send(AUTHOR, held, now_ns, NEWCOMER):
        relays.spend(AUTHOR, BATCH_BYTES, held, NEWCOMER)
        got += BATCH_BYTES
    assert held - BATCH_BYTES <= got <= held + RELAY_BURST_BYTES


def written(mesh, index, size, since=0):
    """A member that is gone has said so much; the first member holds it, at the pace at which it takes it in."""
    pen, raws = pen_of(index), []
    while sum(map(len, raws)) < size:
        raws.append(pen.write(Facts(puts=[NotePut(pen.life, pen.n + 1, 0, f"{index}-{pen.n}", bytes(500), ())])).raw)
    for at in range(0, len(raws), 5):
        mesh.deliver(mesh.members[index], mesh.members[since], messages.encode(Batches(tuple(raws[at : at + 5]))))
        mesh.run(1)
    assert mesh.members[since].replica._holdings.store.logs[pen.node].size_bytes >= size


def catches_up_s(asks):
    mesh = Mesh(4, seed=7)
    mesh.run(1)
    holder, greedy = mesh.members[0], mesh.members[2]
    mesh.crash(1)
    mesh.crash(3)
    mesh.partition(lambda index: int(index == 2))
    written(mesh, 1, 60_000)
    mesh.crash(2)
    mesh.partition(lambda index: 0)
    mesh.boot(3)
    for step in range(2_000):
        if mesh.agree():
            return step / 20
        for _ in range(asks):
            mesh.deliver(greedy, holder, messages.encode(Have((), LASTING, False, EVERYTHING)))
        mesh.run(0.05)
    return 100.0


def check_a_newcomer_beside_who_asks():
    assert catches_up_s(1) <= catches_up_s(0) + delay_s(65_000)


def test_a_newcomer_reads_from_the_only_holder_while_another_asks_it_without_end():
    check_a_newcomer_beside_who_asks()


# --- who is named ---------------------------------------------------------------------------------------------------

THIEF, GONE, COUNT = 4, 3, 5
ACTIONS = ("bring", "own", "ask", "claim", "differ", "names", "forge", "restart", "pause")
_STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, THIEF - 1), st.integers(0, THIEF - 1), st.integers(1, 100)),
    min_size=1,
    max_size=8,
)


class Stage:
    """Three members that work, one that is gone, and a thief with a key and a node that runs as others do."""

    def __init__(self, log_bytes):
        self.mesh = mesh = Mesh(COUNT, seed=11)
        self.rng = random.Random(11)
        mesh.run(1)
        mesh.crash(GONE)
        written(mesh, GONE, log_bytes // 3)
        for at in range(log_bytes // 600):
            mesh.command(0, SetNote(f"note-{at}", self.rng.randbytes(500)))
            mesh.run(0.25)
        self.pen = pen_of(THIEF)
        assert self.pen.node == mesh.members[THIEF].node
        self.work()

    def work(self):
        mesh = self.mesh
        for index in range(3):
            if mesh.members[index].replica is not None:
                mesh.command(index, SetNote("state", self.rng.randbytes(200)))
        mesh.at(S, self.work)

    def say(self, victim, message):
        mesh = self.mesh
        mesh.deliver(mesh.members[THIEF], mesh.members[victim], messages.encode(message))

    def raws(self, author):
        log = self.mesh.members[THIEF].replica._holdings.store.logs.get(self.mesh.members[author].node)
        return [] if log is None else [batch.raw for batch in log.batches()]

    def do(self, action, victim, author, number):
        mesh, rng = self.mesh, self.rng
        nodes = [member.node for member in mesh.members[:THIEF]]
        match action:
            case "bring":
                self.say(victim, Batches(tuple(self.raws(author))))
            case "own":
                for _ in range(number):
                    puts = [NotePut(self.pen.life, self.pen.n + 1, 0, f"f{self.pen.n}", bytes(500), ())]
                    self.say(victim, Batches((self.pen.write(Facts(puts=puts)).raw,)))
                    victim = (victim + author) % 3
            case "ask":
                for _ in range(number):
                    self.say(victim, Have((), LASTING | VITALS, True, EVERYTHING))
                    mesh.run(0.02)
            case "claim":
                rows = tuple((node, ((0, 1 << 40, number, b"\1\1\1\1"),)) for node in nodes)
                self.say(victim, Have(rows, LASTING, True, 0))
            case "differ":
                other = mesh.members[victim]
                if other.replica is not None:
                    now_ns = other.local_ns(mesh.now_ns)
                    effects = other.replica.on_summary(mesh.members[THIEF].node, rng.randbytes(16), now_ns)
                    mesh.perform(other, effects)
            case "names":
                self.say(victim, Recent(rng.randbytes(6 * number)))
            case "forge":
                forged = tuple(raw[:-1] + bytes([raw[-1] ^ 1]) for raw in self.raws(author)[:number])
                self.say(victim, Batches(forged))
            case "restart":
                mesh.crash(victim % 3, lose_disk=True)
                mesh.boot(victim % 3)
            case _:
                mesh.run(number / 10)
        mesh.run(0.1)

    def named(self):
        texts = [
            effect.text
            for member in self.mesh.members
            for effect in member.effects
            if isinstance(effect, Alarm) and effect.code.startswith("state-")
        ]
        return {member.index for member in self.mesh.members if any(member.node.hex() in text for text in texts)}


def check_who_is_named(steps, log_bytes=190_000):
    stage = Stage(log_bytes)
    for step in steps:
        stage.do(*step)
    stage.mesh.run(5)
    assert stage.named() <= {THIEF}
    return stage


@pytest.mark.slow
@settings(
    deadline=None,
    max_examples=12,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)],
)
@given(_STEPS)
@example([("restart", 0, 0, 1), ("bring", 0, GONE, 1), ("bring", 0, GONE, 1)])
@example([("own", at % 3, at % 3, 100) for at in range(12)])
@example([("restart", 0, 0, 1)] + [("differ", 0, 0, 1), ("claim", 0, 0, 90), ("bring", 0, 0, 1), ("ask", 0, 0, 20)] * 3)
def test_no_inputs_of_one_member_make_any_node_name_another(steps):
    check_who_is_named(steps)


BROUGHT = [("restart", 1, 0, 1), ("bring", 1, 0, 1), ("bring", 1, GONE, 1)]


def test_who_reads_a_long_honest_log_names_nobody():
    """Brought at once by another, though the newcomer has no room for it."""
    check_who_is_named(BROUGHT)


def test_whoever_brings_without_end_what_is_not_taken_in_is_named():
    stage = check_who_is_named([("restart", 1, 0, 1), *[("bring", 1, 0, 1)] * 8])
    assert stage.named() == {THIEF}


def check_who_is_outpaced_is_not_named(authors, batches, seed):
    """A thief hands a newcomer all that the only holder answers it with, a moment before that comes.

    So the answers of the holder bring nothing new, and their work is the holder's to pay. What keeps it from being
    named is that nobody is asked who could not pay for its answer (`Quotas.may_ask`).
    """
    mesh = Mesh(4, seed=seed)
    holder, thief, newcomer = mesh.members[0], mesh.members[2], mesh.members[3]
    mesh.crash(3, lose_disk=True)
    mesh.run(1)
    gone_authors(mesh, authors, batches, 3, 0.5)
    mesh.run(20)
    mesh.crash(1)
    send = mesh.send

    def when_read(payload):
        if newcomer.replica._intake.has_work:
            mesh.at(5_000_000, lambda: when_read(payload))
        else:
            mesh.deliver(holder, newcomer, payload)

    def outpaced(member, effect):
        is_answer = isinstance(messages.decode(effect.payload), Batches | Certificates)
        if member is holder and effect.to == newcomer.node and is_answer:
            mesh.deliver(thief, newcomer, effect.payload)
            mesh.at(1_000_000, lambda: when_read(effect.payload))
        elif member is not thief:
            send(member, effect)

    mesh.send = outpaced
    mesh.boot(3)
    mesh.run(30)
    assert not [text for text in alarms(mesh) if thief.node.hex() not in text]


def test_who_is_outpaced_by_a_thief_is_not_named():
    check_who_is_outpaced_is_not_named(20, 600, 13)


@pytest.mark.slow
@settings(
    deadline=None,
    max_examples=4,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)],
)
@given(st.integers(10, 30), st.integers(100, 700), st.integers(0, 1 << 16))
@example(100, 120, 13)
def test_whoever_is_outpaced_is_not_named(authors, batches, seed):
    check_who_is_outpaced_is_not_named(authors, batches, seed)


def check_a_long_state_is_read():
    """Of many authors, in the smallest batches, by one whose disk is lost, from three who hold everything."""
    mesh = Mesh(4, seed=13)
    mesh.run(1)
    held = gone_authors(mesh, 100, 120, 4, 4)
    mesh.crash(3, lose_disk=True)
    mesh.boot(3)
    mesh.spread_trust()
    mesh.run_until(mesh.agree, 300, 1)
    assert not alarms(mesh), f"{held:,} B: {alarms(mesh)}"


@pytest.mark.slow
def test_who_reads_a_long_state_and_who_sends_it_are_not_named():
    check_a_long_state_is_read()
