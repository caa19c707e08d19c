"""Diagrams of the pages, drawn from the transition tables of the code: `python -m tests.support.diagrams` writes them.

A state's row is how many steps it is away from the first state; an edge that returns there is said in the box, since
it would only hide the others. The same table gives the same bytes, so that a test can compare them.
"""

from collections.abc import Mapping, Set
from pathlib import Path

from swarmd_protocols.releases.agent import TRANSITIONS
from tests.support.paths import ROOT

RELEASE_AGENT = ROOT / "docs" / "protocols" / "release-agent.svg"
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _EDGE = 118, 40, 34, 44, 20
"""Pixels of a box, between boxes, and around all."""
_STYLE = (
    "text{font:13px sans-serif;fill:#24292f;text-anchor:middle}.small{font-size:10px;fill:#57606a}"
    "rect{fill:#eef4fb;stroke:#2a6fb0}path{fill:none;stroke:#57606a;marker-end:url(#end)}"
)


def layers(table: Mapping[str, Set[str]], first: str) -> list[list[str]]:
    """States by their distance from the first, each row in the order of the table."""
    distance, found = {first: 0}, [first]
    for state in found:
        for following in (one for one in table if one in table[state] and one not in distance):
            distance[following] = distance[state] + 1
            found.append(following)
    return [[state for state in table if distance.get(state) == row] for row in range(max(distance.values()) + 1)]


def drawn(table: Mapping[str, Set[str]], first: str) -> str:
    """The state diagram of a table, as SVG."""
    rows = layers(table, first)
    corner = {
        state: (_EDGE + column * (_WIDTH + _GAP_X), _EDGE + row * (_HEIGHT + _GAP_Y))
        for row, states in enumerate(rows)
        for column, state in enumerate(states)
    }
    paths, boxes = [], []
    for state, followers in table.items():
        x, y = corner[state]
        for following in (one for one in table if one in followers and one != first):
            to_x, to_y = corner[following]
            if to_y > y:
                start, end, bend = (x + _WIDTH // 2, y + _HEIGHT), (to_x + _WIDTH // 2, to_y), _GAP_Y
                curve = f"C{start[0]} {start[1] + bend} {end[0]} {end[1] - bend} {end[0]} {end[1]}"
            else:  # Beside or above: around the right side.
                start, end = (x + _WIDTH, y + _HEIGHT // 2), (to_x + _WIDTH, to_y + _HEIGHT // 2)
                far = max(start[0], end[0]) + _GAP_X
                if to_y == y and to_x > x:
                    end = (to_x, to_y + _HEIGHT // 2)
                    far = (start[0] + end[0]) // 2
                curve = f"C{far} {start[1]} {far} {end[1]} {end[0]} {end[1]}"
            paths.append(f'<path d="M{start[0]} {start[1]}{curve}"><title>{state} to {following}</title></path>')
        back = f"or {first}" if first in followers else ""
        boxes.append(f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>')
        boxes.append(f'<text x="{x + _WIDTH // 2}" y="{y + (18 if back else 25)}">{state}</text>')
        if back:
            boxes.append(f'<text class="small" x="{x + _WIDTH // 2}" y="{y + 33}">{back}</text>')
    width = 2 * _EDGE + max(map(len, rows)) * (_WIDTH + _GAP_X)
    height = 2 * _EDGE + len(rows) * (_HEIGHT + _GAP_Y) - _GAP_Y
    arrow = '<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    return "\n".join(
        [
            head,
            f'<style>{_STYLE}</style><rect width="{width}" height="{height}" style="fill:#fff;stroke:none"/>',
            f'<defs>{arrow}<path d="M0 0L8 4L0 8z" style="fill:#57606a;stroke:none;marker-end:none"/></marker></defs>',
            *paths,
            *boxes,
            "</svg>\n",
        ]
    )


def pages() -> dict[Path, str]:
    """Each diagram and what belongs into it."""
    table = {str(state): {str(one) for one in following} for state, following in TRANSITIONS.items()}
    return {RELEASE_AGENT: drawn(table, "idle")}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
