"""Another judge's word on a candidate, which may change: laws of `dedup/judged.py`, over nodes that talk."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.api.faults import FaultGate
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt.facts import LATTICE, Sighting
from swarmd_protocols.state.crdt.ownlog import fact_id
from swarmd_protocols.state.dedup import judged
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.observations import Judged, ObjectChanged, ObjectView
from swarmd_protocols.state.reviews import Reviews
from swarmd_protocols.state.shown import Shown
from tests.support.state_mesh import Mesh, detection

CONFIG = DedupConfig(confirm_observers=1)
MODEL = b"judge--1"
NODES = [NodeId(bytes([n]) * 16) for n in range(1, 7)]
S = 1 << 16


def candidate(node_score: int, config: DedupConfig = CONFIG) -> Mesh:
    """Three nodes; the first has seen something of which it is not sure."""
    mesh = Mesh(3, config=ReplicaConfig(dedup=config))
    mesh.run(3)
    mesh.see(0, replace(detection(mesh.now_ns, score=node_score), need_milli=968))
    mesh.run(5)
    return mesh


def views(mesh: Mesh) -> list[ObjectView]:
    """The one object as each node has it: all the same."""
    found = [one for replica in mesh.replicas for one in replica.views.objects()]
    assert len(found) == 3
    assert found[0] == found[1] == found[2]
    return found


def say(mesh: Mesh, index: int, score: int, need: int = 900, model: bytes = MODEL) -> None:
    [view] = mesh.replicas[index].views.objects()
    mesh.command(index, Judged(view.object_id, score, need, model))
    mesh.run(5)


def test_a_judge_confirms_with_the_author_changes_its_mind_and_withdraws() -> None:
    mesh = candidate(955)
    assert not views(mesh)[0].is_fault
    said = []
    for score in (990, 300, 950, 0):
        say(mesh, 1, score)
        view = views(mesh)[0]
        said.append((view.is_fault, len(view.observers), view.reports, view.score_milli))
    assert said == [(True, 1, 1, 955), (False, 1, 1, 955), (True, 1, 1, 955), (False, 1, 1, 955)]


def test_what_a_judge_no_longer_says_ends_outside() -> None:
    mesh = candidate(955)
    gate, kinds = FaultGate(), []
    heard = len(mesh.members[2].details)
    for score in (990, 0):
        say(mesh, 1, score)
    for detail in mesh.members[2].details[heard:]:
        if isinstance(detail, ObjectChanged):
            passed = gate.pass_on(StateChanged("state", detail))
            kinds += [passed.detail.kind] if isinstance(passed, StateChanged) else []  # type: ignore[union-attr]
    assert kinds[-1] == "expired"
    assert len(kinds) >= 2


@pytest.mark.parametrize("is_policy", [False, True])
def test_a_judge_alone_confirms_only_where_policy_says_so(is_policy: bool) -> None:
    mesh = candidate(100, DedupConfig(confirm_observers=1, judge_confirms=is_policy))
    say(mesh, 1, 1000, 1)
    assert views(mesh)[0].is_fault == is_policy
    assert (views(mesh)[0].tier == "confirmed") == is_policy


def test_the_model_that_has_seen_it_is_no_other_judge_and_nothing_else_can_be_judged() -> None:
    mesh = candidate(955)
    [seen] = mesh.replicas[0]._projection.own.registers.values()
    with pytest.raises(StateError, match="seen it itself"):
        say(mesh, 0, 990, model=seen.row.model)
    with pytest.raises(StateError, match="nobody sees it"):
        mesh.command(1, Judged("0" * 16, 990, 900, MODEL))
    for wrong in (Judged("x", 1001, 900, MODEL), Judged("x", 5, 0, MODEL), Judged("x", 5, 5, b"short")):
        with pytest.raises(StateError, match=r"what is needed 1 to 1000|8 bytes"):
            mesh.command(1, wrong)


@pytest.mark.parametrize("asset", ["", "panel-7"])
def test_who_has_seen_it_may_have_another_model_judge_it_and_is_still_one_author(asset: str) -> None:
    """With the policy it confirms as its author's own sure look would; it may fall again, and be withdrawn."""
    for is_policy, observers in ((False, 1), (True, 1), (True, 2)):
        mesh = Mesh(3, config=ReplicaConfig(dedup=DedupConfig(confirm_observers=observers, judge_confirms=is_policy)))
        mesh.run(3)
        mesh.see(0, replace(detection(mesh.now_ns, score=955), need_milli=968, asset=asset))
        mesh.run(5)
        said = []
        for score in (990, 300, 950, 0):
            say(mesh, 0, score)
            view = views(mesh)[0]
            said.append((view.tier, len(view.observers), view.reports, view.score_milli, view.asset))
        first = "confirmed" if is_policy and observers == 1 else "candidate"
        assert said == [(tier, 1, 1, 955, asset) for tier in (first, "candidate", first, "candidate")]
        assert len(mesh.replicas[0]._projection._judged) == 1, "one verdict, whatever it said"
        mesh.see(0, replace(detection(mesh.now_ns, score=960), need_milli=968, asset=asset))
        mesh.run(5)
        assert len(views(mesh)[0].observers) == 1


