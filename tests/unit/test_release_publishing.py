"""What a desk hands to its node: all of it counts, or nothing."""

import pytest

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.errors import StateError
from swarmd_protocols.releases.messages import Push, encode_message
from swarmd_protocols.releases.statements import Heartbeat
from tests.support.release_world import World


def test_what_is_published_beside_a_bad_statement_is_not_held():
    """It was neither written nor said: held all the same, it would be gone after a restart."""
    world = World(1, crypto=ModelCrypto())
    good = world.keys.sign("heartbeat", Heartbeat(1, 1).payload(), "heartbeat")
    bad = world.keys.sign("heartbeat", Heartbeat(1, 2).payload(), "release")
    with pytest.raises(StateError, match="not published"):
        world.publish(0, [good, bad])
    world.run(60)
    assert not world.nodes[0].statements.entries
    assert world.nodes[0].view.heartbeat == (0, 0)


def test_what_is_published_takes_what_it_replaces_out_of_the_journal():
    """A desk that publishes a heartbeat each day would fill its disk in a life of years."""
    world = World(1, crypto=ModelCrypto())
    for number in range(1, 6):
        world.publish(0, [world.keys.sign("heartbeat", Heartbeat(1, number).payload(), "heartbeat")])
    assert sum(key.startswith(b"releases/s/") for key in world.journals[0]) == 1


def test_what_is_replaced_as_it_comes_is_not_left_in_the_journal():
    """All in one push, or published at once: a stolen key would fill the disks of the fleet with its heartbeats."""
    world = World(2, crypto=ModelCrypto())
    for batch in range(3):
        numbers = range(10 * batch + 1, 10 * batch + 11)
        beats = [world.keys.sign("heartbeat", Heartbeat(1, number).payload(), "heartbeat") for number in numbers]
        push = encode_message(Push((), tuple(one.encode() for one in beats), ()))
        world.perform(0, world.nodes[0].on_message(world.ids[1], push, world.now))
        world.publish(1, beats)
        world.run(10)
    for at in range(2):
        assert world.nodes[at].view.heartbeat == (1, 30)
        written = {key: value for key, value in world.journals[at].items() if key.startswith(b"releases/s/")}
        assert written == {
            b"releases/s/" + digest: entry.envelope.encode()
            for digest, entry in world.nodes[at].statements.entries.items()
        }
