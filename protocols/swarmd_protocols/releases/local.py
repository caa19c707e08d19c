"""One model as it stands on this node: what `policy.py` decides from and `own_word.py` reports."""

import msgspec

from swarmd_protocols.releases.reports import Verdict


class LocalModel(msgspec.Struct):
    """One model as it stands on this node."""

    known: bool = False
    """The daemon has said what runs here; before that nothing is decided."""
    runs: bool = True
    """False: a cache, which fetches and gives and has no say."""
    active: bytes = b""
    trial: bytes = b""
    retry_ns: int = 0
    """After a trial that could not be made: not before then."""
    kept: tuple[bytes, ...] = ()
    """Releases that lie in slots and were good here: one can go back to them at once."""
    phase: str = "idle"
    about: bytes = b""
    """The release that phase and verdict are about."""
    verdict: Verdict = Verdict.NONE
    soak_s: int = 0
    samples: int = 0
    reason: str = ""
    sequence: int = 0
    said: bytes = b""
    """Digest of the own last report."""
    floor: tuple[int, tuple[int, int]] = (0, (0, 0))
    """(epoch of the root, floor) that the slots were told last."""
    prepared: set[bytes] = msgspec.field(default_factory=set)
    started: set[bytes] = msgspec.field(default_factory=set)
    failed: set[bytes] = msgspec.field(default_factory=set)
    open_since_ns: dict[tuple[bytes, int], int] = msgspec.field(default_factory=dict)
    announced: set[tuple[bytes, str, int]] = msgspec.field(default_factory=set)
    went_back: set[bytes] = msgspec.field(default_factory=set)
