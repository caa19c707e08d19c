"""What an author has let go of takes nothing with it that still counts, and brings nothing back that does not."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch
from swarmd_protocols.state.crdt.facts import Done, NotePut, NoteRemoval, decode_facts
from swarmd_protocols.state.crdt.journal_keys import OTHERS_PREFIX
from swarmd_protocols.state.crdt.log import OriginLog
from swarmd_protocols.state.crdt.note_rows import NoteDot
from swarmd_protocols.state.crdt.notes import NoteMap
from swarmd_protocols.state.crdt.ownlog import Fact, FactId, OwnLog, facts_of
from swarmd_protocols.state.observations import SetNote
from swarmd_protocols.state.projection import Projection
from swarmd_protocols.state.replica import Replica, ReplicaConfig
from swarmd_protocols.state.spent_notes import SPENT_NS, SpentNotes
from tests.support.mutants import assert_found
from tests.support.state_mesh import Mesh, S, detection

DEFAULT = ReplicaConfig()
CONFIG = msgspec.structs.replace(DEFAULT, slack_rows=2, dedup=msgspec.structs.replace(DEFAULT.dedup, ttl_ms=60_000))
LONGER_S = 1.2 * SPENT_NS / S


def _replica(mesh: Mesh, index: int) -> Replica:
    replica = mesh.members[index].replica
    assert replica is not None
    return replica


def _say(mesh: Mesh, index: int, rows: int, times: int = 1) -> None:
    """Facts that replace each other: the log is written anew before long."""
    for time in range(times):
        author = _replica(mesh, index)._author
        author.pending += [Done(bytes([number]) * 6, time) for number in range(rows)]
        mesh.run(0.5)


def _see(mesh: Mesh, index: int) -> None:
    member = mesh.members[index]
    mesh.see(index, detection(member.local_ns(mesh.now_ns), sigma_cm=50 if index else 5))


def _notes(mesh: Mesh) -> list[dict[str, bytes]]:
    return [replica.views.notes() for replica in mesh.replicas]


def test_a_put_that_was_said_again_does_not_outlive_the_one_that_replaced_it() -> None:
    mesh = Mesh(2, config=CONFIG)
    mesh.run(5)
    author = _replica(mesh, 0)._author
    for time, value in enumerate((b"one", b"two")):
        author.pending += [Done(bytes([number]) * 6, time) for number in range(5)]
        mesh.command(0, SetNote("gate", value))
    mesh.run(1)
    for time, rows in ((2, 5), (3, 1)):
        author.pending += [Done(bytes([number]) * 6, time) for number in range(rows)]
        mesh.run(5)
    assert author.log._live[3, author.incarnation, 1] > author.log._live[3, author.incarnation, 2], "said again"
    mesh.command(1, SetNote("gate", b"three"))
    mesh.run(LONGER_S)
    for time in range(40):
        author.pending.append(Done(bytes(6), 4 + time))
        mesh.run(5)
        assert _notes(mesh) == [{"gate": b"three"}] * 2
        assert all(len(replica._projection.notes.dots_of("gate")) == 1 for replica in mesh.replicas)
    assert len(author.log._live) == 5


def test_a_note_shows_again_for_good_when_who_wrote_over_it_is_shut_out() -> None:
    mesh = Mesh(3, config=CONFIG)
    mesh.run(5)
    mesh.command(0, SetNote("gate", b"closed"))
    mesh.run(5)
    mesh.command(2, SetNote("gate", b"open"))
    mesh.run(LONGER_S + 10)
    mesh.revoke(mesh.members[2])
    mesh.run(10)
    for _ in range(20):
        assert _notes(mesh)[:2] == [{"gate": b"closed"}] * 2, "it may go before, and not after it has shown"
        _say(mesh, 0, 3)


def test_a_removal_stays_while_what_it_removes_has_no_certificate() -> None:
    mesh = Mesh(3, config=CONFIG)
    mesh.run(5)
    mesh.command(0, SetNote("gate", b"closed"))
    mesh.run(5)
    mesh.command(1, SetNote("gate", b""))
    mesh.run(5)
    mesh.crash(0)
    mesh.rotate_enrol(re_sign=False)
    mesh.run(LONGER_S)
    mesh.re_sign()
    mesh.run(5)
    for index in (1, 2):
        _say(mesh, index, 3, 20)
    mesh.boot(0)
    mesh.run(10)
    assert _notes(mesh) == [{}] * 3


def test_a_removal_stays_where_the_journal_lacks_what_it_removes() -> None:
    mesh = Mesh(2, config=CONFIG)
    mesh.run(5)
    mesh.command(0, SetNote("gate", b"closed"))
    mesh.run(5)
    mesh.partition(lambda index: index)
    mesh.command(1, SetNote("gate", b""))
    mesh.crash(1)
    disk = mesh.members[1].disk
    for key in [key for key in disk if key.startswith(OTHERS_PREFIX)]:
        del disk[key]
    mesh.boot(1)
    mesh.run(LONGER_S)
    _say(mesh, 1, 3, 20)
    mesh.partition(lambda index: 0)
    mesh.run(10)
    assert _notes(mesh) == [{}] * 2


def test_a_note_that_is_set_aside_for_the_future_is_not_let_go_of() -> None:
    mesh = Mesh(3, config=CONFIG, wall=True)
    mesh.run(5)
    mesh.crash(0)
    mesh.wrong_wall_ns[0] = 600 * S
    mesh.partition(lambda index: index // 2)  # Two cannot set a clock.
    mesh.boot(0)
    mesh.command(0, SetNote("gate", b"closed"))
    mesh.run(1)
    mesh.crash(0, lose_disk=True)
    mesh.wrong_wall_ns[0] = 0
    mesh.boot(0)
    mesh.run(LONGER_S)
    assert _notes(mesh) == [{}] * 3, "it lies in the future for everybody"
    _say(mesh, 0, 3, 20)
    mesh.partition(lambda index: 0)
    mesh.run(700)
    assert _notes(mesh) == [{"gate": b"closed"}] * 3


def test_a_key_that_many_have_written_keeps_its_size() -> None:
    notes, node = NoteMap(), bytes(16)
    notes.whole = [bytes([index]) * 16 for index in range(25)]
    spent = SpentNotes(node, notes)
    living: dict[FactId, tuple[NoteDot, tuple[NoteDot, ...], int]] = {}
    stamp = 0
    for index in range(1, 25):
        stamp += 1
        dot, removes = (bytes([index]) * 16, 1, 1), notes.replaced_by("gate")
        notes.put(dot, "gate", b"x", stamp, removes)
        for removed in removes:
            notes.remove(removed, stamp, dot)
    for serial in range(1, 80):
        stamp += 1
        dot, removes = (node, 1, serial), notes.replaced_by("gate")
        notes.put(dot, "gate", b"x", stamp, removes)
        for removed in removes:
            notes.remove(removed, stamp, dot)
        living[3, 1, serial] = dot, removes, stamp
        for name in spent.due(list(living), serial * SPENT_NS):
            dot, removes, said = living.pop(name)
            notes.unput(dot, "gate", b"x", said)
            for removed in removes:
                notes.unremove(removed, said, dot)
    assert len(living) <= 12, "one for each that the names have no room for"
    assert notes.dots_of("gate") == ((node, 1, 79),)


def _joined(mesh: Mesh) -> int:
    """One sees a thing well, and another one joins it."""
    mesh.run(70)  # A life as long as things are shown is sure of its clock.
    for index in (0, 1):
        _see(mesh, index)
        mesh.run(2)
    assert _joins(mesh, 1)
    return 1


def _joins(mesh: Mesh, index: int) -> list[FactId]:
    return [name for name in _replica(mesh, index)._author.log._live if name[0] == 1]


def _again(mesh: Mesh, index: int) -> None:
    mesh.crash(index)
    mesh.run(1)
    mesh.boot(index)


def test_who_has_joined_stays_an_observer_of_what_comes_back() -> None:
    dedup = msgspec.structs.replace(DEFAULT.dedup, ttl_ms=120_000)
    mesh = Mesh(5, config=msgspec.structs.replace(CONFIG, dedup=dedup))
    index = _joined(mesh)
    _again(mesh, index)
    mesh.run(30)
    node = mesh.members[index].node
    assert all(node in replica.views.objects()[0].observers for replica in mesh.replicas)
    assert _replica(mesh, index).clock.is_sure(mesh.members[index].local_ns(mesh.now_ns))
    mesh.rotate_enrol(re_sign=False)
    mesh.run(8)
    mesh.re_sign()
    mesh.run(5)
    _say(mesh, index, 3, 20)
    assert all(node in replica.views.objects()[0].observers for replica in mesh.replicas)


class _Unsigned:
    """Nobody reads what stands where signatures do."""

    def sign(self, message: bytes) -> bytes:
        return bytes(64)

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        return True


class _Writer:
    """A log, what is held of those of others, and the notes that these make."""

    def __init__(self, number: int, slack_rows: int) -> None:
        self.node, self._slack_rows = NodeId(bytes([number]) * 16), slack_rows
        self._held: dict[NodeId, OriginLog] = {}
        self._projection = Projection(NodeId(bytes(16)), CONFIG)
        self.notes = self._projection.notes
        self.notes.whole = [bytes([other]) * 16 for other in range(9)]
        self.incarnation = 0
        self.boot()

    def boot(self) -> None:
        self.incarnation += 1
        self.serial = 0
        self.log = OwnLog(self.node, self.incarnation, _Unsigned(), self._slack_rows)
        self.log.may_clean = True
        for batch in self.held().values():
            if batch.origin == self.node:
                self.log.adopt(batch, facts_of(decode_facts(batch.body)))
        self._spent = SpentNotes(self.node, self.notes)

    def held(self) -> dict[bytes, Batch]:
        return {batch.digest: batch for log in self._held.values() for batch in log.batches()}

    def take(self, batch: Batch) -> None:
        if batch.digest in self.held():
            return
        _, dropped = self._held.setdefault(batch.origin, OriginLog(batch.origin)).add(batch, 1 << 40)
        for old in dropped:
            self._projection.drop(old)
        if batch.digest in self.held():
            self._projection.take(batch, decode_facts(batch.body), 0)
        self._projection.work()

    def let_go(self, now_ns: int) -> None:
        self.log.spend(self._spent.due(self.log.notes(), now_ns))


class _Told:
    """What was written, by whom, and what of it each writer saw and replaced: nothing of it is let go of."""

    def __init__(self) -> None:
        self._latest: dict[bytes, NoteDot] = {}
        self._removed: dict[NoteDot, None] = {}
        self.stamp = 0

    def tick(self) -> int:
        self.stamp += 1
        return self.stamp << 16

    def write(self, writer: _Writer, is_removal: bool) -> list[Fact]:
        self._removed.update(dict.fromkeys(writer.notes.dots_of("gate")))
        removes, stamp = writer.notes.replaced_by("gate"), self.tick()
        if is_removal:
            return [NoteRemoval("gate", removes)] if removes else []
        writer.serial += 1
        self._latest[writer.node] = writer.node, writer.incarnation, writer.serial
        return [NotePut(writer.incarnation, writer.serial, stamp, "gate", b"%d" % stamp, removes)]

    @property
    def visible(self) -> tuple[NoteDot, ...]:
        return tuple(sorted(dot for dot in self._latest.values() if dot not in self._removed))


def only_what_counts_shows(seed: int) -> None:
    """In any order of writing, hearing, idling, restarts and cleaning, equal batches show what nobody has replaced."""
    rng = random.Random(seed)
    slack_rows = rng.randrange(2, 7)
    writers = [_Writer(number, slack_rows) for number in range(1, rng.randrange(3, 6))]
    told, awake, now_ns = _Told(), writers, 0
    for step in range(120):
        if step % 40 == 0:
            awake = rng.sample(writers, rng.randrange(1, len(writers) + 1))
        writer, what = rng.choice(writers if step % 40 < 4 else awake), rng.random()
        if what < 0.5:
            facts = told.write(writer, rng.random() < 0.2) if what < 0.3 else []
            facts += [Done(bytes([rng.randrange(5)] * 6), step) for _ in range(rng.choice((0, 2, 5)))]
            for batch in writer.log.append(facts, told.tick):
                writer.take(batch)
        elif what < 0.8:
            heard = list(rng.choice(writers).held().values())
            for batch in rng.sample(heard, rng.randrange(len(heard) + 1)):
                writer.take(batch)
        elif what < 0.83:
            writer.boot()
        else:
            everything = list({name: batch for one in writers for name, batch in one.held().items()}.values())
            for one in writers:
                for batch in rng.sample(everything, len(everything)):
                    one.take(batch)
            for _ in range(2):
                now_ns += rng.choice((SPENT_NS // 2, SPENT_NS))
                for one in writers:
                    one.let_go(now_ns)
            assert all(one.held().keys() == writers[0].held().keys() for one in writers)
            assert all(one.notes.dots_of("gate") == told.visible for one in writers), (seed, step)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 32))
def test_law_only_what_counts_shows(seed: int) -> None:
    only_what_counts_shows(seed)


def some_writers() -> None:
    for seed in range(60):
        only_what_counts_shows(seed)


def test_two_that_rest_on_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def stays_hidden(self: NoteMap, dot: NoteDot, without: object) -> bool:
        return dot not in self._said or self._is_outdone(dot) or len(self._removed.get(dot, ())) > 1

    assert_found(lambda patch: patch.setattr(NoteMap, "_stays_hidden", stays_hidden), some_writers, monkeypatch)


def test_a_latest_that_goes_before_earlier_ones_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(
        lambda patch: patch.setattr(NoteMap, "_hides_earlier", lambda *_: False),
        test_a_put_that_was_said_again_does_not_outlive_the_one_that_replaced_it,
        monkeypatch,
    )