def test_a_verdict_is_about_the_thing_that_was_judged_or_is_not_said() -> None:
    """Its look has a place that is another thing's: a place so poor that it fits both."""
    mesh = Mesh(3, config=ReplicaConfig(dedup=CONFIG))
    mesh.run(3)
    far = replace(detection(mesh.now_ns, 1, east_cm=0, score=700), need_milli=968, asset="panel-1")
    off = replace(detection(mesh.now_ns, 2, east_cm=300, score=700), need_milli=968, asset="panel-2")
    again = replace(detection(mesh.now_ns, 3, east_cm=300, score=800), need_milli=968, asset="panel-1")
    mesh.see(0, far, off)
    mesh.run(5)
    mesh.see(1, again)
    mesh.run(5)
    [thing] = [one for one in mesh.replicas[1].views.objects() if one.asset == "panel-1"]
    with pytest.raises(StateError, match="another thing is nearer"):
        mesh.command(1, Judged(thing.object_id, 990, 900, MODEL))


def test_two_verdicts_that_turn_out_to_be_of_one_thing_become_one() -> None:
    """A node judged two things; they turn out to be one: the next verdict takes the other back."""
    view = DedupView(CONFIG)
    rows = [view.put(NODES[1], seen(s, 990, 0, n), (1, n)) for s, n in ((950, 1), (900, 2))]
    members = [one for one in (view.put(NODES[0], seen(700, 900), (1, 9)), *rows) if one is not None]
    verdicts = members[1:]
    assert len(verdicts) == 2
    row = judged.verdict_on(members, NODES[1], Judged("x", 300, 900, MODEL), CONFIG)
    taken = judged.withdrawn(members, NODES[1], row)
    assert row.key == verdicts[0].row.key
    assert [(one.key, one.score_milli) for one in taken] == [(verdicts[1].row.key, 0)]


def test_verdicts_of_one_node_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "JUDGED_MAX", 1)
    mesh = Mesh(2, config=ReplicaConfig(dedup=CONFIG))
    mesh.run(3)
    for track in (1, 2):
        mesh.see(0, replace(detection(mesh.now_ns, track, east_cm=900 * track, score=700), need_milli=968))
    mesh.run(5)
    one, other = mesh.replicas[1].views.objects()
    mesh.command(1, Judged(one.object_id, 800, 900, MODEL))
    mesh.command(1, Judged(one.object_id, 700, 900, MODEL))
    with pytest.raises(StateError, match="verdicts on 1 things"):
        mesh.command(1, Judged(other.object_id, 800, 900, MODEL))


