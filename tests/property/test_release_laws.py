"""The version state is a join-semilattice and what it makes of statements does not depend on how they arrived."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases import rollout, versions
from swarmd_protocols.releases.reports import Report, ReportBook, SignedReport, Verdict
from swarmd_protocols.releases.statements import Floor, Halt, Heartbeat, Revoke, Rollout
from swarmd_protocols.trust.envelopes import Envelope, key_id, signed_bytes
from tests.support.release_world import MODEL, Keys, make_release

CRYPTO = ModelCrypto()
KEYS = Keys("laws", CRYPTO)
CHAIN = KEYS.chain()


def _pool() -> list[Envelope]:
    made: list[Envelope] = []
    previous = b""
    for version in range(1, 7):
        envelope = KEYS.sign("release", make_release(bytes([version]) * 50, version, previous).payload(), "release")
        made.append(envelope)
        previous = envelope.digest
    made.append(KEYS.sign("release", make_release(b"fork" * 20, 3, made[1].digest).payload(), "release"))
    made.append(KEYS.sign("release", make_release(b"third" * 20, 3, made[1].digest).payload(), "release"))
    made.append(KEYS.sign("release", make_release(b"leap" * 20, 40, b"x" * 32).payload(), "release", 3))
    made += [KEYS.sign("floor", Floor(MODEL, 1, version).payload(), "floor") for version in (1, 2, 4)]
    made += [KEYS.sign("model-revoke", Revoke(MODEL, 1, one.digest).payload(), "revoke") for one in made[3:6]]
    made += [KEYS.sign("halt", Halt(MODEL, 1, one.digest).payload(), "revoke") for one in made[4:6]]
    made += [KEYS.sign("heartbeat", Heartbeat(1, sequence).payload(), "heartbeat") for sequence in (1, 2, 9)]
    two, three = made[1], KEYS.sign("release", made[1].payload, "release", 3)
    return [*made, Envelope(two.kind, two.payload, three.signatures[1:])]


POOL = [versions.admit(envelope, CHAIN) for envelope in _pool()]
picks = st.lists(st.integers(0, len(POOL) - 1), max_size=14)


def state_of(indexes: list[int]) -> dict[bytes, versions.Entry]:
    state: dict[bytes, versions.Entry] = {}
    for index in indexes:
        state = versions.join(state, {POOL[index].envelope.digest: POOL[index]})
    return state


@settings(max_examples=120, deadline=None)
@given(picks, picks, picks)
def test_join_laws(one: list[int], other: list[int], third: list[int]) -> None:
    a, b, c = state_of(one), state_of(other), state_of(third)
    assert versions.join(a, b) == versions.join(b, a)
    assert versions.join(versions.join(a, b), c) == versions.join(a, versions.join(b, c))
    assert versions.join(a, a) == a


@settings(max_examples=120, deadline=None)
@given(picks, st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(indexes: list[int], rng: random.Random) -> None:
    again = [*indexes, *indexes]
    rng.shuffle(again)
    one, other = state_of(indexes), state_of(again)
    assert one == other
    views = [versions.view_of(state, CHAIN) for state in (one, other)]
    assert versions.desired(views[0], MODEL) == versions.desired(views[1], MODEL)
    assert versions.summary_of(views[0], 1, []) == versions.summary_of(views[1], 1, [])


@settings(max_examples=120, deadline=None)
@given(picks)
def test_whatever_is_desired_is_admissible(indexes: list[int]) -> None:
    view = versions.view_of(state_of(indexes), CHAIN)
    found = versions.desired(view, MODEL)
    if found is None:
        return
    digest, release = found
    model = view.models[MODEL]
    assert versions.refusal(digest, release, model, None) is None
    better = [one for one in model.releases.items() if one[1].order > release.order]
    assert all(versions.refusal(*one, model, None) is not None for one in better)


@settings(max_examples=60, deadline=None)
@given(st.lists(picks, min_size=1, max_size=6))
def test_the_floor_never_goes_down(steps: list[list[int]]) -> None:
    state: dict[bytes, versions.Entry] = {}
    floor = (0, 0)
    for step in steps:
        state = versions.join(state, state_of(step))
        model = versions.view_of(state, CHAIN).models.get(MODEL)
        now = model.floor.order if model and model.floor else (0, 0)
        assert now >= floor
        floor = now


def test_pruning_is_bounded_and_commutes() -> None:
    many = {}
    for version in range(1, 120):
        envelope = KEYS.sign("release", make_release(bytes([version]) * 9, version, b"p" * 32).payload(), "release")
        many[envelope.digest] = versions.admit(envelope, CHAIN)
    items = list(many.items())
    rng = random.Random(4)
    for _ in range(10):
        rng.shuffle(items)
        half = len(items) // 2
        joined = versions.join(versions.prune(dict(items[:half])), versions.prune(dict(items[half:])))
        assert joined == versions.prune(many)
        assert len(joined) == versions.MAX_RELEASES


def signed_report(node: int, sequence: int, verdict: Verdict) -> SignedReport:
    seed = bytes([node]) * 32
    public = CRYPTO.public_key(seed)
    report = Report(public, MODEL, sequence, b"", 0, 0, "idle", b"r" * 32, verdict, 1, 1, "")
    payload = report.payload()
    signature = CRYPTO.sign(seed, signed_bytes("health", payload))
    return SignedReport(Envelope("health", payload, ((key_id(public), signature),)), report)


reports = st.lists(
    st.builds(signed_report, st.integers(1, 5), st.integers(1, 4), st.sampled_from(list(Verdict))), max_size=20
)


@settings(max_examples=120, deadline=None)
@given(reports, st.randoms(use_true_random=False))
def test_reports_converge_whatever_the_order(said: list[SignedReport], rng: random.Random) -> None:
    one, other = ReportBook(), ReportBook()
    for report in said:
        one.add(report, {b"r" * 32})
    again = [*said, *said]
    rng.shuffle(again)
    for report in again:
        other.add(report, {b"r" * 32})
    assert one.statuses == other.statuses
    assert one.votes == other.votes


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.data())
def test_halt_wins_and_counts_only_grow(count: int, data: st.DataObject) -> None:
    nodes = [NodeId(bytes([index]) * 16) for index in range(count)]
    rules = Rollout((5, 25, 100), 2, data.draw(st.integers(0, 2)))
    verdicts: dict[NodeId, Verdict] = {}
    stage = 0
    for node in data.draw(st.permutations(nodes)):
        verdict = data.draw(st.sampled_from(list(Verdict)))
        before = verdicts.get(node, Verdict.NONE)
        verdicts[node] = max(before, verdict)
        now = rollout.standing(b"d" * 32, rules, nodes, verdicts)
        if now.halted:
            assert sum(one is Verdict.FAIL for one in verdicts.values()) >= min(count, max(2, rules.max_fails + 1))
            assert not now.promoted
            assert not rollout.may_try(now, 0, 1 << 60, 1)
        if verdict is not Verdict.FAIL:
            assert now.stage >= stage or now.halted
        stage = now.stage


@pytest.mark.parametrize("count", [1, 2, 3, 8, 20, 50, 1_000])
def test_every_fleet_has_canaries(count: int) -> None:
    assert rollout.cohort_size(5, count) >= min(2, count)
    assert rollout.cohort_size(100, count) == count
    assert 1 <= rollout.passes_needed(rollout.cohort_size(5, count), Rollout()) <= count
