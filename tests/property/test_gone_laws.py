"""What members who are gone have said reaches who has met none of them, at a bounded price, whatever one member does.

Their certificates go ahead of their batches. A newcomer reads all of it within a minute and three times its bytes, from
one holder or several, and as well while one member does what it likes: none of that keeps it from asking the others.
"""

import random

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import open_batch
from swarmd_protocols.state.crdt.facts import Facts, NotePut
from swarmd_protocols.state.crdt.messages import (
    BATCHES_MAX,
    BUCKETS,
    CERTIFICATES_MAX,
    ID_BYTES,
    IDS_MAX,
    LASTING,
    MESSAGE_MAX_BYTES,
    ROOM,
    Batches,
    Certificates,
    Have,
    Recent,
)
from swarmd_protocols.state.quota import SENDER_BURST
from swarmd_protocols.subprotocol import Send
from tests.support.state_gone import alarms, gone_authors
from tests.support.state_mesh import Mesh, S
from tests.support.state_pen import Pen

QUIET_BYTES = 60_000
"""What four members say in a minute in which nothing is new, and a hundred certificates."""
EVERYTHING = (1 << BUCKETS) - 1


def check_who_are_gone_are_read(authors, batches, holders=3, seed=13, loss=0.0, copies=3):
    """By one that has met none of them, from peers: all of it, within a minute and so many times its bytes."""
    mesh = Mesh(4, seed=seed, loss=loss)
    mesh.crash(3, lose_disk=True)
    mesh.run(1)
    held = gone_authors(mesh, authors, batches, 3, min(0.4, 40 / authors))
    mesh.run_until(mesh.agree, 30, 1)
    mesh.run(30)
    for index in range(holders, 3):
        mesh.crash(index)
    sent = mesh.bytes_sent
    mesh.boot(3)
    newcomer = mesh.members[3]
    assert not any(newcomer.trust.certified(member.node) for member in mesh.members[4:])
    mesh.run_until(mesh.agree, 60, 0.5)
    assert newcomer.replica.views.health()["bytes_held"] == held
    sent = mesh.bytes_sent - sent
    assert sent <= copies * held + QUIET_BYTES, f"{sent:,} B sent for a state of {held:,} B"
    mesh.run(10)
    assert not alarms(mesh), alarms(mesh)


@pytest.mark.parametrize(
    ("authors", "batches", "holders"),
    [(1, 120, 1), (5, 120, 3), (20, 120, 3), (20, 120, 1), (23, 1, 2), (60, 20, 3), (200, 3, 1), (1500, 1, 1)],
)
def test_a_newcomer_reads_the_state_of_many_who_are_gone(authors, batches, holders):
    check_who_are_gone_are_read(authors, batches, holders)


def check_the_price():
    """Nobody is asked for what it is sending, for what came and is still to be read, or for what is held.

    Heads travel short, so that a copy takes fewer bytes than are held: the price is 0.8, 0.8 and 1.5 copies beside what
    is said anyway. Asked twice it is 1.4 to 1.9 of the first two, and 2.6 of the third.
    """
    check_who_are_gone_are_read(20, 120, holders=1, seed=6, copies=1.1)
    check_who_are_gone_are_read(20, 120, holders=3, seed=5, copies=1.2)
    check_who_are_gone_are_read(60, 20, holders=3, seed=5, copies=2)


def test_a_newcomer_is_sent_little_twice():
    check_the_price()


@pytest.mark.slow
@settings(
    deadline=None,
    max_examples=8,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)],
)
@given(st.integers(1, 120), st.integers(1, 120), st.integers(1, 3), st.integers(0, 1 << 16), st.sampled_from([0, 0.1]))
@example(100, 120, 3, 13, 0)
@example(100, 120, 1, 2, 0)
@example(35, 30, 2, 1, 0)
@example(60, 20, 3, 5, 0)
def test_a_newcomer_reads_whatever_who_are_gone_have_said(authors, batches, holders, seed, loss):
    check_who_are_gone_are_read(authors, batches, holders, seed, loss)


