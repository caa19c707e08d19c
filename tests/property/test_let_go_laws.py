"""What an author has let go of takes nothing with it that still counts, and brings nothing back that does not."""

import msgspec

from swarmd_protocols.state.crdt.facts import Done
from swarmd_protocols.state.crdt.journal_keys import OTHERS_PREFIX
from swarmd_protocols.state.crdt.note_rows import NoteDot
from swarmd_protocols.state.crdt.notes import NoteMap
from swarmd_protocols.state.crdt.ownlog import FactId
from swarmd_protocols.state.observations import SetNote
from swarmd_protocols.state.replica import Replica, ReplicaConfig
from swarmd_protocols.state.spent_notes import SPENT_NS, SpentNotes
from tests.support.state_mesh import Mesh, S, detection

DEFAULT = ReplicaConfig()
CONFIG = msgspec.structs.replace(
    DEFAULT, slack_rows=2, dedup=msgspec.structs.replace(DEFAULT.dedup, ttl_ms=60_000)
)
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


def test_a_join_of_what_is_gone_goes_after_a_restart_too() -> None:
    mesh = Mesh(5, config=CONFIG)
    index = _joined(mesh)
    mesh.run(90)
    _say(mesh, 0, 3, 20)
    assert not _replica(mesh, index)._projection.view.count, "their authors have written their logs anew"
    assert not _joins(mesh, index)
    _again(mesh, index)
    assert _joins(mesh, index), "it had not"
    mesh.run(150)
    assert not _joins(mesh, index)
