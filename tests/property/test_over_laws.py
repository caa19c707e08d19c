"""What is over leaves nothing: neither with who said it nor, once that one has written its log anew, with anybody."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.state import projection, spent_notes
from swarmd_protocols.state.crdt.notes import NoteMap
from swarmd_protocols.state.crdt.ownlog import OwnLog
from swarmd_protocols.state.dedup.leaning import Leaning
from swarmd_protocols.state.dedup.own import OwnSightings
from swarmd_protocols.state.observations import SetNote
from swarmd_protocols.state.replica import ReplicaConfig
from swarmd_protocols.state.shown import Shown
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.state_mesh import Mesh, detection

TTL_S = 60
DEFAULT = ReplicaConfig()
CONFIG = msgspec.structs.replace(
    DEFAULT, slack_rows=8, dedup=msgspec.structs.replace(DEFAULT.dedup, ttl_ms=TTL_S * 1_000)
)
KEYS = ("north", "south", "gate")


def _begun(count: int, seed: int) -> Mesh:
    """So many that know each other's time: what a clock that nobody confirms calls old is only hidden."""
    mesh = Mesh(count, seed, loss=seed % 3 * 0.1, config=CONFIG)
    mesh.run(30)
    return mesh


def _see(mesh: Mesh, index: int, track: int, east_cm: int, north_cm: int) -> None:
    member = mesh.members[index]
    if member.replica is not None:
        mesh.see(index, detection(member.local_ns(mesh.now_ns), track, east_cm, north_cm))


def things(seed: int, count: int = 9) -> Mesh:
    """Many see the same things, so that most only join; who has said them comes and goes."""
    rng, mesh = random.Random(seed), _begun(count, seed)
    for number in range(24):
        for index in rng.sample(range(count), rng.randrange(1, count + 1)):
            _see(mesh, index, number, 1_000 * number + rng.randrange(9), 2_000 + rng.randrange(9))
            mesh.run(rng.choice((0.05, 0.3)))
        mesh.run(rng.choice((1, 4, 9)))
        if rng.random() < 0.15:
            mesh.partition(lambda index: index % 2)
        elif rng.random() < 0.3:
            mesh.partition(lambda index: 0)
        if rng.random() < 0.2:
            index = rng.randrange(count)
            mesh.crash(index)
            mesh.run(rng.choice((1, TTL_S)))
            mesh.boot(index)
            mesh.tell_peers()
    mesh.partition(lambda index: 0)
    # Who came back last needs its time confirmed, and an hour (here a minute) after that.
    mesh.run(3 * TTL_S)
    return mesh


def nothing_is_kept(seed: int) -> None:
    mesh = things(seed)
    for replica in mesh.replicas:
        assert not replica.views.objects()
        assert not replica._author.log._live, f"{len(replica._author.log._live)} facts of things that are over"
        assert not replica._projection.own.registers, "a table of things that is full takes no new ones"
        assert not replica._projection.own.leaning.parted


def rows_have_a_bound(seed: int) -> None:
    """One more word of each author, and what it leaves is its slack."""
    mesh = things(seed)
    for index in range(len(mesh.members)):
        _see(mesh, index, 1_000 + index, 500_000 + 10_000 * index, 0)
    mesh.run(10)
    for replica in mesh.replicas:
        log = replica._author.log
        assert log._total <= 2 * len(log._live) + CONFIG.slack_rows + 1


def notes(seed: int, count: int = 5) -> Mesh:
    """Whoever wants to writes or removes notes of a few names, also in two parts that do not hear each other."""
    rng, mesh = random.Random(seed), _begun(count, seed)
    hidden: list[set[tuple[bytes, int, int]]] = [set() for _ in range(count)]
    for number in range(150):
        key, value = rng.choice(KEYS), b"" if rng.random() < 0.2 else b"%d" % number
        mesh.command(rng.randrange(count), SetNote(key, value))
        mesh.run(rng.choice((0.02, 1, 8)))
        if rng.random() < 0.05:
            mesh.partition(lambda index: index % 2)
        elif rng.random() < 0.15:
            mesh.partition(lambda index: 0)
            mesh.run_until(mesh.agree, 30)
        if mesh.agree():
            for index, replica in enumerate(mesh.replicas):
                held = replica._projection.notes
                visible = {dot for key in KEYS for dot in held.dots_of(key)}
                assert not visible & hidden[index], "what was replaced shows again"
                hidden[index] |= held._said.keys() - visible
    mesh.partition(lambda index: 0)
    mesh.run_until(mesh.agree, 30)
    return mesh


