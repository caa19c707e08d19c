"""The gates of a trial: numbers in, verdict out. Pure, so that a table can test them.

A gate that cannot be measured fails, except for those the manifest leaves at 0: silence is not health.
"""

from collections.abc import Sequence

import msgspec

from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.statements import Gates


class Trial(msgspec.Struct, frozen=True):
    """What was measured since the trial model took over."""

    soak_s: int = 0
    samples: int = 0
    golden_ok: bool | None = None
    """The golden vectors on this device's own runtime; None while they have not run."""
    latency_p95_us: int | None = None
    memory_kib: int | None = None
    bad_frames: int = 0
    """Frames with NaN or infinity in an output."""
    shadow_milli: int | None = None
    """Distance of the output distribution to the incumbent's on the same frames, thousandths; None: not measured."""
    crashes: int = 0


def judge(trial: Trial, gates: Gates) -> tuple[Verdict, str]:
    """The verdict so far and its reason.

    Returns:
        FAIL at once when a gate is broken; PASS when all hold and the soak is over; NONE while it lasts.
    """
    broken = broken_gate(trial, gates)
    if broken:
        return Verdict.FAIL, broken
    if trial.soak_s < gates.soak_s or trial.samples < gates.min_samples:
        return (
            Verdict.NONE,
            f"soaking: {trial.soak_s} of {gates.soak_s} s, {trial.samples} of {gates.min_samples} frames",
        )
    unmeasured = _unmeasured(trial, gates)
    if unmeasured:
        return Verdict.FAIL, f"{unmeasured} could not be measured"
    return Verdict.PASS, "all gates held"


def broken_gate(trial: Trial, gates: Gates) -> str | None:
    """The first gate that does not hold, or None."""
    if trial.golden_ok is False:
        return "golden vectors differ"
    if trial.bad_frames:
        return f"{trial.bad_frames} frames gave NaN or infinity"
    if trial.crashes > gates.crashes:
        return f"{trial.crashes} crashes, {gates.crashes} allowed"
    if gates.latency_p95_us and (trial.latency_p95_us or 0) > gates.latency_p95_us:
        return f"p95 latency is {trial.latency_p95_us} us, {gates.latency_p95_us} allowed"
    if gates.memory_kib and (trial.memory_kib or 0) > gates.memory_kib:
        return f"memory is {trial.memory_kib} KiB, {gates.memory_kib} allowed"
    if gates.shadow_milli and (trial.shadow_milli or 0) > gates.shadow_milli:
        return f"outputs moved by {trial.shadow_milli} thousandths, {gates.shadow_milli} allowed"
    return None


def _unmeasured(trial: Trial, gates: Gates) -> str | None:
    if trial.golden_ok is None:
        return "the golden vectors"
    if gates.latency_p95_us and trial.latency_p95_us is None:
        return "the latency"
    if gates.memory_kib and trial.memory_kib is None:
        return "the memory"
    return None


def distribution_distance_milli(one: Sequence[int], other: Sequence[int]) -> int:
    """Total variation distance of two histograms with the same bins, in thousandths.

    >>> distribution_distance_milli([1, 1], [2, 0]), distribution_distance_milli([0, 0], [1, 0])
    (500, 1000)
    """
    total_one, total_other = sum(one), sum(other)
    if not total_one or not total_other:
        return 0 if total_one == total_other else 1_000
    apart = sum(abs(a * total_other - b * total_one) for a, b in zip(one, other, strict=True))
    return apart * 500 // (total_one * total_other)
