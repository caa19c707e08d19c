"""The law of answers: what one asker gets is bounded, whatever it asks, and whoever needs everything gets it as soon.

Bytes in any time of t seconds <= a burst + what is held + what is joined meanwhile + t * (a trickle + held / 16 s), and
the one answer begun last; of what is held and joined, only what others than the asker wrote counts.
"""

import random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.messages import LASTING, VITALS, Buckets, CertificateAsk, ClockAsk, Have
from swarmd_protocols.state.observations import StatusReport
from swarmd_protocols.state.quota import ANSWER_BURST_BYTES, ANSWER_BYTES_S, ANSWER_COPY_S, Answers
from swarmd_protocols.subprotocol import Send
from tests.support.state_mesh import Mesh, S, detection

ASKER, OTHER = NodeId(bytes(16)), NodeId(b"\1" * 16)


def bound(held, joined, seconds, last):
    return ANSWER_BURST_BYTES + held + joined + seconds * (ANSWER_BYTES_S + held / ANSWER_COPY_S) + last


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2 * S),
            st.integers(1, 60_000),
            st.one_of(st.none(), st.tuples(st.sampled_from([ASKER, OTHER]), st.integers(1, 1_000))),
        ),
        max_size=60,
    ),
    st.integers(0, 50_000),
)
def test_any_time_between_two_answers_keeps_the_law(steps, held):
    answers, now, joined = Answers(), 0, 0
    given_: list[tuple[int, int, int]] = []
    for pause, size, news in steps:
        now += pause
        if news is not None:
            origin, news_bytes = news
            answers.join(origin, news_bytes)
            # Its own batches are no news to the asker.
            joined += news_bytes * (origin != ASKER)
            held += news_bytes
        if answers.may_have(ASKER, held, now):
            answers.spend(ASKER, min(size, held))
            given_.append((now, joined, min(size, held)))
    for at, (since, joined_before, _) in enumerate(given_):
        total = 0
        for until, joined_until, size in given_[at:]:
            total += size
            # Joined in the same step as the first answer counts as well.
            joined_meanwhile = joined_until - (given_[at - 1][1] if at else 0)
            assert total <= bound(held, joined_meanwhile, (until - since) / S, max(size, 1))
        assert joined_before >= 0


def small_world(seed, sightings):
    mesh = Mesh(4, seed=seed)
    mesh.run(2)
    rng = random.Random(seed)
    for track in range(sightings):
        index = rng.randrange(3)
        now = mesh.members[index].local_ns(mesh.now_ns)
        mesh.see(index, detection(now, track, rng.randrange(40_000) * 10, rng.randrange(40_000) * 10))
        mesh.run(0.02)
    for index in range(3):
        mesh.command(index, StatusReport(bytes(500)))
    mesh.run(8)
    return mesh


def questions(mesh, rng):
    everything = (1 << 32) - 1
    noise = rng.randbytes
    yield Have((), LASTING | VITALS, True, everything)
    yield Buckets(noise(128), noise(128))
    yield Have(tuple((member.node, ()) for member in mesh.members), LASTING | VITALS, rng.random() < 0.5, 0)
    yield CertificateAsk(tuple(member.node for member in mesh.members))
    yield ClockAsk(rng.randrange(1 << 40))
    yield Have(((mesh.members[0].node, ((5, 1 << 40, 7, b"\1\0\0\0"),)),), LASTING, True, rng.getrandbits(32))


def check_asker_gets_its_share(seed, own=0, seconds=12):
    mesh = small_world(seed, 150)
    rng = random.Random(seed)
    victim, asker = mesh.members[0], mesh.members[3]
    for track in range(own):
        mesh.see(3, detection(asker.local_ns(mesh.now_ns), 10_000 + track, 500_000 + track * 1_000))
        mesh.run(0.02)
    mesh.run(2)
    answered = last = 0
    begun = mesh.now_ns
    joined = victim.replica._intake.quotas.answers._joined_bytes
    while mesh.now_ns - begun < seconds * S:
        payload = messages.encode(rng.choice(list(questions(mesh, rng))))
        effects = victim.replica.on_message(asker.node, payload, victim.local_ns(mesh.now_ns))
        sent = sum(len(one.payload) for one in effects if isinstance(one, Send) and one.to == asker.node)
        answered, last = answered + sent, max(last, sent)
        mesh.perform(victim, [one for one in effects if not isinstance(one, Send)])
        mesh.run(0.01)
    store = victim.replica._holdings.store
    held = store.size_without(asker.node)
    assert store.size_bytes - held >= own * 100
    joined = victim.replica._intake.quotas.answers._joined_bytes - joined
    assert answered <= bound(held, joined, seconds, last), f"{answered:,} B of a state of {held:,} B in {seconds} s"
    # Everything once, at least: silence would keep the law as well.
    assert answered >= held


@pytest.mark.parametrize("seed", range(3))
def test_an_asker_gets_its_share_whatever_it_asks(seed):
    check_asker_gets_its_share(seed)


def test_what_an_asker_wrote_itself_gives_it_no_share():
    check_asker_gets_its_share(3, own=300)


def seconds_to_catch_up(seed, sightings, loss):
    mesh = small_world(seed, sightings)
    mesh.loss = loss
    mesh.newcomer(9)
    for step in range(600):
        mesh.run(0.1)
        if mesh.agree():
            return step / 10
    return 60.0


@pytest.mark.parametrize(
    ("sightings", "loss"), [(60, 0.0), (60, 0.3), (400, 0.1), pytest.param(1_500, 0.0, marks=pytest.mark.slow)]
)
def test_a_newcomer_catches_up_as_soon_as_without_a_bound(sightings, loss):
    bounded = seconds_to_catch_up(5, sightings, loss)
    with patch.object(Answers, "may_have", lambda self, asker, *args: True), patch.object(Answers, "spend"):
        free = seconds_to_catch_up(5, sightings, loss)
    assert bounded <= free + 1.0


def test_who_lost_its_disk_has_its_own_words_back_by_the_trickle():
    mesh = Mesh(2, seed=4)
    mesh.run(2)
    for track in range(150):
        mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), track, track * 2_000, 0))
        mesh.run(0.05)
    mesh.run(10)
    store = mesh.members[1].replica._holdings.store
    own = store.size_bytes - store.size_without(mesh.members[0].node)
    assert mesh.agree()
    assert own > 30_000
    mesh.crash(0, lose_disk=True)
    mesh.run(5)
    mesh.boot(0)
    for _ in range(round(10 * (own / ANSWER_BYTES_S + 10))):
        mesh.run(0.1)
        if mesh.agree():
            break
    assert mesh.agree(), f"{own} B of its own are not back"
