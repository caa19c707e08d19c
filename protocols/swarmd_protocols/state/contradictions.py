"""Authors who have told two parts of a swarm different things under one number, and then went on alike.

A summary shows the last batch of a log, so two logs that end alike look alike, though the digests differ for good: the
parts would compare for ever, agree never, and nobody would be named.

Rules this file keeps:

- Where groups of origins were compared, one that differs and in which neither side lacks anything holds an author that
  contradicts itself: positions and digests of one moment cannot both be right. An honest swarm has none.
- In such a group each side names what it holds, a message full each time, and is asked for what the other has not got.
  That is the second half of a proof; with the proof both have one state, and it is over.
- Where positions alone are compared, since there are few origins, two comparisons that changed nothing on either side
  are followed by one of groups.
- Nothing is said here but names of batches: at most one message for a comparison of groups that this node began.
"""

from collections.abc import Collection, Iterable, Set

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch
from swarmd_protocols.state.crdt.messages import BUCKET_HASH_BYTES, BUCKETS, IDS_MAX, LASTING, Have
from swarmd_protocols.state.crdt.store import Store, bucket_of, room_in

IN_VAIN = 2
"""Comparisons that changed nothing, of digests that stay: one may have been lost on the way."""


class Contradictions:
    """What one node knows of comparisons that bring nothing."""

    def __init__(self, store: Store) -> None:
        """Nobody was compared with."""
        self._store = store
        self._compared: dict[NodeId, tuple[bytes, int]] = {}
        """By peer: both digests when facts were last compared, and how often they were the same."""
        self._shown: dict[NodeId, bytes] = {}
        """The hashes of groups that a peer was shown, until it has answered."""
        self._turn = 0

    def keep(self, peers: Set[NodeId]) -> None:
        """Only these can be reached."""
        self._compared = {peer: last for peer, last in self._compared.items() if peer in peers}
        self._shown = {peer: hashes for peer, hashes in self._shown.items() if peer in peers}

    def is_in_vain(self, peer: NodeId, theirs: bytes) -> bool:
        """Whether facts were compared with a peer again and again, and both digests are what they were."""
        both = self._store.lasting_digest() + theirs
        last, times = self._compared.get(peer, (b"", 0))
        times = times + 1 if both == last else 0
        self._compared[peer] = both, times
        return times >= IN_VAIN

    def note_shown(self, peer: NodeId, hashes: bytes) -> None:
        """A peer is shown these hashes of groups of facts."""
        self._shown[peer] = hashes

    def to_name(self, peer: NodeId, have: Have, differing: Collection[bytes], muted: Set[NodeId]) -> list[Batch]:
        """Facts to be named to a peer that has answered hashes of groups.

        Args:
            peer: Whose summary it is.
            have: The summary.
            differing: Origins of which either side lacks something, or has a proof.
            muted: Origins of which nothing was compared.
        """
        hashes = self._shown.pop(peer, b"") if have.reply and have.buckets and have.scope & LASTING else b""
        if not hashes:
            return []
        unsaid = {origin for origin, positions in have.rows if room_in(positions) == 0}
        excused = {bucket_of(origin) for origin in (*differing, *muted, *unsaid)}
        own = self._store.bucket_hashes()[0]
        groups = [
            group
            for group in range(BUCKETS)
            if have.buckets >> group & 1 and group not in excused and _of(hashes, group) == _of(own, group)
        ]
        return self._part(groups)

    def _part(self, groups: Iterable[int]) -> list[Batch]:
        """A message full of what is held of these groups, another one each time."""
        wanted = set(groups)
        logs = [log for origin, log in sorted(self._store.logs.items()) if bucket_of(origin) in wanted]
        total = sum(len(log.facts) for log in logs)
        if not total:
            return []
        first = self._turn * IDS_MAX % total
        self._turn += 1
        found: list[Batch] = []
        for log in logs:
            if first >= len(log.facts):
                first -= len(log.facts)
                continue
            found += [log.facts[dot] for dot in sorted(log.facts)[first : first + IDS_MAX - len(found)]]
            first = 0
            if len(found) == IDS_MAX:
                break
        return found


def _of(hashes: bytes, group: int) -> bytes:
    return hashes[group * BUCKET_HASH_BYTES : (group + 1) * BUCKET_HASH_BYTES]
