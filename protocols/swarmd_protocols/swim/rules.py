"""The pure decisions of membership: small functions that a table can test."""

from hashlib import blake2b
from math import ceil, log

from swarmd_protocols.trust.envelopes import mark_of

BOOT_SHIFT = 20
"""An incarnation is boot number * 2**20 + refutations: a restart supersedes everything of the life before."""
BOOT_MAX = 2**40
"""Far beyond any node's life; larger numbers are damage or malice and are not followed."""
WITNESSES_WANTED = 2
"""Members that hear a deaf one and keep it from being failed: never one, so that a single liar keeps nobody alive."""


def suspicion_timeout_ns(confirmed: int, wanted: int, min_ns: int, max_ns: int) -> int:
    """Time a suspect gets to refute before it may be declared failed.

    Args:
        confirmed: Distinct members, beyond the first, that suspect the node; >= 0.
        wanted: Confirmations at which the timeout is shortest; >= 1.
        min_ns: Shortest timeout, nanoseconds; > 0.
        max_ns: Longest timeout, nanoseconds; >= `min_ns`.

    Returns:
        Nanoseconds from the first suspicion, within [min_ns, max_ns].

    Source:
        Lifeguard (Dadgar, Phillips, Currey, 2018), LHA-Suspicion, over SWIM section 4.2.

    >>> suspicion_timeout_ns(1, 3, min_ns=2_000, max_ns=10_000)
    6000
    """
    share = log(confirmed + 1) / log(wanted + 1)
    return max(min_ns, round(max_ns - (max_ns - min_ns) * share))


def attempts_needed(round_trip_loss: float, error: float, most: int = 24) -> int:
    """How many unanswered pings in a row make silence believable.

    With independent losses, n pings to a healthy member all stay unanswered with probability loss ** n; this is the
    smallest n that brings it to `error`. On a clean network few pings suffice; at 30 % loss a way (half the round
    trips) it takes many, and that is what keeps false alarms away.

    Args:
        round_trip_loss: Share of own pings to answering members that stay unanswered; 0.0 to 1.0.
        error: Accepted probability; 0 < `error` < 1.
        most: Upper limit, >= 1.

    Returns:
        Between 2 and `most`.

    >>> attempts_needed(0.03, 1e-6), attempts_needed(0.51, 1e-6)
    (4, 21)
    """
    loss = min(0.95, max(0.03, round_trip_loss))
    return max(2, min(most, ceil(log(error) / log(loss))))


def transmit_limit(members: int, gossip_lambda: int) -> int:
    """How many datagrams of this node an update rides in: lambda * log2(n + 1), rounded up (SWIM section 4.1).

    >>> transmit_limit(7, 3)
    9
    """
    return gossip_lambda * max(1, (members).bit_length())


def eager_fanout(members: int, extra: int = 2) -> int:
    """How many members hear urgent news at once from each that hears it first.

    A push to f random members, repeated once by each, misses a share e**-f: ln n + 2 leaves 0.14 members out.

    >>> eager_fanout(64)
    7
    """
    return ceil(log(max(2, members))) + extra


def accusers_wanted(members: int, configured: int) -> int:
    """Distinct signers that make others' word enough: never one, so a single stolen key convinces nobody."""
    return max(2, min(configured, members))


def fingerprint(data: bytes) -> int:
    """64 bits of an item, for digests and repair."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def trust_mark(statement: bytes) -> int:
    """The same of a statement of trust: of what it says and who has signed it."""
    return fingerprint(mark_of(statement))


def pack_fingerprints(items: list[int]) -> bytes:
    """8 bytes each."""
    return b"".join([item.to_bytes(8, "big") for item in items])


def unpack_fingerprints(data: bytes) -> list[int]:
    """The reverse of `pack_fingerprints`; bytes beyond the last whole item are ignored."""
    return [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data) - 7, 8)]
