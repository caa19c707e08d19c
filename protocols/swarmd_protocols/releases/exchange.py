"""How two nodes come to know the same statements: eager push of news, and repair when their summaries differ."""

import random
from collections.abc import Mapping, Sequence

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.allowance import MAX_PEERS, Seldom
from swarmd_protocols.releases.messages import (
    MAX_PUSH_BYTES,
    PREFIX_BYTES,
    Have,
    Push,
    Want,
    encode_message,
    join_prefixes,
    split_prefixes,
)
from swarmd_protocols.subprotocol import Priority, Send

FANOUT = 3
"""Peers that news go to at once; each does the same, so all of N have it after log_3 N steps."""
REPAIR_EVERY_NS = 1_000_000_000
"""Between two comparisons with one peer, nanoseconds."""
ROOT_COST, STATEMENT_COST, REPORT_COST = 8, 4, 1
"""What checking costs its receiver, in verifications: both thresholds of a root, those of a role, one key."""
MAX_PUSH_COST = 64
"""Of one message so much is checked: 6 ms of the event loop at 100 us a report, the verification included."""


class Exchange:
    """Composes messages; decides nothing about trust.

    Args:
        rng: Chooses whom news go to; injected.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._repairs = Seldom(REPAIR_EVERY_NS, MAX_PEERS)

    def push_news(self, peers: Sequence[NodeId], message: Push, origin: NodeId | None) -> list[Send]:
        """Tell a few peers at once; every node that learns it does the same, once."""
        others = [node for node in peers if node != origin]
        chosen = others if len(others) <= FANOUT else sorted(self._rng.sample(others, FANOUT))
        data = encode_message(message)
        return [Send(node, data, reliable=True, priority=Priority.SYNC) for node in chosen]

    def repair(self, peer: NodeId, have: Have, now_ns: int) -> list[Send]:
        """A peer's summary differs: compare, at a bounded rate."""
        if not self._repairs.is_due(peer, now_ns):
            return []
        return [Send(peer, encode_message(have), reliable=True, priority=Priority.SYNC)]

    def answer_have(self, sender: NodeId, theirs: Have, ours: Have, everything: "Catalogue") -> list[Send]:
        """Send what they lack, ask for what we lack."""
        sends = everything.push_to(
            sender, theirs.roots, split_prefixes(theirs.statements), split_prefixes(theirs.reports)
        )
        lack_statements = split_prefixes(theirs.statements) - split_prefixes(ours.statements)
        lack_reports = split_prefixes(theirs.reports) - split_prefixes(ours.reports)
        if lack_statements or lack_reports or theirs.roots > ours.roots:
            want = Want(ours.roots, join_prefixes(sorted(lack_statements)), join_prefixes(sorted(lack_reports)))
            sends.append(Send(sender, encode_message(want), reliable=True, priority=Priority.SYNC))
        return sends


class Catalogue:
    """Everything that one node could pass on.

    Args:
        roots: Encoded roots, oldest first.
        statements, reports: Encoded envelopes by digest.
    """

    def __init__(
        self, roots: Sequence[bytes], statements: Mapping[bytes, bytes], reports: Mapping[bytes, bytes]
    ) -> None:
        self._roots = roots
        self._statements = statements
        self._reports = reports

    def have(self, reply: bool) -> Have:
        """What we know, as prefixes."""
        return Have(len(self._roots), join_prefixes(list(self._statements)), join_prefixes(list(self._reports)), reply)

    def push_to(self, peer: NodeId, roots: int, statements: set[bytes], reports: set[bytes]) -> list[Send]:
        """All that a peer with these roots and prefixes lacks."""
        new_statements = [data for digest, data in self._statements.items() if digest[:PREFIX_BYTES] not in statements]
        new_reports = [data for digest, data in self._reports.items() if digest[:PREFIX_BYTES] not in reports]
        return _pushes(peer, self._roots[roots:], new_statements, new_reports)

    def give(self, peer: NodeId, want: Want) -> list[Send]:
        """What a peer asked for."""
        wanted_statements, wanted_reports = split_prefixes(want.statements), split_prefixes(want.reports)
        return _pushes(
            peer,
            self._roots[want.roots :],
            [data for digest, data in self._statements.items() if digest[:PREFIX_BYTES] in wanted_statements],
            [data for digest, data in self._reports.items() if digest[:PREFIX_BYTES] in wanted_reports],
        )


def _pushes(peer: NodeId, roots: Sequence[bytes], statements: list[bytes], reports: list[bytes]) -> list[Send]:
    """Roots first, in messages of bounded size."""
    sends: list[Send] = []
    items = [(0, one) for one in roots] + [(1, one) for one in statements] + [(2, one) for one in reports]
    costs = (ROOT_COST, STATEMENT_COST, REPORT_COST)
    batch: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
    size = cost = 0
    for kind, data in (*items, (-1, b"")):
        if size and (kind < 0 or size + len(data) > MAX_PUSH_BYTES or cost + costs[kind] > MAX_PUSH_COST):
            message = Push(tuple(batch[0]), tuple(batch[1]), tuple(batch[2]))
            sends.append(Send(peer, encode_message(message), reliable=True, priority=Priority.SYNC))
            batch, size, cost = ([], [], []), 0, 0
        if kind >= 0:
            batch[kind].append(data)
            size += len(data)
            cost += costs[kind]
    return sends
