"""The tutorials as they are typed: the blocks of commands of a page, and what the page says they print."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

PAGES = sorted((ROOT / "docs/tutorials").glob("*.md"))
_FENCE = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Commands of a page, and what the page says they print."""

    title: str
    commands: str
    expected: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in its order; a `text` block is what the commands above it print."""
    found: list[Block] = []
    for language, title, text in _FENCE.findall(page.read_text()):
        if language == "text":
            found[-1] = Block(found[-1].title, found[-1].commands, tuple(text.strip().splitlines()))
        elif language == "sh":
            found.append(Block(title, text, ()))
    return found


def shows(said: str, expected: tuple[str, ...]) -> bool:
    """Whether an output holds each expected line, in this order, `…` being anything."""
    pattern = ".*?".join(".*?".join(re.escape(part) for part in line.split("…")) for line in expected)
    return re.search(pattern, said, re.DOTALL) is not None
