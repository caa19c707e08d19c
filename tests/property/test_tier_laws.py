"""What candidates may do, and what not: laws of `dedup/tiers.py` and of the door to the outside (`api/faults.py`)."""

from collections.abc import Container, Iterator
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.api import faults, geojson
from swarmd.api.daemon import NodeInfo
from swarmd.api.faults import FaultGate
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.errors import WireError
from swarmd_protocols.federation import objects as federation
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt.columns import pack
from swarmd_protocols.state.crdt.facts import LATTICE, Facts, Join, Sighting, decode_facts, encode_facts
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.tiers import Witness, certainty_milli
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.observations import DetectionLearned, DetectionView, ObjectChanged, ObjectView
from swarmd_protocols.state.reviews import Reviews
from swarmd_protocols.state.shown import Shown
from tests.support.state_mesh import Mesh, detection

CONFIG = DedupConfig(confirm_observers=1)
NODES = [NodeId(bytes([n]) * 16) for n in range(1, 7)]
LIAR = NODES[0]
MODELS = (b"model--1", b"model--2", b"model--3")
S = 1 << 16


def row(score: int, need: int, n: int = 0, model: bytes = MODELS[0], first: int = 1, label: str = "a") -> Sighting:
    """A sighting of the one thing there is."""
    return Sighting(
        label, LATTICE, (n, 0), False, True, 10 * n, 0, (100, 0, 100), score, first * S, 99 * S, 1, model, (), b"", b"",
        need if need > score else 0,
    )  # fmt: skip


def shown(rows: dict[tuple[NodeId, int], Sighting], joins: dict[NodeId, tuple[NodeId, int]]) -> list[ObjectView]:
    """What everybody is shown of these rows and joins (author to the row that it has joined)."""
    view = DedupView(CONFIG)
    told = Shown(NODES[0], CONFIG, view, Reviews())
    for (node, n), one in rows.items():
        view.put(node, one, (1, n + 1))
    view.settle()
    for author, named in joins.items():
        told.take_join(author, (1, 9), Join(named[0], rows[named].key, S, 2 * S))
    return [change.view for change in told.tell(100)]


# --- Objects ---


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 999), st.integers(1, 1000), st.sampled_from(MODELS)), min_size=1, max_size=6),
    st.booleans(),
)
def test_law_candidates_of_one_author_never_make_a_fault(said: list[tuple[int, int, bytes]], is_joined: bool) -> None:
    """Its sightings, under any labels and models, and its joins on its own and on others' candidates."""
    rows = {
        (LIAR, n): row(min(score, need - 1), need, n, model, first=n + 1) for n, (score, need, model) in enumerate(said)
    }
    honest = {(NODES[1], 0): row(300, 980, 0)}
    joins = {LIAR: (NODES[1], 0)} if is_joined else {}
    for view in [*shown(rows, {}), *shown(honest, joins)]:
        assert not view.is_fault
        assert view.tier == "candidate"


def test_who_is_sure_decides_alone_and_what_the_others_say_stays_candidates() -> None:
    [view] = shown({(NODES[0], 0): row(700, 980), (NODES[1], 1): row(600, 0, 1)}, {})
    assert (view.tier, view.is_fault, view.score_milli, len(view.observers)) == ("confirmed", True, 600, 2)
    [view] = shown({(NODES[0], 0): row(700, 980)}, {NODES[1]: (NODES[0], 0)})
    assert (view.tier, view.is_fault) == ("candidate", False)
    assert view.evidence_milli == certainty_milli(700, 980, CONFIG.prior_milli)


# --- The wire ---


def test_a_body_without_candidates_has_the_bytes_it_had_and_one_with_them_comes_back() -> None:
    sure, unsure = row(900, 0, 1), row(500, 968, 2)
    old = encode_facts(Facts([sure]))
    assert decode_facts(old).sightings == [sure]
    assert len(msgspec.msgpack.decode(old)) == 5
    mixed = encode_facts(Facts([sure, unsure]))
    assert decode_facts(mixed).sightings == [sure, unsure]
    parts = msgspec.msgpack.decode(mixed)
    assert len(msgspec.msgpack.encode(parts[8])) <= 8, "a few bytes"
    measured = unsure._replace(alike=(960, 900))
    said = encode_facts(Facts([sure, measured]))
    assert decode_facts(said).sightings == [sure, measured]
    longer = msgspec.msgpack.decode(said)
    assert longer[:9] == parts, "who reads no correlations reads the rest"
    for columns in ([b"\xff\xff\xff"], [parts[8], b"\xff\xff\xff"], [parts[8], pack([0, 0, 1001, 0])]):
        with pytest.raises(WireError):
            decode_facts(msgspec.msgpack.encode([*parts[:8], *columns]))
    assert decode_facts(msgspec.msgpack.encode([*parts, pack([5, 5, 960, 900])])).sightings == [sure, measured]


