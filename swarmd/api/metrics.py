"""Metrics with stable names and units, in the Prometheus text format.

The hot path only counts in plain integers and `Histogram`s; a scrape walks the numbers once. Names end in their unit,
counters in `_total`; labels have few values (never a track or an object). The text is written here, in thirty lines,
because the client library costs the brain 5 MB; the tests read it with that library.
"""

import math
from collections.abc import Callable, Mapping

from swarmd.api.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Numbers = Mapping[str, int | float]


class Metrics:
    """Everything a scrape reads; rooms register functions that give their present numbers."""

    def __init__(self) -> None:
        """Start with no source."""
        self.stages: dict[str, Histogram] = {}
        """Latency by stage: infer, capture_to_local, local_to_peer, handle, …"""
        self._counters: list[tuple[str, str, str, Callable[[], Numbers]]] = []
        self._gauges: list[tuple[str, str, str, Callable[[], Numbers]]] = []
        self._info: list[tuple[str, str, Callable[[], Mapping[str, str]]]] = []
        self._ratios: list[tuple[str, str, Ratios]] = []

    def stage(self, name: str) -> Histogram:
        """The histogram of a stage, made on first use."""
        histogram = self.stages.get(name)
        if histogram is None:
            histogram = self.stages[name] = Histogram()
        return histogram

    def counters(self, name: str, help_: str, label: str, read: Callable[[], Numbers]) -> None:
        """Register a family of counters.

        Args:
            name: Without `_total`.
            help_: One sentence.
            label: Name of the one label whose values are the keys that `read` gives.
            read: Present values.
        """
        self._counters.append((name, help_, label, read))

    def gauges(self, name: str, help_: str, label: str, read: Callable[[], Numbers]) -> None:
        """Register a family of gauges; an empty `label` takes the one value under the key ""."""
        self._gauges.append((name, help_, label, read))

    def info(self, name: str, help_: str, read: Callable[[], Mapping[str, str]]) -> None:
        """Register an info metric: labels with the value 1."""
        self._info.append((name, help_, read))

    def ratios(self, name: str, help_: str, held: "Ratios") -> None:
        """Register a histogram of numbers from 0 to 1."""
        self._ratios.append((name, help_, held))

    def render(self) -> bytes:
        """The text of a scrape."""
        lines: list[str] = []
        for name, help_, label, read in self._counters:
            lines += _family(f"{name}_total", help_, "counter", label, read())
        for name, help_, label, read in self._gauges:
            lines += _family(name, help_, "gauge", label, read())
        for name, help_, read_info in self._info:
            labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sorted(read_info().items()))
            lines += [*_head(f"{name}_info", help_, "gauge"), f"{name}_info{{{labels}}} 1"]
        lines += _head("swarmd_infer_seconds", "Time of one inference.", "histogram")
        lines += _buckets("swarmd_infer_seconds", "", self.stages.get("infer", Histogram()))
        lines += _head("swarmd_stage_seconds", "Time by stage of the pipeline.", "histogram")
        for stage, histogram in sorted(self.stages.items()):
            lines += _buckets("swarmd_stage_seconds", f'stage="{_escaped(stage)}"', histogram)
        for name, help_, ratios in self._ratios:
            lines += [*_head(name, help_, "histogram"), *ratios.rows(name)]
        return ("\n".join(lines) + "\n").encode()


class Ratios:
    """How numbers from 0 to 1 are spread, in tenths."""

    def __init__(self) -> None:
        """Start empty."""
        self.counts = [0] * 10
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one; what is beyond 0 or 1 counts as that."""
        value = min(max(value, 0.0), 1.0)
        self.counts[max(0, math.ceil(value * 10 - 1e-9) - 1)] += 1
        self.sum += value

    def rows(self, name: str) -> list[str]:
        """The lines of a scrape."""
        total, lines = 0, []
        for index, count in enumerate(self.counts):
            total += count
            lines.append(f'{name}_bucket{{le="{(index + 1) / 10:.1f}"}} {total}')
        return [*lines, f'{name}_bucket{{le="+Inf"}} {total}', f"{name}_sum {self.sum}", f"{name}_count {total}"]


def _head(name: str, help_: str, kind: str) -> list[str]:
    return [f"# HELP {name} {help_}", f"# TYPE {name} {kind}"]


def _family(name: str, help_: str, kind: str, label: str, values: Numbers) -> list[str]:
    rows = [
        f'{name}{{{label}="{_escaped(key)}"}} {value}' if label else f"{name} {value}"
        for key, value in sorted(values.items())
        if isinstance(value, int | float)
    ]
    return [*_head(name, help_, kind), *rows]


def _buckets(name: str, labels: str, histogram: Histogram) -> list[str]:
    comma, braces = ("," if labels else ""), (f"{{{labels}}}" if labels else "")
    rows = [f'{name}_bucket{{{labels}{comma}le="{upper:.9g}"}} {count}' for upper, count in histogram.cumulative()]
    return [
        *rows,
        f'{name}_bucket{{{labels}{comma}le="+Inf"}} {histogram.count}',
        f"{name}_sum{braces} {histogram.sum_ns / 1e9}",
        f"{name}_count{braces} {histogram.count}",
    ]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
