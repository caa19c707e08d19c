"""Whoever was off while keys changed comes back, or says why it does not: laws over histories of a real fleet's folder.

A history replaces role keys (planned or stolen), draws group keys, renews certificates, revokes nodes and has nodes go
and come, in any order; everything that is signed is handed to one running member. In the end all run:

- A node whose certificate counts sees every other such node alive, and holds the newest group key.
- A node that is out knows why, is nobody's member, and never learns a group key that came after it was revoked.
"""

from random import Random

import pytest

from swarmd.identity.renewal import due, renew
from swarmd_protocols.ids import NodeId
from tests.support.fleet_net import ALIVE, FleetNet, fleet_folder
from tests.support.tiers import few_fast

NODES = 4
STEPS = 12
UNTOLD = 0.3
"""Share of what is signed that waits for a later push."""
ACTS = (
    *("enrol", "enrol", "revoke keys", "stolen", "rotate", "renew", "renew", "renew one", "revoke"),
    *("off", "off", "off", "on", "on without its journal", "restart", "restart", "restart"),
)
SETTLE_S = 150
"""Seconds of virtual time: ten rounds of greeting a seed, each with one lesson, and as much again for a lost member."""


def act(net: FleetNet, rng: Random, off: set[int], out: dict[int, int]) -> str:
    fleet = net.fleet
    name = rng.choice(ACTS)
    running = [index for index in range(NODES) if index not in off and index not in out]
    match name:
        case "enrol":
            fleet.change_role("enrol", 1, 1)
        case "revoke keys":
            fleet.change_role("revoke", 1, 1)
        case "stolen":
            fleet.change_role("enrol", 1, 1, stolen=True)
        case "rotate":
            fleet.rotate("farm")
        case "renew":
            list(renew(fleet, "farm", due(fleet, "farm")))
        case "renew one":
            list(renew(fleet, "farm", due(fleet, "farm")[:1]))
        case "revoke" if len(running) > 2 and len(out) < 1:
            thief = rng.choice([index for index in range(1, NODES) if index not in out])
            fleet.revoke("farm", [net.identities[thief].node], f"stolen {thief}")
            fleet.rotate("farm")
            out[thief] = max(fleet.trust_of("farm").group_keys)
        case "off" if len(running) > 1:
            gone = rng.choice(running)
            net.kill(gone)
            off.add(gone)
            return f"{name} {gone}"
        case "on" | "on without its journal" if off:
            back = rng.choice(sorted(off))
            off.discard(back)
            net.restart(back, keep_journal=name == "on")
            return f"{name} {back}"
        case "restart":
            again = rng.choice(running)
            net.kill(again)
            net.restart(again)
            return f"{name} {again}"
        case _:
            return "nothing"
    here = [index for index in running if index not in out]
    if not here or rng.random() < UNTOLD:
        return f"{name}, and nobody is told yet"
    net.push(rng.choice(here))
    return name


@pytest.mark.parametrize("seed", few_fast([*range(12), 240], 3))
def test_whoever_was_off_comes_back_or_says_why(seed: int) -> None:
    rng = Random(seed)
    with fleet_folder() as fleet:
        net = FleetNet(fleet, [fleet.enrol(f"n{index:03d}", "farm") for index in range(NODES)])
        net.run(5)
        off: set[int] = set()
        out: dict[int, int] = {}
        story = []
        for _ in range(STEPS):
            story.append(act(net, rng, off, out))
            net.run(rng.choice([1, 5, 40]))
        net.push(next(index for index in range(NODES) if index not in off and index not in out))
        for index in sorted(off):
            net.restart(index)
        net.run(SETTLE_S)

        trust = fleet.trust_of("farm")
        right = [at for at in range(NODES) if trust.certified(NodeId(net.identities[at].node)) is not None]
        assert set(right) == set(range(NODES)) - set(out), story
        for index in range(NODES):
            told = net.hosts[index].node.trust()
            if index in out:
                assert told.why_out == f"revoked: stolen {index}", story
                assert max(net.trust(index).group_keys) < out[index], story
                continue
            assert told.why_out == "", story
            assert told.root == trust.root.version, story
            assert told.group_key == max(trust.group_keys), story
            seen = {other: net.seen(index, f"n{other:03d}") for other in range(NODES)}
            assert seen == {other: ALIVE if other in right else None for other in range(NODES)}, story


SOON_S = 1.5
"""Seconds in which whoever comes back is everybody's member: a few greetings, 300 ms apart."""


@pytest.mark.parametrize("keep_journal", [True, False])
@pytest.mark.parametrize("changes", [1, 3])
def test_whoever_was_off_while_keys_changed_is_let_in_within_seconds(changes: int, keep_journal: bool) -> None:
    """Its certificate still counts; of the new keys, and without its journal of its own last life, it knows nothing."""
    with fleet_folder() as fleet:
        net = FleetNet(fleet, [fleet.enrol(f"n{index:03d}", "farm") for index in range(NODES)])
        net.run(5)
        net.kill(3)
        for _ in range(changes):
            fleet.change_role("root", 1, 1)
            fleet.rotate("farm")
        net.push(1)
        net.run(5)
        net.restart(3, keep_journal=keep_journal)
        net.run(SOON_S)
        for index in range(NODES):
            assert {net.seen(index, f"n{other:03d}") for other in range(NODES)} == {ALIVE}, index
        assert net.hosts[3].node.trust().group_key == max(fleet.trust_of("farm").group_keys)
