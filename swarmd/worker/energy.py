"""What an inference costs in energy, where this device can measure power: from sysfs, by what changes with the work.

The meters of a device say what all of it takes, or all of its processor, never what one inference does. So power is
held against whether the runtime works: over some minutes the slope between the two is what inference adds, and that
times the measured time of one inference is its energy. Other work blurs the slope and does not move it, unless it goes
hand in hand with the inferences; where it is not clear, nothing is said.

| meter | files | measures |
|---|---|---|
| `ina` | `class/hwmon/*/name` is `ina…`; `in1_label`, `in1_input` mV, `curr1_input` mA, or `power1_input` µW | a rail: of a Jetson `VDD_IN`, all of it |
| `rapl` | `class/powercap/intel-rapl:*/energy_uj` of each `package-…` | the processors; root alone may read it |
| `battery` | `class/power_supply/*/power_now` µW, or `current_now` µA and `voltage_now` µV, while it discharges | everything |

Source:
    Linux, Documentation/hwmon/sysfs-interface, Documentation/power/powercap/powercap.rst,
    Documentation/ABI/testing/sysfs-class-power.
"""  # noqa: E501

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SYSTEM = Path("/sys")
_WHOLE_RAILS = ("VDD_IN", "POM_5V_IN", "VDD_TOTAL", "VIN", "SYS5V")
"""Names of rails that everything hangs on, of Jetson boards; else the first rail is taken."""
_FORGET = 0.997
"""Of a sample's weight with each newer one: at four a second half is forgotten in a minute."""
_SAMPLES_MIN = 40
_SPREAD_MIN = 0.05
"""Deviation of the busy share below which there is nothing to compare."""
_SURE = 3.0
"""Standard errors that the slope is to be above nought."""
_ENTRIES_MAX = 64


@dataclass(frozen=True, slots=True)
class Meter:
    """Something that measures."""

    kind: str
    """`ina`, `rapl` or `battery`."""
    detail: str
    """For people."""
    watts: Callable[[], float | None] | None
    """Power now; None: it counts energy instead, or cannot say just now."""
    joules: Callable[[], float | None] | None = None
    """Energy so far."""
    wraps_j: float = 0.0
    """After which it begins anew."""


def find_meter(system: Path = SYSTEM) -> tuple[Meter | None, str]:
    """The best meter of this device, or why there is none; never raises.

    Args:
        system: Where sysfs is.
    """
    refused: list[str] = []
    for find in (_ina, _rapl, _battery):
        found = find(system, refused)
        if found is not None:
            return found, ""
    why = "; ".join(refused) or "no INA sensor, no RAPL counter and no battery gauge in /sys"
    return None, f"energy cannot be measured here: {why}"


def battery_joules(system: Path = SYSTEM) -> float | None:
    """What the battery holds when it is full, by its gauge; None: it has none that says."""
    for supply in _entries(system / "class" / "power_supply"):
        if _text(supply / "type") != "Battery":
            continue
        energy, charge = _number(supply / "energy_full"), _number(supply / "charge_full")
        volts = _number(supply / "voltage_min_design") or _number(supply / "voltage_now")
        if energy:
            return energy * 3600e-6
        if charge and volts:
            return charge * 1e-6 * volts * 1e-6 * 3600.0
    return None


class EnergyModel:
    """Power over the busy share: a line by least squares that forgets."""

    def __init__(self) -> None:
        """Know nothing."""
        self._n = self._x = self._y = self._xx = self._xy = self._yy = 0.0

    def add(self, busy: float, watts: float) -> None:
        """A sample; `busy` is the share of its time in which the runtime worked, 0 to 1."""
        kept = (self._n, self._x, self._y, self._xx, self._xy, self._yy)
        news = (1.0, busy, watts, busy * busy, busy * watts, watts * watts)
        self._n, self._x, self._y, self._xx, self._xy, self._yy = (
            _FORGET * old + new for old, new in zip(kept, news, strict=True)
        )

    def watts(self) -> float | None:
        """What inference adds while it runs; None: that is not clear."""
        if self._n < _SAMPLES_MIN:
            return None
        x, y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - x * x
        if spread < _SPREAD_MIN**2:
            return None
        slope = (self._xy / self._n - x * y) / spread
        left = max(0.0, self._yy / self._n - y * y - slope * slope * spread)
        error = (left / (self._n * spread)) ** 0.5
        return slope if slope > max(0.0, _SURE * error) else None


