"""The picture of a search: score over latency, one dot a shape, the front joined, those trained in full and the zoo.

Plain SVG, without a library and without a script.
"""

from collections.abc import Iterable
from html import escape
from typing import Any

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 56, 52
_DOT = 4.0
"""Radius of a dot whose file has the smallest size; area goes with bytes."""
_LARGEST = 14.0
_GREY, _BLUE, _RED, _GREEN = "#888888", "#1f6fb4", "#c8501e", "#3a8f3a"


def picture(said: dict[str, Any]) -> str:
    """Draw what `search.document` holds.

    Args:
        said: With `trials`, `full` and `zoo`, each with `p50_ms`, `size_bytes` and `score`.

    Returns:
        A whole `<svg>` element.
    """
    trials = [row for row in said["trials"] if "score" in row]
    full = [{"shape": name, **row} for name, row in said["full"].items()]
    zoo = [{"shape": name, **row} for name, row in said["zoo"].items() if "score" in row]
    rows = [*trials, *full, *zoo] or [{"shape": "", "p50_ms": 1.0, "size_bytes": 1, "score": 0.5}]
    far = 1.08 * max(row["p50_ms"] for row in rows)
    low, high = _range([row["score"] for row in rows])
    small = min(row["size_bytes"] for row in rows)

    def place(row: dict[str, Any]) -> tuple[float, float]:
        across = _LEFT + row["p50_ms"] / far * (_WIDTH - _LEFT - _RIGHT)
        down = _HEIGHT - _BOTTOM - (row["score"] - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
        return across, down

    title = f"{said['search']}: score over latency on {said['device']}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="11"><title>{escape(title)}</title>'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_WIDTH / 2, 18, title, "middle"),
        *_legend(),
        *_axes(low, high, far),
    ]
    front = sorted((place(row) for row in trials if row["front"]), key=lambda at: at[0])
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in front)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{_BLUE}" stroke-dasharray="4 3"/>')
    for row in trials:
        parts.append(_dot(place(row), row, small, _BLUE if row["front"] else _GREY))
    for row in full:
        parts.append(_dot(place(row), row, small, _RED))
    for row in zoo:
        parts.append(_dot(place(row), row, small, _GREEN))
    return "".join([*parts, "</svg>\n"])


def _range(scores: Iterable[float]) -> tuple[float, float]:
    """Of the axis, in tenths around all scores."""
    values = list(scores)
    low, high = int(min(values) * 10) / 10, (int(max(values) * 10) + 1) / 10
    return max(0.0, low), max(high, low + 0.1)


def _legend() -> list[str]:
    said = ((_GREY, "short training"), (_BLUE, "on the front"), (_RED, "trained in full"), (_GREEN, "the zoo"))
    return [
        f'<circle cx="{_LEFT + 8 + 130 * i}" cy="34" r="5" fill="{colour}"/>{_text(_LEFT + 18 + 130 * i, 38, name)}'
        for i, (colour, name) in enumerate(said)
    ]


def _axes(low: float, high: float, far: float) -> list[str]:
    parts = []
    for tenth in range(round(low * 10), round(high * 10) + 1):
        down = _HEIGHT - _BOTTOM - (tenth / 10 - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
        parts.append(f'<path d="M{_LEFT} {down:.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>')
        parts.append(_text(_LEFT - 6, down + 4, f"{tenth / 10:.1f}", "end"))
    for number in range(6):
        across = _LEFT + number / 5 * (_WIDTH - _LEFT - _RIGHT)
        parts.append(_text(across, _HEIGHT - _BOTTOM + 18, f"{number / 5 * far:.2f}", "middle"))
    parts.append(_text(_WIDTH / 2, _HEIGHT - 12, "first stage of a frame, p50, ms (area of a dot: bytes)", "middle"))
    parts.append(_text(6, _TOP - 6, "AP"))
    return parts


def _dot(at: tuple[float, float], row: dict[str, Any], small: int, colour: str) -> str:
    radius = min(_DOT * (row["size_bytes"] / small) ** 0.5, _LARGEST)
    about = f"{row['shape']}: {row['score']:.4f}, {row['p50_ms']} ms, {row['size_bytes']} bytes"
    return (
        f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:.1f}" fill="{colour}" fill-opacity="0.75">'
        f"<title>{escape(about)}</title></circle>"
        + _text(at[0] + radius + 3, at[1] + 4, str(row["shape"]).removeprefix("zoo:"))
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222222">{escape(text)}</text>'
