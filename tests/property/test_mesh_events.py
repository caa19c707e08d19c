"""User events in a mesh: said once, they come to all in order, over links that lose three frames in ten and more."""

import pytest

from swarmd_protocols.effects import UserEvent
from swarmd_protocols.swim import user_events
from swarmd_protocols.swim.event_claims import MESH_PATIENCE_NS, PATIENCE_NS
from tests.support.mesh_net import MeshNet, line
from tests.support.mutants import assert_found
from tests.support.swim_net import S

COUNT = 8
DRAWS = ((0.3, 1), (0.3, 2), (0.38, 1), (0.38, 6))
"""Loss and seed. With more loss half of all seeds give an event up where the patience is that of one hop."""


def told(net: MeshNet, since: int = 0) -> list[list[tuple[str, str]]]:
    """What each was told of others: whose, and what; in order."""
    found: list[list[tuple[str, str]]] = [[] for _ in net.hosts]
    for _, index, event in net.delivered()[since:]:
        found[index].append((event.origin_name, event.name))
    return found


def what_is_said_comes_to_everybody() -> None:
    for loss, seed in DRAWS:
        net = MeshNet(COUNT, line(COUNT), seed, loss=loss)
        assert net.run_until(net.formed, 60) is not None
        net.run(10)
        since = len(net.delivered())
        for number in range(60):
            net.feed(number * 5 % COUNT, UserEvent(f"{number}", b""))
            net.run(2)
        net.run(MESH_PATIENCE_NS / S)
        for index, events in enumerate(told(net, since)):
            for origin in range(COUNT):
                said = [f"{number}" for number in range(60) if number * 5 % COUNT == origin]
                of_it = [name for member, name in events if member == f"n{origin:03d}"]
                assert of_it == said, f"loss {loss}, seed {seed}: {index} of {origin}"


def what_nobody_can_bring_is_not_awaited_for_ever() -> None:
    """An event that only its origin had, and has no more: what it says later comes when the patience is over."""
    net = MeshNet(4, line(4), 1)
    assert net.run_until(net.formed, 20) is not None
    net.run(10)
    since = len(net.delivered())
    net.relink(line(4) - {(0, 1)})
    net.feed(0, UserEvent("lost", b""))
    net.hosts[0].node._swim.events.logs[net.hosts[0].node.node].kept.clear()
    net.hosts[0].node._swim.events.unheard.heard(0, 1 << 62)
    net.hosts[0].node._core.queue.drop(("event", net.hosts[0].node.node, net.hosts[0].node._swim.events.own_event))
    net.run(0.2)
    net.relink(line(4))
    net.feed(0, UserEvent("later", b""))
    net.run(MESH_PATIENCE_NS / S - 5)
    assert all(not events for events in told(net, since)[1:]), "it may still come"
    net.run(10)
    assert all(events == [("n000", "later")] for events in told(net, since)[1:])


LAWS = [what_is_said_comes_to_everybody, what_nobody_can_bring_is_not_awaited_for_ever]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_events_in_a_mesh(law) -> None:  # type: ignore[no-untyped-def]
    law()


def who_waits_as_little_as_in_one_hop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(user_events, "MESH_PATIENCE_NS", PATIENCE_NS)


def what_is_missing_is_awaited_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(user_events, "MESH_PATIENCE_NS", 1 << 60)


MUTANTS = [
    (who_waits_as_little_as_in_one_hop, what_is_said_comes_to_everybody),
    (what_is_missing_is_awaited_for_ever, what_nobody_can_bring_is_not_awaited_for_ever),
]


@pytest.mark.parametrize(("mutant", "law"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
def test_the_mutant_is_caught(mutant, law, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    assert_found(mutant, law, monkeypatch)
