"""Who is dismissed, against members that write notes: nobody beyond one life, nobody unnamed, at no cost to others."""

import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.brain.dismissals import dismiss, dismissed
from swarmd_protocols.effects import MemberState
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.notes import NoteMap
from swarmd_protocols.state.observations import SetNote
from swarmd_protocols.summary import MemberView
from swarmd_protocols.swim.rules import BOOT_SHIFT
from tests.support.state_mesh import Mesh

LIAR, HONEST, SUBJECT = 0, 1, 2
NODES = [NodeId(bytes([number]) * 16) for number in range(3)]
KEYS = ("a", "b")


def failed(mesh: Mesh, incarnation: int, state: MemberState = MemberState.FAILED) -> MemberView:
    node = mesh.members[SUBJECT].node
    return MemberView(node, "c", "10.0.0.3:7946", state, incarnation, None, 0.0, "none", (), "1", "", {})


def hidden(mesh: Mesh, *members: MemberView) -> dict[NodeId, NodeId]:
    replica = mesh.members[HONEST].replica
    assert replica is not None
    return dismissed(members, replica.views.note)


def values(incarnation: int) -> st.SearchStrategy[bytes]:
    near = st.integers(incarnation - 2, incarnation + (2 << BOOT_SHIFT)).map(
        lambda number: str(max(0, number)).encode()
    )
    huge = st.sampled_from([b"9" * 19, b"9" * 20, b"9" * 512, str(2**63 - 1).encode(), b"-1", b"", b"x", "²".encode()])
    return near | huge | st.binary(max_size=24)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 2**40), st.integers(0, 50), st.integers(1, 3))
def test_law_a_liar_hides_nobody_for_longer_than_a_life_and_is_named(
    data: st.DataObject, boot: int, refutations: int, lives: int
) -> None:
    mesh = Mesh(3)
    incarnation = (boot << BOOT_SHIFT) + refutations
    key = "forget/" + mesh.members[SUBJECT].node.hex()
    life = 0
    for value in data.draw(st.lists(values(incarnation), min_size=1, max_size=3)):
        mesh.command(LIAR, SetNote(key, value))
        mesh.run(3)
        if value.isdigit():
            life = int(value) >> BOOT_SHIFT
    later = failed(mesh, incarnation + (lives << BOOT_SHIFT))
    gone = hidden(mesh, later)
    assert not gone or life == boot + lives, "a note for one life hides another"
    assert set(gone.values()) <= {mesh.members[LIAR].node}, "who wrote it is named"
    assert not hidden(mesh, failed(mesh, incarnation, MemberState.ALIVE)), "who lives is listed"


def test_a_note_for_a_life_to_come_hides_nobody() -> None:
    """The largest number that a liar can write is of another life than the one that failed."""
    mesh = Mesh(3)
    incarnation = 5 << BOOT_SHIFT
    mesh.command(LIAR, SetNote("forget/" + mesh.members[SUBJECT].node.hex(), str((9 << BOOT_SHIFT) + 1).encode()))
    mesh.run(3)
    assert not hidden(mesh, failed(mesh, incarnation))


def test_an_operator_dismisses_one_failure_everywhere() -> None:
    mesh = Mesh(3)
    member = failed(mesh, (7 << BOOT_SHIFT) + 3)
    mesh.command(LIAR, dismiss(member))
    mesh.run(3)
    assert hidden(mesh, member) == {member.node: mesh.members[LIAR].node}
    assert not hidden(mesh, failed(mesh, (7 << BOOT_SHIFT) + 4)), "it was back, and failed anew"
    assert not hidden(mesh, failed(mesh, 8 << BOOT_SHIFT))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 3), st.sampled_from(KEYS)), max_size=40))
def test_a_key_looked_at_alone_shows_what_all_keys_show(steps: list[tuple[int, int, int, str]]) -> None:
    notes = NoteMap()
    for who, serial, what, key in steps:
        dot, value = (NODES[who], 1, serial), b"v%d" % (serial % 2)
        match what:
            case 0 | 1:
                notes.put(dot, key, value, serial << 16)
            case 2:
                notes.unput(dot, key, value, serial << 16)
            case _:
                notes.remove(dot, (serial + 1) << 16)
    shown = notes.values()
    for key in KEYS:
        newest = notes.newest(key)
        assert (None if newest is None else newest[0]) == shown.get(key)
        assert notes.dots_of(key) == tuple(sorted(dot for dot, put in notes._visible() if put.key == key))


def look_costs(others: int) -> int:
    """Calls that one look at who is dismissed takes, where a member has written so many other notes."""
    notes = NoteMap()
    for serial in range(others):
        notes.put((NODES[0], 1, serial), f"forget/{serial:032x}", b"9" * 19, serial)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    mesh = Mesh(3)
    sys.setprofile(count)
    try:
        dismissed([failed(mesh, 1 << BOOT_SHIFT)], notes.newest)
    finally:
        sys.setprofile(None)
    return calls


def test_law_what_others_write_makes_no_look_dearer() -> None:
    assert look_costs(5_000) <= 2 * look_costs(5)
