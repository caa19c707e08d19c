"""Drawn sounds of drones and drawn flights of their batteries, each decided by one seed. What the zoo's series learn.

A sound is that of all rotors of an aircraft, one of which may have a fault, through a microphone on its frame:

- A rotor of `b` blades at `f` turns a second: lines at `k b f`, falling with `k`; a little of `f` itself, since no
  rotor is perfectly even. The rotors of one aircraft differ by some hundredths, and `f` wanders within a second.
- `unbalanced`: the line at `f` grows. `chipped`: one blade differs, so every multiple of `f` shows. `bearing`: a click
  some four times a turn that rings at 2 to 3.4 kHz. `loose`: lines at odd halves of `f`, and a rattle with the turns.
- Wind, below 200 Hz mostly, and noise over everything; how strong is drawn too, and so is the fault.

Nobody has flown any of it: what is learnt from it is scored on other draws, and says so.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

RATE_HZ = 8_000
WINDOW = 8_192
"""Samples of one sound: a second."""
FAULTS = ("healthy", "unbalanced", "chipped", "bearing", "loose")


@dataclass(frozen=True, slots=True)
class Craft:
    """A kind of aircraft."""

    rotors: int
    blades: int
    low_hz: float
    high_hz: float
    """Turns a second of its rotors, about hover."""
    wind: float
    """Beside its own noise."""


CRAFTS = {
    "quad": Craft(4, 2, 150.0, 185.0, 0.3),
    "hexa": Craft(6, 2, 64.0, 78.0, 0.3),
    "wing": Craft(1, 3, 95.0, 118.0, 0.7),
    "heli": Craft(1, 2, 20.0, 25.0, 0.5),
}
"""By name."""


def sound(rng: np.random.Generator, craft: str, fault: str) -> F32:
    """One second; shape (WINDOW,), float32, within -1 and 1.

    Args:
        rng: Decides everything else.
        craft: Of `CRAFTS`.
        fault: Of `FAULTS`: of one of its rotors.
    """
    kind = CRAFTS[craft]
    turns_hz = rng.uniform(kind.low_hz, kind.high_hz)
    t = np.arange(WINDOW) / RATE_HZ
    made = np.zeros(WINDOW)
    for rotor in range(kind.rotors):
        own_hz = turns_hz * (1.0 + rng.normal(0.0, 0.01))
        wander = 0.004 * np.sin(2 * np.pi * rng.uniform(0.3, 2.0) * t + rng.uniform(0, 2 * np.pi))
        phase = 2 * np.pi * own_hz * (t + np.cumsum(wander) / RATE_HZ) + rng.uniform(0, 2 * np.pi)
        made += _rotor(rng, kind, phase, own_hz)
        if rotor == 0 and fault != "healthy":
            made += _fault(rng, fault, phase, own_hz, t)
    made += kind.wind * rng.uniform(0.3, 1.5) * _noise(rng, 2.0)
    made += rng.uniform(0.1, 0.5) * _noise(rng, rng.uniform(0.0, 0.7))
    made *= rng.uniform(0.02, 0.5) / (np.abs(made).max() + 1e-9)
    return made.astype(np.float32)


def _rotor(rng: np.random.Generator, kind: Craft, phase: F64, own_hz: float) -> F64:
    made = rng.uniform(0.02, 0.10) * np.sin(phase)
    fall = rng.uniform(1.0, 1.6)
    for k in range(1, 12):
        if k * kind.blades * own_hz > RATE_HZ / 2.2:
            break
        made = made + np.sin(k * kind.blades * phase + rng.uniform(0, 2 * np.pi)) / k**fall
    return made


def _fault(rng: np.random.Generator, fault: str, phase: F64, own_hz: float, t: F64) -> F64:
    strength = np.exp(rng.uniform(np.log(0.5), np.log(2.0)))
    if fault == "unbalanced":
        lone: F64 = strength * (np.sin(phase) + 0.15 * np.sin(2 * phase))
        return lone
    if fault == "chipped":
        lines = [
            np.sin(k * phase + rng.uniform(0, 2 * np.pi)) / k**0.7 for k in range(1, 16) if k * own_hz < RATE_HZ / 2.2
        ]
        many: F64 = 0.5 * strength * np.sum(lines, axis=0)
        return many
    if fault == "bearing":
        clicks_hz, rings_hz = own_hz * rng.uniform(3.4, 4.6), rng.uniform(2_000.0, 3_400.0)
        since = np.mod(t * clicks_hz + rng.uniform(), 1.0) / clicks_hz
        ring: F64 = 0.7 * strength * np.exp(-since * 900.0) * np.sin(2 * np.pi * rings_hz * since)
        return ring
    halves = [np.sin((k + 0.5) * phase + rng.uniform(0, 2 * np.pi)) / (k + 1) for k in range(4)]
    rattle = np.maximum(np.sin(0.5 * phase), 0.0) ** 4 * _noise(rng, 0.3)
    loose: F64 = strength * (0.6 * np.sum(halves, axis=0) + 0.5 * rattle)
    return loose


def _noise(rng: np.random.Generator, slope: float) -> F64:
    """Noise of deviation one whose power falls with the frequency to the power of `slope`."""
    lines = np.fft.rfft(rng.normal(size=WINDOW))
    lines /= np.maximum(np.fft.rfftfreq(WINDOW, 1.0 / RATE_HZ), 20.0) ** (slope / 2)
    made: F64 = np.fft.irfft(lines, WINDOW)
    scaled: F64 = made / made.std()
    return scaled


# --- Batteries --------------------------------------------------------------------------------------------------------

FLIGHT_WINDOW = 60
"""Samples of a battery's log that are judged at once, one a second: volts a cell, amperes for each Ah, degrees."""
_EMPTY_V = 3.3
"""Under load: where a pilot lands."""
_CHARGES = np.array([0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0])
_REST_V = np.array([3.27, 3.55, 3.65, 3.71, 3.77, 3.86, 4.00, 4.08, 4.20])
"""Volts of a lithium polymer cell at rest, by its charge: the usual curve of data sheets."""