# --- The door ---


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, str, int]]:
    """As the state tells of objects: new, updates, and gone."""
    alive: set[str] = set()
    told = []
    for name, evidence, is_gone in draw(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1000), st.booleans()), max_size=30)
    ):
        kind = "new" if name not in alive else "expired" if is_gone else "update"
        (alive.discard if kind == "expired" else alive.add)(name)
        told.append((kind, name, evidence))
    return told


def object_view(name: str, evidence: int, review: str = "") -> ObjectView:
    return ObjectView(
        name, "a", 500, 0, 0, (1, 0, 1), "", (NODES[0],), 1, 2, evidence >= 1000, 1, review, "", (), b"", evidence
    )


def heard(events: list[tuple[str, str, int]], listed: Container[str] = ()) -> Iterator[ObjectChanged]:
    """What a listener is told of this history; evidence of 900 and more counts as sure."""
    gate = FaultGate(listed)
    for kind, name, evidence in events:
        view = object_view(name, 1000 if evidence >= 900 else evidence)
        passed = gate.pass_on(StateChanged("state", ObjectChanged(kind, view, "")))
        if passed is not None:
            assert isinstance(passed, StateChanged)
            assert isinstance(passed.detail, ObjectChanged)
            yield passed.detail


@settings(max_examples=300, deadline=None)
@given(histories())
def test_law_the_outside_holds_no_candidate(events: list[tuple[str, str, int]]) -> None:
    """Whoever keeps what is new or updated, and drops what expired, never holds what was a candidate last."""
    held: dict[str, ObjectView] = {}
    last: dict[str, int] = {}
    told = list(heard(events))
    for change in told:
        if change.kind in ("new", "update"):
            assert change.view.is_fault
            held[change.view.object_id] = change.view
        else:
            held.pop(change.view.object_id, None)
    for kind, name, evidence in events:
        last[name] = evidence if kind in ("new", "update") else 0
    assert all(last[name] >= 900 for name in held)


@settings(max_examples=300, deadline=None)
@given(histories(), st.integers(0, 20), st.sets(st.sampled_from("abc")))
def test_law_who_comes_late_is_told_of_candidates_only_what_it_knew(
    events: list[tuple[str, str, int]], late: int, listed: set[str]
) -> None:
    """Nothing is taken back that was neither told nor listed: to say `expired` would tell all of a candidate."""
    known = set(listed)
    for change in heard(events[late:], listed):
        assert change.view.is_fault or change.view.object_id in known
        known.add(change.view.object_id)


