"""What is long is told a few at a time: the same rows in the same order, and whoever reads them may wait in between."""

import json
from itertools import chain
from types import SimpleNamespace

from swarmd.api.parts import encoded, whole
from swarmd.api.views import counters_answer
from swarmd.brain.in_parts import PartsOfViews
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import PART, SORTED_AT_ONCE
from swarmd_protocols.state.observations import Count, DefineCells
from swarmd_protocols.state.survey import CELLS_A_PART
from swarmd_protocols.state.vitals import COUNTS_A_PART, LOOKS_A_PART, Vitals
from swarmd_protocols.swim.rows import MEMBERS_A_PART
from tests.support.state_mesh import Mesh, detection
from tests.support.swim_net import Net

SIGHTINGS = 700
CELLS = tuple((f"cell-{n}", 5_000 * n, 0) for n in range(1_000))


def seeing() -> Mesh:
    """Two nodes, many objects of which some have two observers, and a survey."""
    mesh = Mesh(2, seed=7)
    mesh.run(2)
    for index in (0, 1):
        mesh.command(index, DefineCells(CELLS))
        for first in range(0, SIGHTINGS, 100):
            now_ns = mesh.members[index].local_ns(mesh.now_ns)
            things = range(first, min(SIGHTINGS, first + 100))
            mesh.see(index, *(detection(now_ns, n + 1, 1_000 * (n + index * SIGHTINGS // 2), 7 * n) for n in things))
            mesh.run(0.3)
    mesh.run_until(mesh.agree, 60)
    return mesh


def test_parts_are_the_whole_in_the_same_order_and_each_is_short():
    views = seeing().replicas[0].views
    objects, detections, cells = list(views.object_parts()), list(views.detection_parts()), list(views.cell_parts())
    assert list(chain.from_iterable(objects)) == views.objects()
    assert list(chain.from_iterable(detections)) == views.detections()
    assert list(chain.from_iterable(cells)) == views.cells()
    assert views.object_count() == len(views.objects()) > SIGHTINGS
    assert max(map(len, (*objects, *detections))) <= PART
    assert max(map(len, cells)) <= CELLS_A_PART < len(CELLS)


def test_counters_in_parts_are_all_counters_and_each_part_is_short():
    """Whoever made as many counters as may be; lives of a node are added up, and own counts are current."""
    vitals, expected = Vitals(), {}
    for n in range(300):
        for life in (1, 2):
            counters = {f"{'shared' if i else n}-{i}": n * life + i for i in range(0, 64, 3)}
            vitals.take_counters(NodeId(n.to_bytes(16, "big")), life, counters)
            for name, value in counters.items():
                by = expected.setdefault(name, {})
                by[NodeId(n.to_bytes(16, "big"))] = by.get(NodeId(n.to_bytes(16, "big")), 0) + value
    parts = list(vitals.counter_parts(["own"]))
    assert {name: by for part in parts for name, by in part.items()} == {**expected, "own": {}}
    assert [name for part in parts for name in part] == sorted([*expected, "own"])
    largest = max(map(len, expected.values()))
    assert max(sum(1 + len(by) for by in part.values()) for part in parts) <= COUNTS_A_PART + largest
    assert max(map(len, parts)) * 600 <= LOOKS_A_PART + 600
    assert sum(not part for part in parts) >= 600 // 64, "names are gathered a few lives at a time"


def test_counters_tell_own_counts_as_they_are_and_others_as_they_said():
    mesh = Mesh(2, seed=7)
    mesh.run(2)
    for index in (0, 1):
        mesh.command(index, Count((("seen", 3 + index),)))
    mesh.run_until(lambda: mesh.replicas[0].views.counter_sums().get("seen") == 7, 60)
    mesh.command(0, Count((("seen", 1),)))
    views = mesh.replicas[0].views
    told = counters_answer(PartsOfViews(SimpleNamespace(names=dict), views))
    assert json.loads("".join(encoded(told))) == whole(
        counters_answer(PartsOfViews(SimpleNamespace(names=dict), views))
    )
    told = whole(counters_answer(PartsOfViews(SimpleNamespace(names=dict), views)))
    assert told["sums"]["seen"] == sum(told["by_node"]["seen"].values()) == 8
    assert views.counters()["seen"] == {mesh.members[0].node: 4, mesh.members[1].node: 4}


def test_sorting_is_shared_out_too():
    views = seeing().replicas[0].views
    held = views.health()["sightings"]
    empty = sum(not part for part in views.object_parts())
    assert empty >= held // SORTED_AT_ONCE, "a reader gets its turn between two sorts"


def test_what_goes_between_two_parts_is_left_out_and_nothing_is_told_twice():
    mesh = seeing()
    views, parts = mesh.replicas[0].views, mesh.replicas[0].views.object_parts()
    first = list(chain.from_iterable(part for part, _ in zip(parts, range(8), strict=False)))
    assert first
    before = {one.object_id for one in views.objects()}
    mesh.run(DedupConfig().ttl_ms / 1_000 + 60)
    after = {one.object_id for one in views.objects()}
    assert after < before, "some were forgotten meanwhile"
    rest = list(chain.from_iterable(parts))
    assert {one.object_id for one in rest} <= after
    assert not {one.object_id for one in rest} & {one.object_id for one in first}


def test_members_are_told_in_parts_by_name():
    net = Net(MEMBERS_A_PART + 6, seed=3)
    net.run(20)
    node = net.hosts[0].node
    parts = list(node.member_parts())
    assert len(parts) == 2
    assert max(map(len, parts)) <= MEMBERS_A_PART
    assert list(chain.from_iterable(parts)) == node.members()
    assert node.names() == {row.node: row.name for row in node.members()}
    assert [row.name for row in node.members()] == sorted(row.name for row in node.members())
