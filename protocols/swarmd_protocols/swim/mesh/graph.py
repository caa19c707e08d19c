"""Who is reached over hops, and what is believed of those who are not. Pure.

Nodes are told apart by the first bytes of their ids, as reports name them. A report says whom its author hears; the
cost of a link is its expected number of transmissions (ETX) in quarters.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from heapq import heappop, heappush
from typing import TypeAlias

Key: TypeAlias = bytes
"""The first `KEY_BYTES` of a node's id."""
KEY_BYTES = 4
"""Bytes of an id in a report: of 256 members two are alike once in 130,000 swarms, and share a fate in reports then."""
PERFECT, WORST = 4, 15
"""Cost of a link that loses nothing, and of the worst that is told, quarters of a transmission."""
Heard: TypeAlias = Mapping[Key, int]
"""Whom a node hears, and what each link costs."""


class Fate(Enum):
    """What is believed of a node that no chain of reports reaches."""

    FAILED = "failed"
    """Everybody who could hear it is reached, and hears it no more."""
    UNREACHABLE = "unreachable"
    """Somebody who could hear it is not reached either, or nobody could: it is cut off, and may be well."""


def life_key(node: bytes, boot: int) -> Key:
    """How a report names the life of a node whose end was seen: what is said of one life is nothing about the next.

    >>> life_key(b"\\x00\\x00\\x01\\x00rest of the id", 3), life_key(b"\\x00\\x00\\x01\\x00rest of the id", 4)
    (b'\\x00\\x00\\x01\\x03', b'\\x00\\x00\\x01\\x04')
    """
    return (int.from_bytes(node[:KEY_BYTES]) ^ boot & 0xFFFF_FFFF).to_bytes(KEY_BYTES)


def link_cost(loss: float) -> int:
    """What a link costs whose round trips are lost at this share.

    >>> link_cost(0.0), link_cost(0.5), link_cost(0.99)
    (4, 8, 15)
    """
    return max(PERFECT, min(WORST, round(PERFECT / max(PERFECT / WORST, 1 - loss))))


def agreed(own: Key, reports: Mapping[Key, Heard], lost: Collection[Key] = ()) -> dict[Key, Heard]:
    """The links that both ends report, or one where the other end reports nobody and is not held for lost.

    Whom somebody hears must hear it too: a stolen key that claims links to others, or to the dead, adds nothing. What
    leads to the node itself is left as it is: it knows whom it hears.

    Args:
        own: The node.
        reports: By author, whom each hears.
        lost: Those that have failed, were members before this node began and have not been heard since, or are none.

    Returns:
        By author, whom each hears that hears it too.

    >>> agreed(b"a", {b"b": {b"a": 4, b"c": 5, b"d": 4, b"e": 4, b"f": 4}, b"c": {b"b": 6}, b"d": {b"c": 4}}, {b"f"})
    {b'b': {b'a': 4, b'c': 5, b'e': 4}, b'c': {b'b': 6}, b'd': {}}
    """
    return {
        author: {
            other: cost
            for other, cost in heard.items()
            if other == own or (author in back if (back := reports.get(other)) else other not in lost)
        }
        for author, heard in reports.items()
    }


def outsiders(reports: Mapping[Key, Heard], members: Collection[Key]) -> set[Key]:
    """Whom reports name and who is no member: shut out since, or forgotten.

    Their own reports went with them, so nothing they say could deny the link; no chain may end at one for that.

    Args:
        reports: By author, whom each hears.
        members: Everybody whom the node knows as a member, itself included.

    >>> outsiders({b"b": {b"a": 4, b"c": 5}}, {b"a", b"b"})
    {b'c'}
    """
    return {other for heard in reports.values() for other in heard if other not in members}


def reached(own: Key, near: Heard, reports: Mapping[Key, Heard]) -> dict[Key, int]:
    """Who is reached from a node, by its own links and what others report of theirs.

    Args:
        own: The node.
        near: Whom it hears itself.
        reports: By author, whom each hears.

    Returns:
        What the cheapest chain to each costs; the node itself is at 0.

    >>> reached(b"a", {b"b": 4}, {b"b": {b"c": 5}, b"d": {b"e": 4}})
    {b'a': 0, b'b': 4, b'c': 9}
    """
    costs: dict[Key, int] = {}
    heap: list[tuple[int, Key]] = [(0, own)]
    while heap:
        cost, key = heappop(heap)
        if key in costs:
            continue
        costs[key] = cost
        for other, step in (near if key == own else reports.get(key, {})).items():
            if other not in costs:
                heappush(heap, (cost + step, other))
    return costs