def check_what_may_not_be_sent_takes_no_room():
    """Of one author a holder has sent all that it may: an asker that can pay for little more still has the other's."""
    mesh = Mesh(4, seed=1)
    mesh.crash(3, lose_disk=True)
    mesh.run(1)
    gone_authors(mesh, 2, 120, 3, 0.4)
    first, second = (member.node for member in mesh.members[4:])
    quotas = mesh.members[0].replica._intake.quotas
    asker, now_ns = mesh.members[2].node, mesh.members[0].local_ns(mesh.now_ns)
    assert quotas.relays.may_send(first, 0, now_ns)
    quotas.relays.spend(first, 1 << 30)
    quotas.senders.charge(asker, SENDER_BURST * 3 // 4 - 1_200, now_ns)
    ask = messages.encode(Have((), LASTING, False, EVERYTHING))
    sends = [one for one in mesh.members[0].replica.on_message(asker, ask, now_ns) if isinstance(one, Send)]
    came = [message for message in (messages.decode(one.payload) for one in sends) if isinstance(message, Batches)]
    assert {open_batch(raw).origin for message in came for raw in message.raws} == {second}


def test_what_may_not_be_sent_takes_no_room():
    check_what_may_not_be_sent_takes_no_room()


# --- Beside one member that does what it likes --------------------------------------------------------------------

THIEF, NEWCOMER = 2, 3
TRICKS = ("tiny", "forged", "known", "strangers", "certificates", "forged-keys", "claims", "names", "asks", "pauses")


class Thief:
    """A member with a key that says whatever keeps a newcomer from reading what the others hold."""

    def __init__(self, mesh):
        self.mesh = mesh
        self.rng = random.Random(7)
        self.gone = mesh.members[4:]
        self.raws = [batch.raw for batch in mesh.members[0].replica._holdings.store.batches()]
        seeds = [bytes([who]) + b"nobody" + bytes(25) for who in range(64)]
        self.strangers = [Pen(seed).write(Facts(puts=[NotePut(1, 1, 0, "x", b"v", ())])).raw for seed in seeds]

    def say(self, to, message):
        payload = messages.encode(message)
        assert len(payload) <= MESSAGE_MAX_BYTES
        self.mesh.deliver(self.mesh.members[THIEF], self.mesh.members[to], payload)

    def do(self, trick):
        rng, raws = self.rng, self.raws
        match trick:
            case "tiny":
                for size in (0, 1, 100):
                    self.say(NEWCOMER, Batches((bytes(size),) * BATCHES_MAX))
            case "forged":
                forged = tuple(raw[:-1] + bytes([raw[-1] ^ 1]) for raw in raws)
                self.say(NEWCOMER, Batches(forged[:BATCHES_MAX]))
            case "known":
                self.say(NEWCOMER, Batches(tuple(raws[:BATCHES_MAX])))
            case "strangers":
                self.say(NEWCOMER, Batches(tuple(self.strangers)))
            case "certificates":
                for at in range(0, len(self.gone), CERTIFICATES_MAX):
                    part = tuple(member.certificate for member in self.gone[at : at + CERTIFICATES_MAX])
                    self.say(NEWCOMER, Certificates(part))
            case "forged-keys":
                bad = tuple(one.certificate[:-1] + b"\0" for one in self.gone[:CERTIFICATES_MAX])
                self.say(NEWCOMER, Certificates(bad))
            case "claims":
                rows = tuple((member.node, ((0, 1 << 40, 1 << 20, b"\1\1\1\1"),)) for member in self.gone)
                for reply in (True, False):
                    self.say(NEWCOMER, Have(rows, LASTING, reply, EVERYTHING))
            case "names":
                self.say(NEWCOMER, Recent(rng.randbytes(ID_BYTES * IDS_MAX)))
            case "asks":
                for to in (0, NEWCOMER):
                    self.say(to, Have((), LASTING, True, EVERYTHING))
            case "pauses":
                rows = tuple((member.node, ((ROOM, 0, 0, b""),)) for member in self.gone)
                self.say(NEWCOMER, Have(rows, LASTING, False, 0))
                newcomer = self.mesh.members[NEWCOMER]
                now_ns = newcomer.local_ns(self.mesh.now_ns)
                effects = newcomer.replica.on_summary(self.mesh.members[THIEF].node, rng.randbytes(16), now_ns)
                self.mesh.perform(newcomer, effects)


def check_a_thief_keeps_nobody_from_reading(tricks, repeats=1, every_s=0.1, within_s=20.0):
    """A newcomer holds what two hold, soon, though a third member answers nothing and goes on with its tricks."""
    mesh = Mesh(4, seed=13)
    mesh.crash(NEWCOMER, lose_disk=True)
    mesh.run(1)
    gone_authors(mesh, 30, 40, 3, 0.1)
    mesh.run_until(mesh.agree, 30, 1)
    mesh.run(10)
    thief, send = Thief(mesh), mesh.send
    mesh.send = lambda member, effect: None if member.index == THIEF else send(member, effect)
    mesh.boot(NEWCOMER)
    holder, newcomer = mesh.members[0].replica, mesh.members[NEWCOMER].replica
    begin_ns, step = mesh.now_ns, 0
    while holder.views.digest() != newcomer.views.digest():
        assert mesh.now_ns < begin_ns + within_s * S, f"{tricks}: {newcomer.views.health()}"
        for _ in range(repeats):
            thief.do(tricks[step % len(tricks)])
        mesh.run(every_s)
        step += 1
        assert newcomer.views.health()["waiting_for_certificates"] <= mesh.config.waiting_a_peer_max
    honest = [member.node.hex() for member in (*mesh.members[:THIEF], mesh.members[NEWCOMER], *thief.gone)]
    assert not [text for text in alarms(mesh) if any(name in text for name in honest)], alarms(mesh)
    return (mesh.now_ns - begin_ns) / S


@pytest.mark.parametrize("trick", TRICKS)
def test_one_trick_without_end_keeps_no_newcomer_from_reading(trick):
    check_a_thief_keeps_nobody_from_reading([trick], 3)


@pytest.mark.slow
@settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)],
)
@given(st.lists(st.sampled_from(TRICKS), min_size=2, max_size=6), st.integers(1, 6), st.sampled_from([0.02, 0.1, 0.5]))
def test_no_tricks_of_one_member_keep_a_newcomer_from_reading(tricks, repeats, every_s):
    check_a_thief_keeps_nobody_from_reading(tricks, repeats, every_s)
