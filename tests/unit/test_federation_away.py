"""A region that is away for eight hours of virtual time: the outbox is bounded, catches up, and nothing is lost."""

import random
from pathlib import Path

from swarmd_protocols.federation.flow import WINDOW_BYTES
from tests.support.federation_world import make_world

THINGS = 900
"""Words of eight hours here, one in 32 s; each of them a thing of its own, so that none replaces another."""


def test_eight_hours_without_a_region_are_caught_up(tmp_path: Path) -> None:
    world = make_world(tmp_path, random.Random(1), swarms=1, gateways=1)
    [gateway] = world.swarms[0].gateways
    world.cut = {0, 1}
    for thing in range(THINGS):
        gateway.say(thing, 500)
        world.pump(32_000)
    assert len(gateway.outbox) >= THINGS
    per_word = gateway.outbox.size_bytes / THINGS
    assert per_word < 700, "8 h of an object a second are 20 MB in the outbox"
    world.settle()
    world.check()
    world.close()


def test_a_certificate_that_is_asked_for_overtakes_a_full_window(tmp_path: Path) -> None:
    """Rows that wait for a certificate fill the window: the certificate, last in line, must not wait behind them."""
    world = make_world(tmp_path, random.Random(1), swarms=1, gateways=1)
    [gateway] = world.swarms[0].gateways
    world.settle()
    for thing in range(THINGS):
        gateway.say(thing, 500)
    assert gateway.outbox.size_bytes > WINDOW_BYTES
    world.settle(60)
    world.check()
    world.close()


def test_what_changes_while_the_region_is_away_is_said_once(tmp_path: Path) -> None:
    world = make_world(tmp_path, random.Random(1), swarms=1, gateways=1)
    [gateway] = world.swarms[0].gateways
    world.cut = {0, 1}
    for score in range(300, 600):
        gateway.say(1, score)
    assert len(gateway.outbox) <= 2
    world.settle()
    world.check()
    world.close()
