"""One rule for every name that people give: fleets, swarms, nodes, officers.

A name becomes a file's name, a part of an MQTT topic, a DDS partition and a column of a table. So it is 1 to 64
letters, digits, dots, dashes or underlines, and begins with a letter or a digit: neither `..`, `a/b`, `a+b` nor `-f`.
A node refuses a certificate for any other name.
"""

import re
from collections.abc import Iterable

from swarmd.errors import DaemonError
from swarmd_protocols.trust.payloads import NAME_MAX_CHARS, NAME_PATTERN

_NAME = re.compile(NAME_PATTERN)


class NameRefused(DaemonError):
    """A name that does not do, or that nobody knows; nothing has changed."""


def is_name(text: str) -> bool:
    """Whether the rule holds.

    >>> [is_name(text) for text in ("drone-1", "..", "a/b", "a+b", "-f", "")]
    [True, False, False, False, False, False]
    """
    return len(text) <= NAME_MAX_CHARS and _NAME.fullmatch(text) is not None


def check_name(text: str, what: str) -> str:
    """The name itself.

    Args:
        text: What somebody typed.
        what: What it is to name, such as "a node".

    Raises:
        NameRefused: The rule does not hold.
    """
    if not is_name(text):
        raise NameRefused(
            f"{text[:80]!r} cannot name {what}; 1 to {NAME_MAX_CHARS} letters, digits, dots, dashes or underlines, the "
            "first a letter or a digit"
        )
    return text


def check_known(text: str, known: Iterable[str], what: str) -> str:
    """The word itself where it is one of those that are known.

    Args:
        text: What somebody typed.
        known: All that it may be.
        what: What it names, such as "role".

    Raises:
        NameRefused: It is none of them; suggests the nearest, and lists all.
    """
    words = sorted(known)
    if text not in words:
        import difflib  # A quarter of a megabyte that no running node needs.

        near = difflib.get_close_matches(text, words, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise NameRefused(f"there is no {what} {text[:80]!r}{meant} (known: {', '.join(words[:40]) or 'none'})")
    return text