def beginnings(own: Key, near: Heard, reports: Mapping[Key, Heard], costs: Mapping[Key, int]) -> dict[Key, Key]:
    """With which near member the cheapest chain to each begins; the first that is found where several are as cheap.

    Args:
        own: The node.
        near: Whom it hears itself.
        reports: By author, whom each hears.
        costs: What `reached` says of them.

    >>> near, links = {b"b": 4, b"c": 4}, {b"b": {b"d": 5}, b"d": {b"e": 4}}
    >>> beginnings(b"a", near, links, reached(b"a", near, links))
    {b'b': b'b', b'c': b'c', b'd': b'b', b'e': b'b'}
    """
    found: dict[Key, Key] = {}
    for key in sorted(costs, key=lambda one: (costs[one], one)):
        for other, step in (near if key == own else reports.get(key, {})).items():
            if other not in found and costs[other] == costs[key] + step:
                found[other] = other if key == own else found[key]
    return found


def awake(own: Key, near: Heard, links: Mapping[Key, Heard], frozen: Mapping[Key, Collection[Key]]) -> Collection[Key]:
    """Who is heard by somebody that is awake and does not hold it for frozen; from a node on, which is awake.

    Args:
        own: The node.
        near: Whom it hears.
        links: By author, whom each other hears.
        frozen: By author, the node itself among them, whom of those it holds for frozen.

    Returns:
        All that are reached by such links. What others of those that are reached said last may be old.

    >>> links = {b"b": {b"c": 4, b"d": 4}, b"c": {b"d": 4}, b"d": {b"c": 4, b"e": 4}}
    >>> sorted(awake(b"a", {b"b": 4}, links, {b"b": [b"d"]}))
    [b'a', b'b', b'c', b'd', b'e']
    >>> sorted(awake(b"a", {b"b": 4}, links, {b"b": [b"c", b"d"]}))
    [b'a', b'b']
    """
    sure = {
        author: {other: 1 for other in heard if other not in frozen.get(author, ())} for author, heard in links.items()
    }
    return reached(own, {other: 1 for other in near if other not in frozen.get(own, ())}, sure).keys()


def without(ended: Collection[Key], links: Mapping[Key, Heard], sure: Collection[Key]) -> dict[Key, Heard]:
    """The links but those to nodes that have ended, by word of somebody who heard them, of authors that are not awake.

    Whom somebody awake hears has not ended, whoever says so.

    Args:
        ended: Of whom somebody who heard them says that they have ended.
        links: By author, whom each hears.
        sure: Who is awake.

    >>> without([b"d"], {b"b": {b"c": 4}, b"c": {b"b": 4, b"d": 4}}, [b"a", b"b"])
    {b'b': {b'c': 4}, b'c': {b'b': 4}}
    >>> without([b"d"], {b"b": {b"c": 4, b"d": 4}, b"c": {b"b": 4, b"d": 4}}, [b"a", b"b", b"d"])
    {b'b': {b'c': 4, b'd': 4}, b'c': {b'b': 4, b'd': 4}}
    """
    over = [key for key in ended if key not in sure]
    return {
        author: heard if author in sure else {other: cost for other, cost in heard.items() if other not in over}
        for author, heard in links.items()
    }


def fate(key: Key, reach: Mapping[Key, int], hearers: Iterable[Key], gone: bool) -> Fate:
    """What is believed of a node that is not reached.

    Args:
        key: The node.
        reach: Who is reached.
        hearers: Who could hear it, by the last reports of both sides.
        gone: One of them has seen that no process listens there.

    Returns:
        Its fate: a kernel that refuses is proof wherever the others are, and where nobody could hear it, no silence is.

    >>> fate(b"c", {b"a": 0, b"b": 4}, [b"b", b"d"], gone=False), fate(b"d", {b"a": 0, b"c": 4}, [b"c"], gone=False)
    (<Fate.UNREACHABLE: 'unreachable'>, <Fate.FAILED: 'failed'>)
    >>> fate(b"d", {b"a": 0, b"c": 4}, [], gone=False)
    <Fate.UNREACHABLE: 'unreachable'>
    """
    others = {hearer for hearer in hearers if hearer != key}
    return Fate.FAILED if gone or (others and others <= reach.keys()) else Fate.UNREACHABLE
