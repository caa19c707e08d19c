"""Deltas that do not come: their only holder is gone, and others have the whole file.

A device with the base of a delta asks for that and not for the file. Where nobody shows what is missing of it, for half
a minute in which somebody could have, it is given up in this life, and the file is asked for.
"""

from swarmd_protocols.releases.fetching import Fetcher, may_come

PATIENCE_NS = 30_000_000_000
"""Holders show their chunks in a second; one that starts again, or comes back from a cut, in some ten."""
_SEEN_MAX = 64
"""Deltas that are waited for at a time; each is the one of a file of a desired release."""


class DeltaStalls:
    """Since when nobody shows what is missing of each delta.

    Args:
        fetcher: Gets them.
    """

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._since_ns: dict[bytes, int] = {}

    def is_over(self, digest: bytes, now_ns: int) -> bool:
        """Whether a delta that is wanted has to be given up; called now and then while it is."""
        if may_come(self._fetcher, digest):
            self._since_ns.pop(digest, None)
            return False
        if len(self._since_ns) >= _SEEN_MAX and digest not in self._since_ns:
            del self._since_ns[next(iter(self._since_ns))]
        return now_ns - self._since_ns.setdefault(digest, now_ns) >= PATIENCE_NS
