"""What borrowing was worth in a run: answers, times beside a clairvoyant's, bytes beside an oracle's, hits, losses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swarmd_sim.run.choices import MILLION
from swarmd_sim.run.offload_device import Asked, answer_to
from swarmd_sim.run.offload_fleet import TRAFFIC, version_of
from swarmd_sim.run.offload_looks import JUDGES, UNITS, Looks, Seen
from swarmd_sim.run.offload_release import Rollout
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import OffloadSection
from swarmd_sim.world.belady import belady_hits
from swarmd_sim.world.judges import LARGEST, SMALL, Look, Wanted, accuracy, cheapest, mean_ap

_KEPT_MAX = 4_096
"""Answers that a device keeps: `CacheConfig.entries_max`."""
_ASKED_LEAST = 5
"""A second in which fewer were asked says nothing about service."""
Figures = dict[str, object]


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What happened in a run."""

    asked: Sequence[Asked]
    frames: Sequence[int]
    counts: Mapping[str, int]
    looks: Looks | None
    rollout: Rollout | None


def figures_of(world: Borrowed, section: OffloadSection) -> Figures:
    """For `swarmd sim run --json`."""
    asked = world.asked
    settled = [one for one in asked if one.settles]
    answered = [one for one in settled if one.data_out is not None]
    borrowed = [one for one in answered if one.lender is not None]
    took = sorted(one.settled_ns - one.at_ns for one in answered)
    pairs = [(one.settled_ns - one.at_ns, one.oracle_ns) for one in answered if one.oracle_ns]
    oracle = sorted(oracle_ns for _, oracle_ns in pairs)
    right = sum(one.data_out == answer_to(_answering(one), one.data) for one in answered)
    counts = world.counts
    figures: Figures = {
        "rule": section.rule,
        "asked": len(asked),
        "settled": len(settled),
        "answered": len(answered),
        "answered_share": _share(len(answered), len(settled)),
        "oracle_could_share": _share(
            sum(0 < one.oracle_ns <= one.deadline_ns - one.at_ns for one in settled), len(settled)
        ),
        "borrowed": len(borrowed),
        "wrong": len(answered) - right,
        "mean_ms": _ms(sum(took) / max(1, len(took))),
        "p50_ms": _ms(_rank(took, 50)),
        "p99_ms": _ms(_rank(took, 99)),
        "oracle_mean_ms": _ms(sum(oracle) / max(1, len(oracle))),
        "oracle_p99_ms": _ms(_rank(oracle, 99)),
        "mean_ratio": round(sum(took for took, _ in pairs) / max(1, sum(oracle)), 3),
        "p99_ratio": round(_rank(took, 99) / max(1, _rank(oracle, 99)), 3),
        "frame_p99_ms": _ms(_rank(sorted(world.frames), 99)),
        "own_unanswered": sum(one.has_own and one.data_out is None for one in settled),
        "bytes": counts.get("borrow_request_bytes", 0),
        "infeasible_share": _infeasible(counts),
        "hedged_share": _share(counts.get("borrow_hedged", 0), counts.get("borrow_asked", 0)),
        **_lost(settled),
        "counts": dict(counts),
    }
    if section.keep_s:
        figures |= _kept(settled)
    if world.looks is not None:
        figures |= _traffic(world.looks, section.input_bytes)
    if world.rollout is not None:
        figures |= _service(world.rollout, settled)
    return figures


def _answering(one: Asked) -> bytes:
    assert one.data_out is not None
    return one.data_out[32:64]


def _infeasible(counts: Mapping[str, int]) -> float:
    """Requests that reached a lender which could not have answered them, of all that were sent."""
    refused = sum(counts.get(f"borrow_refused_{reason}", 0) for reason in ("not-lending", "too-large", "other-bundle"))
    return _share(refused, counts.get("borrow_requests", 0))


def _lost(settled: Sequence[Asked]) -> Figures:
    """Accepted requests that a death has cost, and work beyond one inference an answer."""
    lost, doubled, ran, used, copies_ran, copies_used = [0, 0], 0, 0, 0, 0, 0
    for one in settled:
        doubled += one.copies > 1
        if one.data_out is None and one.dead:
            lost[len(one.taken) > one.dead] += 1
        if one.copies == 1 and one.lender is not None and not one.is_kept:
            ran, used = ran + len(one.ran), used + 1
        elif one.copies > 1 and one.lender is not None and not one.is_kept:
            copies_ran, copies_used = copies_ran + len(one.ran), copies_used + 1
    return {
        "lost_to_deaths": lost[0],
        "copied": doubled,
        "lost_with_one_alive": lost[1],
        "extra_work_share": round((ran - used) / max(1, used), 4),
        "copies_extra_work_share": round((copies_ran - copies_used) / max(1, copies_used), 4),
    }


