"""A node that reports as many things as it may: what fits is reported, what does not is counted and named."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import Alarm
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt.facts import Sighting
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.own import OwnSightings
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.observations import LocalDetection, Observed
from tests.support.state_mesh import Mesh, detection

MOST = 5
CONFIG = DedupConfig(sightings_max=MOST)


def _own() -> OwnSightings:
    return OwnSightings(NodeId(bytes(16)), CONFIG, DedupView(CONFIG))


def _seen(frame: int, thing: int, kind: str = "new", score: int = 800) -> LocalDetection:
    """One of things 30 m apart, whose track bears its number."""
    return detection(frame, thing, east_cm=3000 * thing, score=score, kind=kind)


frames = st.lists(
    st.lists(
        st.tuples(st.integers(1, 12), st.sampled_from(["new", "update", "end"]), st.integers(100, 999)),
        unique_by=lambda one: one[0],
        max_size=12,
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(frames)
def test_what_fits_of_a_frame_is_reported_and_the_rest_is_counted(frames: list[list[tuple[int, str, int]]]) -> None:
    """Beside a model: things in the order in which they came, until there are as many as may be."""
    own, known, left_out = _own(), {}, 0
    for number, frame in enumerate(frames, 1):
        seen = [_seen(number, thing, kind, score) for thing, kind, score in frame]
        keys = own.observe(seen, 1, lambda captured_ns: captured_ns << 16)
        for thing, kind, score in frame:
            if thing in known:
                known[thing] = max(known[thing], score)
            elif kind != "end" and len(known) < MOST:
                known[thing] = score
            elif kind != "end":
                left_out += 1
        held = {register.row.east_cm // 3000: register.row.score_milli for register in own.registers.values()}
        assert set(held) == set(known)
        assert all(held[thing] <= known[thing] for thing in held), "an ended track feeds nothing more"
        assert len(keys) <= len(seen)
        assert own.left_out.count == left_out
        assert len(own.fed) <= sum(map(len, frames))


def test_a_thing_that_is_known_is_improved_while_there_is_no_room() -> None:
    own = _own()
    own.observe([_seen(1, thing) for thing in range(1, MOST + 1)], 1, lambda at: at << 16)
    changed = own.observe([_seen(2, 9), _seen(2, 3, "update", 950), _seen(2, 8)], 1, lambda at: at << 16)
    assert [own.registers[key].row.score_milli for key in changed] == [950]
    rows, _ = own.to_say(changed, frozenset())
    assert [row.score_milli for row in rows] == [950], "what fits is said"
    assert own.left_out.count == 2
    news = own.left_out.news()
    assert "hot-spot at 270.0 m east, 0.0 m north, hot-spot at 240.0 m east" in news
    own.observe([_seen(3, 9)], 1, lambda at: at << 16)
    assert own.left_out.news() == "", "said once"
    own.forget(changed[0])
    own.observe([_seen(4, 8), _seen(4, 9)], 1, lambda at: at << 16)
    assert "hot-spot at 270.0 m east" in own.left_out.news(), "there was room since: it is news again"


def test_a_journal_of_a_wider_bound_is_restored_whole() -> None:
    wide = OwnSightings(NodeId(bytes(16)), DedupConfig(), DedupView(CONFIG))
    wide.observe([_seen(1, thing) for thing in range(1, MOST + 4)], 1, lambda at: at << 16)
    own = _own()
    for register in wide.registers.values():
        own.restore(register.row)
    assert len(own.registers) == MOST + 3
    own.observe([_seen(2, 11)], 2, lambda at: at << 16)
    assert (len(own.registers), own.left_out.count) == (MOST + 3, 1)


@pytest.mark.parametrize("many", [8, 40])
def test_a_swarm_hears_what_fits_and_a_person_what_does_not(many: int) -> None:
    mesh = Mesh(2, config=ReplicaConfig(dedup=CONFIG))
    mesh.run(3)
    effects = mesh.members[0].replica.on_command(  # type: ignore[union-attr]
        Observed(tuple(_seen(mesh.now_ns, thing) for thing in range(1, many + 1))), mesh.now_ns
    )
    [alarm] = [effect for effect in effects if isinstance(effect, Alarm)]
    assert alarm.code == "sightings-full"
    assert f"and {many - MOST - 3} more" in alarm.text or many == MOST + 3
    mesh.run(8)
    for replica in mesh.replicas:
        assert len(replica.views.objects()) == MOST
    assert mesh.replicas[0].views.left_out() == {"": many - MOST}
    assert all(isinstance(register.row, Sighting) for register in mesh.replicas[0]._projection.own.registers.values())