def flight(rng: np.random.Generator) -> tuple[F32, float]:
    """A minute of a battery's log, shape (FLIGHT_WINDOW, 3), and the minutes left until it is empty under this load."""
    health = rng.uniform(0.7, 1.0)
    degrees = rng.uniform(-5.0, 40.0)
    ohm_ah = rng.uniform(0.012, 0.022) / health * np.exp(-0.018 * (degrees - 25.0))
    mean_c = rng.uniform(2.5, 7.0)
    charge = rng.uniform(0.12, 1.0)
    pace = np.convolve(rng.normal(size=FLIGHT_WINDOW + 9), np.ones(10) / 10, "valid")
    load = mean_c * np.maximum(1.0 + 0.5 * pace, 0.2)
    charges = charge - np.cumsum(load) / 3600.0 / health
    volts = np.interp(charges, _CHARGES, _REST_V) - load * ohm_ah
    seen = np.stack([
        volts + rng.normal(0.0, 0.008, FLIGHT_WINDOW) + rng.normal(0.0, 0.01),
        load * (1.0 + rng.normal(0.0, 0.02)),
        np.full(FLIGHT_WINDOW, degrees) + rng.normal(0.0, 1.0),
    ], axis=1)  # fmt: skip
    # Until the mean load would pull the cell below where a pilot lands.
    ends = np.interp(_EMPTY_V + mean_c * ohm_ah, _REST_V, _CHARGES)
    left_min = max(0.0, (charges[-1] - ends) * health / mean_c * 60.0)
    return seen.astype(np.float32), left_min


def by_rule(logs: F32) -> F64:
    """What a pilot's table gives: the charge by the volts at rest, at the mean current; shape (n, window, 3) to (n,).

    Volts at rest are those under load and what a new, warm pack loses, 16 milliohms an Ah; minutes until it is empty.
    """
    ohm_ah = 0.016
    volts, load = logs[:, :, 0].mean(1, np.float64), logs[:, :, 1].mean(1, np.float64)
    charge = np.interp(volts + load * ohm_ah, _REST_V, _CHARGES)
    ends = np.interp(_EMPTY_V + load * ohm_ah, _REST_V, _CHARGES)
    left: F64 = np.maximum(charge - ends, 0.0) / load * 60.0
    return left
