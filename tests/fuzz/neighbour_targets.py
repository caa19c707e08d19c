"""Fuzz targets of neighbouring swarms: what a stranger says to a gateway, and what members hand on of it."""

import contextlib
import random
from collections.abc import Callable

from swarmd_protocols.errors import WireError
from swarmd_protocols.neighbours import words
from swarmd_protocols.neighbours.messages import Give, Have, decode, encode
from tests.support.neighbour_world import World


def _agreed() -> World:
    """Two swarms that have agreed, said where they are and what they survey."""
    world = World(random.Random(1))
    world.agree("amber", "blue")
    world.agree("blue", "amber")
    for name in world.names:
        world.place(name)
        world.survey(name)
        world.want(name)
    world.run(20)
    return world


def corpus() -> list[bytes]:
    """One of each: statements, what members give each other of them, frames between gateways."""
    world = _agreed()
    amber, blue = (world.fleets[name] for name in world.names)
    gate = world.nodes["blue"][0]
    hearing = gate.hearing(amber)
    agreement = blue.agreement(amber, world.now_ms)
    introductions = tuple(one.introduction for one in hearing.gateways.values())
    give = Give((agreement,), introductions, (hearing.statement,))
    have = Have(((0, amber.key, 1), (2, amber.key, world.now_ms)))
    frames = [frame for _, frame in world.recorded[:12]]
    return [
        agreement,
        *introductions,
        hearing.statement,
        encode(give),
        encode(have),
        gate.neighbours.summary(),
        *frames,
    ]


def at_a_swarm() -> Callable[[bytes], None]:
    """Bytes as a frame at a gateway, as a message and a summary of a member, as a statement: none makes a neighbour."""
    world = _agreed()
    amber = world.fleets["amber"]
    gate, drone = world.nodes["amber"]

    def read(data: bytes) -> None:
        for reader in (words.read_agreement, words.read_introduction, words.read_word, decode):
            with contextlib.suppress(WireError):
                reader(data)
        world.now_ns += 1_000_000_000  # In each second some are read; the rest would only be counted.
        world.inject(amber.key, data)
        for node, other in ((gate, drone), (drone, gate)):
            node.neighbours.on_message(other.id, data, world.now_ns)
            node.neighbours.on_summary(other.id, data, world.now_ns)
            assert len(node.neighbours.hearings()) == 1
            assert len(node.hearing(world.fleets["blue"]).gateways) == 1

    return read
