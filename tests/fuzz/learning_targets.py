"""Fuzz target of learning in the swarm: what a member says about it."""

import contextlib
from collections.abc import Callable

from swarmd_protocols.errors import WireError
from swarmd_protocols.learning.form import Session, open_delta
from swarmd_protocols.learning.messages import Give, Have, Row, encode
from tests.support.learning_world import SESSION, World


def corpus() -> list[bytes]:
    """One of each."""
    world = World(3)
    deltas = tuple(world.delta(1, number, [(0, 5), (3, -7), (20, 127)]) for number in (2, 3))
    rows = tuple(Row(one.id, 5, 7, one.index == 2) for one in world.members)
    have = encode(Have(SESSION.id, True, rows))
    return [*deltas, encode(Give(deltas)), have, world.members[0].learning.summary()]


def at_a_member() -> Callable[[bytes], None]:
    """Bytes as a delta, as a message and as a summary: nobody says anything in another's name."""
    world = World(3)
    one, other, third = world.members

    def read(data: bytes) -> None:
        with contextlib.suppress(WireError):
            open_delta(data)
        world.now_ns += 1_000_000_000
        one.learning.on_message(other.id, data, world.now_ns)
        one.learning.on_summary(other.id, data[:16], world.now_ns)
        book = one.learning._book
        assert book is not None
        assert not book.of(third.id)
        assert isinstance(book.session, Session)

    return read
