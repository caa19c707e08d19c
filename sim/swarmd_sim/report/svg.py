"""Small drawings as SVG text: line charts and maps, without a library and without a script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 34, 46
COLOURS = ("#1f6fb4", "#c8501e", "#3a8f3a", "#8a4fb0", "#9a7b1c", "#b0305c", "#2a8c8c", "#666666")


def _nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that span the range."""
    span = (high - low) or 1.0
    step = 10.0 ** (len(str(int(span / count))) - 1) if span / count >= 1 else 1.0
    while span / count < step / 10:
        step /= 10
    for factor in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50):
        if span / (step * factor) <= count:
            step *= factor
            break
    first = int(low / step) * step
    ticks = [first + step * index for index in range(count + 3)]
    return [tick for tick in ticks if low - step * 1e-6 <= tick <= high + step * 1e-6] or [low, high]


def line_chart(title: str, x_label: str, y_label: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """A chart with one line a series.

    Args:
        title: Above the chart.
        x_label: Below it.
        y_label: At its side.
        series: Points by name, each sorted by x.

    Returns:
        A whole `<svg>` element.
    """
    points = [point for line in series.values() for point in line] or [(0.0, 0.0)]
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    y_low, y_high = min(0.0, min(y for _, y in points)), max(y for _, y in points)
    x_span, y_span = (x_high - x_low) or 1.0, (y_high - y_low) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - x_low) / x_span * (WIDTH - _LEFT - _RIGHT)
        down = HEIGHT - _BOTTOM - (y - y_low) / y_span * (HEIGHT - _TOP - _BOTTOM)
        return across, down

    parts = [_open(WIDTH, HEIGHT, title), _text(WIDTH / 2, 18, title, "middle", bold=True)]
    for tick in _nice_ticks(y_low, y_high):
        _, down = place(x_low, tick)
        parts.append(_line(_LEFT, down, WIDTH - _RIGHT, down, "#dddddd"))
        parts.append(_text(_LEFT - 6, down + 4, f"{tick:g}", "end"))
    for tick in _nice_ticks(x_low, x_high):
        across, _ = place(tick, y_low)
        parts.append(_text(across, HEIGHT - _BOTTOM + 16, f"{tick:g}", "middle"))
    parts.append(_text(WIDTH / 2, HEIGHT - 8, x_label, "middle"))
    parts.append(f'<g transform="translate(14 {HEIGHT / 2:.0f}) rotate(-90)">{_text(0, 0, y_label, "middle")}</g>')
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in (place(x, y) for x, y in line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        if len(series) > 1:
            # Between title and plot, where no line can run through it.
            parts.append(_text(_LEFT + 110 * number, _TOP - 4, name, "start", colour))
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in a lane of `lanes`."""

    from_s: float
    until_s: float
    colour: str
    text: str
    """Shown when the pointer rests on it."""


def lanes(
    title: str,
    end_s: float,
    rows: Sequence[tuple[str, Sequence[Bar]]],
    marks: Sequence[tuple[float, str, str]] = (),
) -> str:
    """Bars over time, one row a lane, with vertical marks through all of them.

    Args:
        title: Above the chart.
        end_s: Where time ends.
        rows: (label, bars) from top to bottom.
        marks: (seconds, colour, text) of each vertical line.

    Returns:
        A whole `<svg>` element.
    """
    left, step = 230, 14
    height = 60 + step * max(1, len(rows))
    scale = (WIDTH - left - _RIGHT) / max(end_s, 1e-9)
    parts = [_open(WIDTH, height, title), _text(WIDTH / 2, 18, title, "middle", bold=True)]
    for tick in _nice_ticks(0.0, end_s, 8):
        x = left + tick * scale
        parts.append(_line(x, 26, x, height - 24, "#eeeeee"))
        parts.append(_text(x, height - 10, f"{tick:g}", "middle"))
    for number, (label, bars) in enumerate(rows):
        y = 30 + step * number
        parts.append(_text(left - 6, y + 9, label, "end"))
        for bar in bars:
            x, width = left + bar.from_s * scale, max(1.5, (bar.until_s - bar.from_s) * scale)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{step - 3}" fill="{bar.colour}">'
                f"<title>{escape(bar.text)}</title></rect>"
            )
    for at_s, colour, text in marks:
        x = left + at_s * scale
        parts.append(
            f'<line x1="{x:.1f}" y1="26" x2="{x:.1f}" y2="{height - 24}" stroke="{colour}" stroke-width="1.5" '
            f'stroke-dasharray="4 3"><title>{escape(text)}</title></line>'
        )
    return "".join([*parts, _text(WIDTH - _RIGHT, height - 10, "s", "start"), "</svg>"])


def site_map(
    title: str,
    extent: tuple[int, int],
    modules: Sequence[tuple[int, int]],
    faults: Sequence[tuple[int, int, bool]],
    paths: Sequence[Sequence[tuple[int, int]]],
    false_alarms: Sequence[tuple[int, int]],
) -> str:
    """The ground from above: modules, faults (filled when found), flown paths and false alarms. Centimetres.

    Args:
        title: Above the map.
        extent: East and north size.
        modules: Centres of modules, thinned where there are many.
        faults: (east, north, found).
        paths: One line a drone.
        false_alarms: Objects that stand for nothing.

    Returns:
        A whole `<svg>` element.
    """
    width = 720
    scale = (width - 20) / max(1, extent[0])
    height = int(extent[1] * scale) + 50

    def place(point: tuple[int, int]) -> tuple[float, float]:
        return 10 + point[0] * scale, height - 10 - point[1] * scale

    parts = [_open(width, height, title), _text(width / 2, 18, title, "middle", bold=True)]
    for x, y in map(place, modules):
        parts.append(f'<rect x="{x - 1.5:.1f}" y="{y - 0.8:.1f}" width="3" height="1.6" fill="#c9d3df"/>')
    for number, path in enumerate(paths):
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, path))
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="0.7" opacity="0.55"/>')
    for east, north, found in faults:
        x, y = place((east, north))
        fill = "#2f9e44" if found else "#ffffff"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{fill}" stroke="#2f9e44"/>')
    for x, y in map(place, false_alarms):
        parts.append(f'<path d="M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6" stroke="#d6336c" stroke-width="1.4"/>')
    return "".join([*parts, "</svg>"])


def _open(width: int, height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title, quote=True)}" font-family="sans-serif" font-size="11">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    )


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#222222", *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'