def notes_have_a_bound(seed: int) -> None:
    """Each name has at most one living put, and removals go with what they remove."""
    mesh = notes(seed)
    before = [replica.views.notes() for replica in mesh.replicas]
    assert all(one == before[0] for one in before)
    # What each has replaced goes as it says something, and with it what names that, and so on.
    for track in range(12):
        mesh.run(2 * spent_notes.SPENT_NS / 1e9)
        for index in range(len(mesh.members)):
            for number in range(6):
                _see(mesh, index, 100 * track + number, 100_000 * index + 2_000 * number, 0)
    mesh.run(3 * TTL_S)
    for replica in mesh.replicas:
        assert replica.views.notes() == before[0]
        log = replica._author.log
        assert len(log._live) <= len(KEYS), log._live.keys()
        assert log._total <= 2 * (len(KEYS) + 6) + CONFIG.slack_rows + 6, "six things lived when it was written anew"


def one_name_by_many() -> None:
    """Each puts it once; all but the last can let go at once, however little they say."""
    mesh = _begun(12, 3)
    logs = [replica._author.log for replica in mesh.replicas]
    for index in range(12):
        mesh.command(index, SetNote("gate", b"%d" % index))
        mesh.run(2)
    mesh.run(2 * spent_notes.SPENT_NS / 1e9)
    assert [len(log.notes()) - len(log._spent) for log in logs] == [0] * 11 + [1]
    mesh.command(3, SetNote("gate", b""))
    mesh.run(2 * spent_notes.SPENT_NS / 1e9)
    assert not any(replica.views.notes() for replica in mesh.replicas)
    assert [len(log.notes()) - len(log._spent) for log in logs] == [0] * 3 + [1] + [0] * 8


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 1 << 32))
def test_law_things_that_are_over_leave_nothing(seed: int) -> None:
    nothing_is_kept(seed)


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 1 << 32))
def test_law_an_author_leaves_its_slack(seed: int) -> None:
    rows_have_a_bound(seed)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 1 << 32))
def test_law_notes_that_are_replaced_go_and_never_show_again(seed: int) -> None:
    notes_have_a_bound(seed)


def test_a_large_swarm_leaves_each_member_no_more_than_a_small_one() -> None:
    member = Mesh(1).members[0]
    log = OwnLog(member.node, 1, member.signer)
    left = []
    for members in (1, 4, 20, 100, 200, 256):
        log.know_swarm(members)
        left.append(members * log._slack_rows)
    assert max(left) <= 512
    log.know_swarm(10_000)
    assert log._slack_rows == 2


def some_things() -> None:
    for seed in range(4):
        nothing_is_kept(seed)


def some_notes() -> None:
    for seed in range(4):
        notes_have_a_bound(seed)


def _faded_joins_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OwnSightings, "part", lambda *_: None)


def _parted_joins_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leaning, "take_parted", lambda self, _: self.parted.clear() or [])


def _late_news_stays(patch: pytest.MonkeyPatch) -> None:
    stop_showing = Shown._stop_showing
    patch.setattr(Shown, "_stop_showing", lambda self, leader: stop_showing(self, leader) if leader.shown else None)
    patch.setattr(projection, "_OVER", 1 << 60)


def _only_the_visible_is_named(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NoteMap, "replaced_by", NoteMap.dots_of)


def _spent_when_hidden(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NoteMap, "_stays_hidden", lambda *_: True)


def _earlier_ones_of_one_origin_show(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        NoteMap,
        "_visible_under",
        lambda self, key: (
            (dot, max(self._said[dot]))
            for dots in self._under.get(key, {}).values()
            for dot in dots
            if not self._is_removed(dot, max(self._said[dot]))
        ),
    )


PAIRS: list[tuple[Law, Mutant]] = [
    (some_things, _faded_joins_stay),
    (some_things, _parted_joins_stay),
    (some_things, _late_news_stays),
    (one_name_by_many, _only_the_visible_is_named),
    (some_notes, _spent_when_hidden),
    (some_notes, _earlier_ones_of_one_origin_show),
]


@each_law(PAIRS)
def test_the_unbroken_protocol_holds(law: Law) -> None:
    law()


@each_mutant(PAIRS)
def test_the_mutant_is_found(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
