"""How many hits a cache that knows the future has: what any policy is held against."""

from collections.abc import Sequence
from heapq import heappop, heappush


def belady_hits(trace: Sequence[tuple[int, object]], size: int, keep: int) -> int:
    """The most hits of a cache of `size` answers that are good for `keep` after they were put in.

    An answer is put in when it was asked for and is not there; the one that is wanted again last, or not while it is
    good, makes room. A question is not put in where it is the least worth itself.

    Args:
        trace: Moment and key of each question, in order of time.
        size: Answers at once.
        keep: For how long an answer is good.

    Source:
        Belady (1966), "A study of replacement algorithms", with answers that end.
    """
    never = len(trace)
    following: list[int] = [never] * len(trace)
    last: dict[object, int] = {}
    for at in range(len(trace) - 1, -1, -1):
        following[at] = last.get(trace[at][1], never)
        last[trace[at][1]] = at
    held: dict[object, tuple[int, int]] = {}
    """Key: until when it is good, and where it is asked for next while it is."""
    furthest: list[tuple[int, int, object]] = []
    hits = 0
    for at, (now, key) in enumerate(trace):
        until = now + keep
        if key in held and held[key][0] > now:
            hits += 1
            until = held[key][0]
        held.pop(key, None)
        wanted = following[at]
        if wanted == never or trace[wanted][0] >= until:
            continue  # It would serve nobody.
        held[key] = until, wanted
        heappush(furthest, (-wanted, at, key))
        while len(held) > size:
            minus, _, other = heappop(furthest)
            if other in held and held[other][1] == -minus:
                del held[other]
    return hits
