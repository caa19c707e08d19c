"""What a node remembers of its peers' pauses, and of the names that it tells: what is over takes no room."""

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state import record_names
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.facts import Facts
from swarmd_protocols.state.crdt.messages import ID_BYTES, LASTING, ROOM, Have, Recent
from swarmd_protocols.state.pauses import PAUSE_NS, PAUSES_MAX, Pauses
from swarmd_protocols.state.record_names import RecordNames
from tests.support.state_pen import pen_of

PEER = NodeId(b"\1" * 16)


def _paused(*authors):
    return Have(tuple((author, ((ROOM, 0, 0, b""),)) for author in authors), LASTING, False, 0)


def test_pauses_that_are_over_take_no_room():
    pauses, authors = Pauses(), [NodeId(bytes([number, 7]) + bytes(14)) for number in range(PAUSES_MAX + 1)]
    pauses.note(PEER, _paused(*authors[:-1]), 0)
    pauses.note(PEER, _paused(authors[-1]), PAUSE_NS - 1)
    assert pauses.takes(PEER, authors[-1], PAUSE_NS - 1), "there is no room for one more"
    pauses.note(PEER, _paused(authors[-1]), PAUSE_NS + 1)
    assert not pauses.takes(PEER, authors[-1], PAUSE_NS + 1)
    assert pauses.takes(PEER, authors[0], PAUSE_NS + 1)


def test_a_newer_record_takes_the_place_of_the_one_before_also_where_nothing_else_has_room(monkeypatch):
    monkeypatch.setattr(record_names, "_HELD_MAX", 1)
    names, pen = RecordNames(), pen_of(1)
    older, newer, other = pen.write(Facts()), pen.write(Facts()), pen_of(2).write(Facts())
    for batch in (older, newer, other):
        names.add(batch)
    (told,) = names.riders(1_000, frozenset(), 0)
    assert messages.decode(told) == Recent(newer.digest[:ID_BYTES])