class EnergyWatch:
    """A meter, and what is learnt from it; `sample` some times a second."""

    def __init__(self, meter: Meter | None, problem: str) -> None:
        """As `find_meter` found it."""
        self.meter = meter
        self.problem = problem
        """Why nothing is measured; "": something is."""
        self._model = EnergyModel()
        self._before: tuple[int, int, float] | None = None

    @property
    def told(self) -> str:
        """What measures, or why nothing does."""
        return self.problem if self.meter is None else self.meter.detail

    def sample(self, now_ns: int, run_ns: int, is_running: bool) -> None:
        """Look at the meter.

        Args:
            now_ns: The monotonic clock.
            run_ns: What the runtime has worked so far.
            is_running: Whether it works just now.
        """
        meter = self.meter
        if meter is None:
            return
        if meter.joules is None:
            watts = meter.watts() if meter.watts is not None else None
            if watts is not None:
                self._model.add(float(is_running), watts)
            return
        joules = meter.joules()
        if joules is None:
            self._before = None
            return
        if self._before is not None and now_ns > self._before[0]:
            then_ns, then_run_ns, then_j = self._before
            used_j = joules - then_j + (meter.wraps_j if joules < then_j else 0.0)
            took_ns = now_ns - then_ns
            self._model.add(min(1.0, max(0.0, (run_ns - then_run_ns) / took_ns)), used_j / (took_ns / 1e9))
        self._before = now_ns, run_ns, joules

    def watts(self) -> float | None:
        """What inference adds while it runs; None: it is not known, or not yet."""
        return self._model.watts()


def _ina(system: Path, refused: list[str]) -> Meter | None:
    for chip in _entries(system / "class" / "hwmon"):
        if not (name := _text(chip / "name")).startswith("ina"):
            continue
        rails = [_text(chip / f"in{at}_label") for at in range(1, 9)]
        named = [at for at, label in enumerate(rails, 1) if label in _WHOLE_RAILS]
        for at in (*named, *range(1, 9)):
            found = _rail(chip, at)
            if found() is not None:
                label = rails[at - 1] or f"rail {at}"
                return Meter("ina", f"{name}, {label}", found)
        refused.append(f"{name} says nothing that is a power")
    return None


def _rail(chip: Path, at: int) -> Callable[[], float | None]:
    def watts() -> float | None:
        power = _number(chip / f"power{at}_input")
        if power is not None:
            return power * 1e-6
        volts, amperes = _number(chip / f"in{at}_input"), _number(chip / f"curr{at}_input")
        return None if volts is None or amperes is None else volts * 1e-3 * amperes * 1e-3

    return watts


def _rapl(system: Path, refused: list[str]) -> Meter | None:
    zones = [one for one in _entries(system / "class" / "powercap") if _text(one / "name").startswith("package")]
    if not zones:
        return None

    def joules() -> float | None:
        found = [_number(zone / "energy_uj") for zone in zones]
        return None if any(one is None for one in found) else sum(one or 0.0 for one in found) * 1e-6

    if joules() is None:
        refused.append(
            f"{zones[0] / 'energy_uj'} may be read by root alone (a udev rule or tmpfiles.d can let the daemon's "
            "group read it)"
        )
        return None
    wraps = sum(_number(zone / "max_energy_range_uj") or 0.0 for zone in zones) * 1e-6
    return Meter("rapl", f"RAPL, {len(zones)} packages", None, joules, wraps)


def _battery(system: Path, refused: list[str]) -> Meter | None:
    for supply in _entries(system / "class" / "power_supply"):
        if _text(supply / "type") != "Battery":
            continue

        def watts(supply: Path = supply) -> float | None:
            if _text(supply / "status") != "Discharging":
                return None  # What a charger gives says nothing about what is used.
            power = _number(supply / "power_now")
            if power is not None:
                return abs(power) * 1e-6
            amperes, volts = _number(supply / "current_now"), _number(supply / "voltage_now")
            return None if amperes is None or volts is None else abs(amperes) * 1e-6 * volts * 1e-6

        has_power = (supply / "power_now").exists() or (supply / "current_now").exists()
        if has_power:
            return Meter("battery", f"gauge {supply.name}, while it discharges", watts)
        refused.append(f"the gauge {supply.name} says no current")
    return None


def _entries(folder: Path) -> Sequence[Path]:
    try:
        return sorted(folder.iterdir())[:_ENTRIES_MAX]
    except OSError:
        return ()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()[:64]
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    try:
        return float(_text(path))
    except ValueError:
        return None