def test_a_listener_that_comes_late_hears_nothing_of_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that begins in the middle, a bridge that was started again, a crowd that pushes names out."""
    assert not list(heard([("update", "a", 500), ("expired", "a", 500)]))
    assert not list(heard([("expired", "a", 500)]))
    assert [one.kind for one in heard([("update", "a", 500), ("update", "a", 500)], {"a"})] == ["expired"]
    monkeypatch.setattr(faults, "HIDDEN_MAX", 2)
    crowd = [("new", name, 500) for name in "abc"]
    assert not list(heard([*crowd, ("update", "a", 600), ("expired", "b", 600)]))


def test_what_becomes_a_fault_is_new_and_what_ceases_to_be_one_is_taken_back() -> None:
    events = [("new", "a", 500), ("update", "a", 600), ("update", "a", 950), ("update", "a", 960), ("update", "a", 10)]
    assert [change.kind for change in heard([*events, ("expired", "a", 10)])] == ["new", "update", "expired"]
    confirmed = StateChanged("state", ObjectChanged("update", object_view("a", 500, "confirmed"), ""))
    assert FaultGate().pass_on(confirmed) == confirmed, "a person has said so"


def sighting_view(score: int, need: int) -> DetectionView:
    return DetectionView(NODES[1], "obj", "a", score, 0, 0, (1, 0, 1), "", False, 1, 2, 1, b"", "a|0|(0, 0)", b"", need)


sighting_words = st.lists(st.tuples(st.sampled_from(["new", "update", "end"]), st.booleans()), max_size=20)


@settings(max_examples=300, deadline=None)
@given(sighting_words, st.booleans())
def test_law_the_outside_holds_no_sighting_of_which_its_author_is_not_sure(
    events: list[tuple[str, bool]], is_listed: bool
) -> None:
    """Whoever keeps what is new or updated, and drops what ended; nothing is ended that it was never told of."""
    name = sighting_view(900, 0).detection_id
    gate, held, known = FaultGate({name} if is_listed else ()), is_listed, is_listed
    for kind, is_sure in events:
        view = sighting_view(900, 0) if is_sure else sighting_view(500, 968)
        passed = gate.pass_on(StateChanged("state", DetectionLearned(view, kind)))
        if passed is not None:
            assert isinstance(passed, StateChanged)
            assert isinstance(passed.detail, DetectionLearned)
            assert passed.detail.kind == "end" or is_sure
            assert known or is_sure, "a candidate that it never knew is none of its business"
            held, known = passed.detail.kind != "end", True
        assert not held or (is_sure and kind != "end")


def test_a_sighting_that_its_author_later_calls_a_candidate_ends_outside() -> None:
    """As GeoJSON over MQTT, and in what is listed beside it."""
    gate, sure, unsure = FaultGate(), sighting_view(900, 0), sighting_view(500, 968)
    told = [
        gate.pass_on(StateChanged("state", DetectionLearned(view, "update"))) for view in (sure, unsure, unsure, sure)
    ]
    kinds = [one.detail.kind for one in told if isinstance(one, StateChanged)]  # type: ignore[union-attr]
    assert kinds == ["update", "end", "new"]
    assert told[2] is None
    info = NodeInfo(NODES[0], "n", "s", "1", 52.0, 13.0, "", "", ())
    assert isinstance(told[1], StateChanged)
    assert isinstance(told[1].detail, DetectionLearned)
    assert geojson.detection_feature(told[1].detail, info, "n")["properties"]["event"] == "end"  # type: ignore[index]


# --- One node's own word ---


def test_a_candidate_is_said_once_until_it_is_surer_and_a_sure_look_is_said_beside_it() -> None:
    mesh = Mesh(2, config=ReplicaConfig(dedup=CONFIG))
    mesh.run(3)

    def see(index: int, score: int, kind: str = "update") -> None:
        mesh.see(index, replace(detection(mesh.now_ns, score=score, kind=kind), need_milli=968))

    see(0, 500, "new")
    mesh.run(5)
    for replica in mesh.replicas:
        [view] = replica.views.objects()
        assert (view.tier, view.is_fault, len(view.observers)) == ("candidate", False, 1)
    heard = len(mesh.members[1].details)
    for _ in range(6):
        mesh.run(12)
        see(0, 505)
    mesh.run(3)
    told = [one for one in mesh.members[1].details[heard:] if isinstance(one, DetectionLearned)]
    assert not told, "a refresh every ten seconds is for what somebody is sure of"
    see(1, 980, "new")
    mesh.run(5)
    for replica in mesh.replicas:
        [view] = replica.views.objects()
        assert (view.tier, view.observers) == ("confirmed", tuple(sorted(one.node for one in mesh.members)))


def test_candidates_leave_half_of_what_a_node_reports_to_what_is_sure() -> None:
    mesh = Mesh(1, config=ReplicaConfig(dedup=DedupConfig(sightings_max=8)))
    mesh.run(3)
    for track in range(1, 9):
        mesh.see(0, replace(detection(mesh.now_ns, track, east_cm=500 * track, score=500), need_milli=968))
    for track in range(11, 15):
        mesh.see(0, detection(mesh.now_ns, track, east_cm=500 * track, score=990))
    mesh.run(3)
    faults = [view.is_fault for view in mesh.replicas[0].views.objects()]
    assert (faults.count(True), len(faults)) == (4, 8)


def test_a_sure_thing_stays_sure() -> None:
    """Later looks that see less take nothing back: of an author the surest look counts."""
    mesh = Mesh(1, config=ReplicaConfig(dedup=CONFIG))
    mesh.run(3)
    for score, need, sigma in ((500, 968, 20), (700, 600, 20), (650, 968, 5)):
        look = detection(mesh.now_ns, score=score, kind="new" if score == 500 else "update", sigma_cm=sigma)
        mesh.see(0, replace(look, need_milli=need))
        mesh.run(3)
    [view] = mesh.replicas[0].views.objects()
    assert (view.tier, view.score_milli) == ("confirmed", 700)


def test_who_joined_what_became_a_candidate_says_its_own() -> None:
    """Else an author could be sure, have others join, take its word back by half, and leave nobody who is sure."""
    mesh = Mesh(2, config=ReplicaConfig(dedup=CONFIG))
    mesh.run(3)
    mesh.see(0, detection(mesh.now_ns, score=980, sigma_cm=5))
    mesh.run(3)
    mesh.see(1, detection(mesh.now_ns, score=980, sigma_cm=50))
    mesh.run(3)
    view, own = mesh.replicas[1]._projection.view, mesh.replicas[1]._projection.own
    [entry] = view.all()
    assert entry.origin == mesh.members[0].node, "it has joined"
    view.put(entry.origin, entry.row._replace(score_milli=500, need_milli=968), (1 << 40, 1))
    now_ms = mesh.replicas[1].clock.physical_ms(mesh.members[1].local_ns(mesh.now_ns))
    own.leaning.row_changed(entry.origin, entry.key)
    assert [fact.key for fact in mesh.replicas[1]._projection.orphans(now_ms) if isinstance(fact, Sighting)] == [
        entry.key
    ]


# --- Above ---


def test_a_region_calls_no_candidate_confirmed() -> None:
    said = [Witness(NODES[0], 900, MODELS[0])]
    found = federation.Derived(
        bytes(8), 1, "a", "", 500, None, None, None, "", (NODES[0],), 1, 2, 1, "", (), (), (), b"", said
    )
    assert found.tier(1) == "candidate"
    assert found._replace(witnesses=[Witness(NODES[0], 1000, b"")]).tier(1) == "confirmed"
