"""Two islands that have never met and a mule between them end with one digest, and nobody is called failed falsely.

A mule is a member as any other: what it keeps of each author is bounded, the oldest beyond that goes, and it says so.
"""

from collections.abc import Mapping

import msgspec
import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Dot
from swarmd_protocols.state.crdt.log import OriginLog
from swarmd_protocols.state.replica import Replica
from swarmd_protocols.swim.full_view import FullView
from swarmd_protocols.swim.mesh.mesh_view import MeshView
from swarmd_sim.run.host import Host
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation

NODES, MULE = 5, 4
SMALL = 14_000
"""Memory that one author's facts may take, bytes: six of some twenty batches that each says."""
ONE_BATCH = 4_000
"""Above what the cheapest batch beyond the bound takes; the newest is kept whatever it costs."""


def rules_broken(seed: int) -> tuple[set[str], dict[str, object]]:
    """Of a run with two nodes on each island, whose work ends before the last three crossings."""
    result = Simulation(load_scenario("mesh-mule", {"swarm.nodes": NODES}), seed, Options(script=[])).run()
    return {violation.rule for violation in result.violations}, result.figures


def test_a_mule_carries_facts_and_events_between_islands_that_never_met() -> None:
    rules, figures = rules_broken(1)
    assert rules == set()
    assert figures["false_positives"] == 0
    assert figures["detections"]
    assert float(str(figures["bytes_per_node_s"])) <= 2_000


def test_where_no_stranger_is_greeted_the_islands_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for view in (FullView, MeshView):
        monkeypatch.setattr(view, "on_beacon", lambda self, message, source: None)
    assert "state.detection_lost" in rules_broken(1)[0]


def bounded_run(small: frozenset[int]) -> tuple[Simulation, list[Replica], set[str]]:
    """Such a run in which these nodes have little room for each author. Clocks agree, so that nothing is said again."""
    swarm = Simulation(
        load_scenario("mesh-mule", {"swarm.nodes": NODES, "device.wall_offset_s": 0.1}),
        1,
        Options(script=[], timeline=True),
    )
    maker = swarm.maker
    make, whole = maker.make, maker._state
    little = msgspec.structs.replace(whole, origin_cost_max=SMALL)

    def made(host: Host) -> object:
        maker._state = little if host.index in small else whole
        return make(host)

    maker.make = made  # type: ignore[method-assign,assignment]
    rules = {violation.rule for violation in swarm.run().violations}
    return swarm, [maker.replicas[index] for index in range(NODES)], rules


def said_by_all(swarm: Simulation, replicas: list[Replica]) -> dict[NodeId, int]:
    """Number of the last batch of each author, by its own log."""
    logs = {host.node_id: logs_of(replicas[host.index])[host.node_id] for host in swarm.hosts}
    return {node: max(n for _, n in log.facts) for node, log in logs.items()}


def logs_of(replica: Replica) -> Mapping[NodeId, OriginLog]:
    return replica._holdings.store.logs


def newest_are_kept_whole(replica: Replica, said: Mapping[NodeId, int]) -> None:
    """Of each author the newest, without a gap, up to the last, within the bound."""
    for origin, log in logs_of(replica).items():
        numbers = sorted(n for _, n in log.facts)
        assert numbers == list(range(numbers[0], said[origin] + 1)), f"gaps in {numbers}"
        assert log.cost <= SMALL + ONE_BATCH, f"{log.cost} B of one author"
        assert numbers[0] > 1, "nothing had to go"


def a_full_mule_says_what_it_let_go() -> None:
    """The mule alone has little room: it names each author and how many, and both islands keep what they had."""
    swarm, replicas, rules = bounded_run(frozenset({MULE}))
    said, mule = said_by_all(swarm, replicas), replicas[MULE]
    newest_are_kept_whole(mule, said)
    missing = {origin: min(n for _, n in log.facts) - 1 for origin, log in logs_of(mule).items()}
    assert mule.views.let_go_of() == missing
    assert mule.views.health()["let_go"] == sum(missing.values())
    alarms = [text for _, _, text in swarm.watch.timeline if "alarm state-full" in text]
    assert all(any(origin.hex() in text for text in alarms) for origin in missing), alarms
    # A mule that holds half loses nobody else's words, and brings no piece of anything that is not its author's.
    for host in swarm.hosts[:MULE]:
        logs = logs_of(replicas[host.index])
        assert len(logs[host.node_id].facts) == said[host.node_id]
        assert not replicas[host.index].views.let_go_of()
        own = {node: held_by(replicas[at.index], node) for at in swarm.hosts if (node := at.node_id) != mule_of(swarm)}
        for origin, whole in own.items():
            assert held_by(replicas[host.index], origin).items() <= whole.items()
    assert rules == {"state.detection_lost"}, "what it let go before it had crossed is at one island only"


def mule_of(swarm: Simulation) -> NodeId:
    return swarm.hosts[MULE].node_id


def held_by(replica: Replica, origin: NodeId) -> dict[Dot, bytes]:
    return {dot: batch.raw for dot, batch in logs_of(replica)[origin].facts.items()}


def where_all_have_little_room_all_end_with_one_digest() -> None:
    """Bounds are part of the join: the same newest batches of each author stay everywhere."""
    swarm, replicas, _ = bounded_run(frozenset(range(NODES)))
    said = said_by_all(swarm, replicas)
    for replica in replicas:
        newest_are_kept_whole(replica, said)
    assert len({replica.views.digest() for replica in replicas}) == 1
    assert all(replica.views.let_go_of() for replica in replicas)


def test_a_mule_whose_room_is_used_up_says_whose_words_it_let_go_and_how_many() -> None:
    a_full_mule_says_what_it_let_go()


def test_islands_and_a_mule_with_little_room_end_with_one_digest_of_the_newest() -> None:
    where_all_have_little_room_all_end_with_one_digest()
