"""What is long is told a few at a time: the same rows in the same order, and whoever reads them may wait in between."""

from itertools import chain

from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import PART, SORTED_AT_ONCE
from swarmd_protocols.state.observations import DefineCells
from swarmd_protocols.state.survey import CELLS_A_PART
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