def test_a_verdict_goes_with_what_it_is_about() -> None:
    """The author takes its word back, or is shut out: who has judged it says nothing more, and has room again."""
    mesh = candidate(955)
    say(mesh, 1, 990)
    judge, projection = mesh.replicas[1], mesh.replicas[1]._projection
    assert len(projection._judged) == 1
    author = mesh.members[0].node
    [seen] = [entry for entry in projection.view.all() if entry.origin == author]
    projection.view.remove(author, seen.key)
    mesh.run(10)
    assert not judge.views.objects()
    [verdict] = projection.view.all()
    physical_ms = judge.clock.physical_ms(mesh.members[1].local_ns(mesh.now_ns))
    assert projection.expire(physical_ms, is_sure=True) == [fact_id(verdict.row)]
    assert not projection._judged


# --- Whatever a hostile judge writes into its rows ---


def shown(rows: list[tuple[NodeId, Sighting]]) -> list[ObjectView]:
    view = DedupView(CONFIG)
    told = Shown(NODES[0], CONFIG, view, Reviews())
    for at, (node, row) in enumerate(rows):
        view.put(node, row, (1, at + 1))
    view.settle()
    return [change.view for change in told.tell(100)]


def seen(score: int, need: int, reports: int = 1, n: int = 0, model: bytes = b"model--1") -> Sighting:
    return Sighting(
        "a", LATTICE, (n, 0), False, True, 10 * n, 0, (100, 0, 100), score, (1 + n) * S, 99 * S, reports, model, (),
        b"", b"", need if need > score else 0,
    )  # fmt: skip


verdicts = st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from([b"judge--1", b"judge--2", b""]))


@settings(max_examples=200, deadline=None)
@given(st.lists(verdicts, min_size=1, max_size=5), st.integers(0, 900))
def test_law_verdicts_of_one_judge_confirm_no_doubtful_thing(said: list[tuple[int, int, bytes]], score: int) -> None:
    """By its rows alone, whatever models and certainty they claim, and however many there are."""
    hostile = [(NODES[1], seen(s, need, 0, 1 + at, model)) for at, (s, need, model) in enumerate(said)]
    assert not shown(hostile), "what nobody has seen is nothing"
    for rows in (hostile, [(NODES[0], seen(score, 999)), *hostile]):
        for view in shown(rows):
            assert not view.is_fault
            assert NODES[1] not in view.observers


@settings(max_examples=200, deadline=None)
@given(st.lists(verdicts, max_size=3), st.integers(0, 1000), st.integers(1, 1000))
def test_law_a_verdict_takes_nothing_away(said: list[tuple[int, int, bytes]], score: int, need: int) -> None:
    """Neither what others say together, nor that somebody is sure, nor a place."""
    honest = [(NODES[0], seen(score, need))]
    hostile = [(NODES[1 + at], seen(s, n, 0, 1 + at, model)) for at, (s, n, model) in enumerate(said)]
    [before] = shown(honest)
    found = shown([*honest, *hostile])
    after = next(view for view in found if view.observers)
    assert after.evidence_milli >= before.evidence_milli
    assert (after.is_fault, after.observers) == (before.is_fault or after.evidence_milli >= 1000, before.observers)
    assert (after.east_cm, after.covariance_cm2) == (before.east_cm, before.covariance_cm2)


def test_a_verdict_that_leads_gives_neither_a_picture_nor_a_time_nor_a_score() -> None:
    """A liar's claims to be older than what it is about: the object has its name, and nothing else of it."""
    honest = NODES[0], seen(700, 900, n=4)
    liar = NODES[1], seen(950, 990, 0)._replace(thumb=b"t" * 16, last=98 * S)
    [before], [after] = shown([honest]), shown([honest, liar])
    assert after.object_id != before.object_id
    assert (after.thumb, after.first_hlc, after.last_hlc) == (b"", before.first_hlc, before.last_hlc)
    assert (after.score_milli, after.label, after.reports) == (before.score_milli, before.label, before.reports)