def _kept(settled: Sequence[Asked]) -> Figures:
    """Hits beside those of a cache of the same size that knows the future, on each device's own questions."""
    hits, best = sum(one.is_kept for one in settled), 0
    of_each: dict[tuple[int, int], list[Asked]] = {}
    for one in settled:
        of_each.setdefault((one.host, one.life), []).append(one)
    for mine in of_each.values():
        trace = [(one.at_ns, (one.data, one.digest)) for one in mine if one.data_out is not None]
        best += belady_hits(trace, _KEPT_MAX, mine[0].keep_ns)
    return {"kept_hits": hits, "kept_belady": best, "kept_ratio": _share(hits, best)}


def _traffic(looks: Looks, input_bytes: int) -> Figures:
    """How good the answers were, and what they cost, beside what an oracle needs."""
    seen = [one for one in looks.seen if one.ends]
    of = [one.look for one in seen]
    said = [one.said if one.ended_ns <= one.deadline_ns else None for one in seen]
    small: list[float | None] = [one.scores[SMALL] for one in of]
    largest: list[float | None] = [one.scores[LARGEST] for one in of]
    in_time = sum(p is not None for p in said)
    asks = sum(len(one.asked) for one in seen)
    took = sorted(one.ended_ns - one.at_ns for one in seen)
    figures: Figures = {
        "looks": len(seen),
        "in_time_share": _share(in_time, len(seen), 5),
        "look_p50_ms": _ms(_rank(took, 50)),
        "look_p99_ms": _ms(_rank(took, 99)),
        "accuracy": round(accuracy(of, said), 4),
        "mean_ap": round(mean_ap(of, said), 4),
        "local_accuracy": round(accuracy(of, small), 4),
        "local_mean_ap": round(mean_ap(of, small), 4),
        "largest_accuracy": round(accuracy(of, largest), 4),
        "largest_mean_ap": round(mean_ap(of, largest), 4),
        "accuracy_of_largest": round(accuracy(of, said) / max(1e-9, accuracy(of, largest)), 4),
        "mean_ap_of_largest": round(mean_ap(of, said) / max(1e-9, mean_ap(of, largest)), 4),
        "asks_a_look": _share(asks, len(seen)),
        "bytes_a_look": round(asks * input_bytes / max(1, len(seen)), 1),
        "bytes_of_always": _share(asks, len(seen)),
        "mixed": sum(is_mixed(one) for one in seen),
    }
    return figures | _oracles(looks, seen, of, said)


def is_mixed(seen: Seen) -> bool:
    """Whether bundles of two releases are in one answer."""
    return len({version_of(digest) for digest in seen.parts}) > 1


def _oracles(looks: Looks, seen: Sequence[Seen], of: Sequence[Look], said: Sequence[float | None]) -> Figures:
    """What the same quality costs whoever knows the best bands in hindsight, and whoever knows every answer."""
    if looks.rule != "ours" or not seen:
        return {}
    plan = looks.plan(0)
    wanted = Wanted(accuracy(of, said), mean_ap(of, said))
    _, ask_cost = cheapest(plan, of, JUDGES, (1.0, 1.0), wanted)
    _, work_cost = cheapest(plan, of, JUDGES, UNITS, wanted)
    steps = [0, 0]
    for one in seen:
        for step in range(len(JUDGES)):
            steps[step] += any(digests[1 + step] in one.asked for digests in TRAFFIC)
    work = sum(count * unit for count, unit in zip(steps, UNITS, strict=True))
    right = [(p >= 0.5) == one.is_there for p, one in zip((x.scores[SMALL] for x in of), of, strict=True)]
    helped = sum(
        not is_right and any((one.scores[judge] >= 0.5) == one.is_there for judge in JUDGES)
        for is_right, one in zip(right, of, strict=True)
    )
    return {
        "steps_asked": steps,
        "bytes_of_hindsight": _share(sum(steps), ask_cost),
        "work_of_hindsight": _share(work, work_cost),
        "clairvoyant_asks_a_look": _share(helped, len(of)),
    }


def _service(rollout: Rollout, settled: Sequence[Asked]) -> Figures:
    """Seconds of a rollout in which some version was asked for and nobody answered, and who has changed."""
    seconds: dict[tuple[int, int], list[int]] = {}
    for one in settled:
        if rollout.begin_ns <= one.at_ns < rollout.end_ns + 2 * NS_PER_S:
            count = seconds.setdefault((one.at_ns // NS_PER_S, version_of(one.digest)), [0, 0])
            count[0] += 1
            count[1] += one.data_out is not None
    judged = [count for count in seconds.values() if count[0] >= _ASKED_LEAST]
    return {
        "rollout_requests": sum(count[0] for count in seconds.values()),
        "rollout_answered_share": _share(sum(c[1] for c in seconds.values()), sum(c[0] for c in seconds.values())),
        "seconds_without_service": sum(not count[1] for count in judged),
        "changed": rollout.changed,
    }


def _share(part: float, whole: float, digits: int = 4) -> float:
    return round(part / whole, digits) if whole else 0.0


def _ms(ns: float) -> float:
    return round(ns / MILLION, 2)


def _rank(ordered: list[int], percent: int) -> int:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0
