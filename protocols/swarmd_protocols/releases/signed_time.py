"""The lower bound of the time: from signed statements and from how long this node ran, never from a wall clock.

It is never set back but by a root of a new epoch: keys that were stolen may have said that it is far too late, and
would call the news of those that replaced them old for ever. What counts under that root then says the time anew.
"""

from swarmd_protocols.effects import Persist
from swarmd_protocols.releases import versions
from swarmd_protocols.subprotocol import SubEffect

TIME = b"releases/t"
"""Journal key of the bound: 8 bytes of it, 8 of the root's epoch under which it was held."""
_TIME_EVERY_S = 600
"""The bound is written at most so often: flash wears."""
_NS_PER_S = 1_000_000_000


class SignedTime:
    """How late it is at least, and for how long no heartbeat was new.

    Args:
        kept: The journal's record; b"" for none.
        stale_after_ns: Without a new heartbeat for so long, what this node knows may be old.
    """

    def __init__(self, kept: bytes, stale_after_ns: int) -> None:
        self._known_s = self._kept_s = int.from_bytes(kept[:8], "big")
        self._epoch = int.from_bytes(kept[8:16], "big")
        self._known_ns: int | None = None
        self._stale_after_ns = stale_after_ns
        self._heartbeat_ns = 0

    def on_heartbeat(self, now_ns: int) -> None:
        """The publisher's heartbeat is new; also at the start of a life."""
        self._heartbeat_ns = now_ns

    def silent_ns(self, now_ns: int) -> int:
        """Since the last new heartbeat of this life."""
        return now_ns - self._heartbeat_ns

    def is_stale(self, view: versions.View, now_ns: int) -> bool:
        """Whether no heartbeat was new for so long that it may be a freeze, in this life or over many."""
        if self.silent_ns(now_ns) > self._stale_after_ns:
            return True
        heard_s = view.heartbeat_at_s
        return bool(heard_s) and (self.low_s(view, now_ns) - heard_s) * _NS_PER_S > self._stale_after_ns

    def low_s(self, view: versions.View, now_ns: int) -> int:
        """It is at least this late, Unix seconds; 0 for unknown."""
        passed_s = (now_ns - self._known_ns) // _NS_PER_S if self._known_ns is not None else 0
        return versions.advance_time_s(self._known_s, passed_s if self._known_s else 0, view.issued_at_s)

    def judge(self, epoch: int) -> None:
        """The newest root has this epoch: where it is a new one, what was said of the time before is void."""
        if self._epoch and epoch > self._epoch:
            self._known_s = self._kept_s = 0
            self._known_ns = None
        self._epoch = max(self._epoch, epoch)

    def keep(self, view: versions.View, now_ns: int) -> list[SubEffect]:
        """Move the bound forward, and write it down now and then."""
        now_s = self.low_s(view, now_ns)
        if self._known_ns is None or now_s > self._known_s:
            self._known_s, self._known_ns = now_s, now_ns
        if now_s < self._kept_s + _TIME_EVERY_S:
            return []
        self._kept_s = now_s
        return [Persist(TIME, now_s.to_bytes(8, "big") + self._epoch.to_bytes(8, "big"))]
