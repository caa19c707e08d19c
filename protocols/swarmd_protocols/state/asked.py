"""What was asked of whom and has not come yet.

Rules this file keeps:

- A peer that has just been asked is not asked again before it can have answered: two questions that cross, one of each
  side, are answered once.
- What does not come is asked for again, of who has shown or named it, for a bounded number of times.
- What is held is not wanted, whoever names it, nor what waits here for its author's certificate.
"""

from collections.abc import Collection, Sequence, Set

import msgspec

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt.batch import Batch
from swarmd_protocols.state.crdt.messages import IDS_MAX, LASTING, Have
from swarmd_protocols.state.crdt.store import Store

_WANTS_MAX = 256
"""Things asked for whose answers are awaited; others are asked for at the next comparison."""


class _Want(msgspec.Struct):
    """Something a peer has shown that it holds and that has not come yet."""

    peer: NodeId
    positions: tuple[tuple[int, int, int, bytes], ...]
    scope: int
    tries: int


class Asked:
    """The open questions of one node."""

    def __init__(self, config: ReplicaConfig, store: Store, known: dict[bytes, Batch | None]) -> None:
        """Nothing is asked.

        Args:
            config: Periods.
            store: What is held.
            known: What came lately, by the first bytes of its digest, whether or not it was of use.
        """
        self._config = config
        self._store = store
        self._known = known
        self._shown_ns: dict[NodeId, int] = {}
        """When a peer was last shown which facts are held here, which it answers with all that it has beyond."""
        self._wants: dict[NodeId, _Want] = {}
        self.keyless: dict[bytes, None] = {}
        """Batches that came and wait for their author's certificate, by name: to ask for them again brings nothing."""
        self._named: dict[bytes, tuple[NodeId, int]] = {}
        """Batches of a `Recent` that have not come yet: who named them last, and how often they were asked for."""

    def keep(self, peers: Set[NodeId]) -> None:
        """Only these can be reached."""
        self._shown_ns = {peer: at_ns for peer, at_ns in self._shown_ns.items() if peer in peers}

    def note_shown(self, peer: NodeId, scope: int, now_ns: int) -> None:
        """A peer is shown what is held here of this scope."""
        if scope & LASTING:
            self._shown_ns[peer] = now_ns

    def may_answer(self, peer: NodeId, within_ns: int, now_ns: int) -> bool:
        """Whether a peer was shown what is held here within this time: its answer may be under way."""
        at_ns = self._shown_ns.get(peer)
        return at_ns is not None and now_ns - at_ns < within_ns

    def remember(self, peer: NodeId, have: Have, wanted: Collection[NodeId]) -> None:
        """A peer has shown that it holds more of these origins."""
        wants = set(wanted)
        for origin, positions in have.rows:
            if origin in wants and NodeId(origin) not in self._wants and len(self._wants) < _WANTS_MAX:
                self._wants[NodeId(origin)] = _Want(peer, positions, have.scope, 0)

    def missing(self, peer: NodeId, names: Sequence[bytes]) -> list[bytes]:
        """What neither came nor is held of what a peer names."""
        missing = [one for one in names if not self._has(one)]
        for one in missing:
            if one in self._named or len(self._named) < _WANTS_MAX:
                self._named[one] = (peer, self._named.get(one, (peer, 0))[1])
        return missing

    def _has(self, name: bytes) -> bool:
        return name in self._known or name in self._store.names or name in self.keyless

    @property
    def has_open(self) -> bool:
        """Whether something that was asked for has not come yet."""
        return bool(self._wants or self._named)

    def origins_again(self, muted: Set[NodeId]) -> dict[tuple[NodeId, int], list[NodeId]]:
        """Of whom to ask once more, by peer and scope; who is muted is not asked for."""
        asked: dict[tuple[NodeId, int], list[NodeId]] = {}
        for origin, want in list(self._wants.items()):
            if (
                origin in muted
                or want.tries >= self._config.ask_tries
                or not self._store.lacks(origin, want.positions, want.scope)
            ):
                del self._wants[origin]
                continue
            want.tries += 1
            asked.setdefault((want.peer, want.scope), []).append(origin)
        return asked

    def names_again(self) -> dict[NodeId, list[bytes]]:
        """Which batches to ask for once more by name, by peer: as many as one message names."""
        named: dict[NodeId, list[bytes]] = {}
        for one, (peer, tries) in list(self._named.items()):
            if tries >= self._config.ask_tries or self._has(one):
                del self._named[one]
            else:
                self._named[one] = (peer, tries + 1)
                named.setdefault(peer, []).append(one)
        return {peer: names[:IDS_MAX] for peer, names in named.items()}
