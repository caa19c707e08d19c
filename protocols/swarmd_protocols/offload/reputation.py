"""What a lender's answers were worth: spot checks against the own model, forgotten by half in a while.

A lender's *share wrong* is the lower end of what its checks leave likely, so that one bad check of an honest lender
ejects nobody and a liar does not last. Checks fade, so an ejected lender comes back when nothing has been held against
it for long enough; it then starts with half of its bad name.
"""

from dataclasses import dataclass

from swarmd_protocols.ids import NodeId


@dataclass(frozen=True, slots=True)
class ReputationConfig:
    """When a lender is asked no more."""

    half_life_ns: int = 600_000_000_000
    """In which a check counts half: ten minutes, a flight's half."""
    prior_right: float = 8.0
    """Right checks that everybody begins with: an honest lender of 2 % slips is ejected once in 10,000 checks."""
    prior_wrong: float = 0.4
    """Wrong ones; a twentieth."""
    eject_above: float = 0.30
    """Share wrong from which a lender is asked no more: runtimes differ in a few of 100 answers, never in a third."""
    lenders_max: int = 256
    """Lenders remembered; the one that was checked longest ago is forgotten first."""


@dataclass(slots=True)
class _Record:
    right: float = 0.0
    wrong: float = 0.0
    at_ns: int = 0


class Reputation:
    """The own opinion of each lender; nobody else's word enters it."""

    def __init__(self, config: ReputationConfig) -> None:
        """Think well of everybody."""
        self._config = config
        self._records: dict[NodeId, _Record] = {}
        """The one that was checked longest ago first."""

    def note(self, lender: NodeId, is_right: bool, now_ns: int) -> None:
        """A spot check has been decided."""
        record = self._records.pop(lender, None) or _Record(at_ns=now_ns)
        fade = self._fade(record, now_ns)
        self._records[lender] = _Record(record.right * fade + is_right, record.wrong * fade + (not is_right), now_ns)
        while len(self._records) > self._config.lenders_max:
            del self._records[next(iter(self._records))]

    def share_wrong(self, lender: NodeId, now_ns: int) -> float:
        """Of its answers, by the checks that still count; within (0, 1)."""
        config, record = self._config, self._records.get(lender, _Record(at_ns=now_ns))
        fade = self._fade(record, now_ns)
        wrong = config.prior_wrong + record.wrong * fade
        return wrong / (config.prior_right + config.prior_wrong + (record.right + record.wrong) * fade)

    def is_ejected(self, lender: NodeId, now_ns: int) -> bool:
        """Whether it is asked no more, for now."""
        return self.share_wrong(lender, now_ns) > self._config.eject_above

    def _fade(self, record: _Record, now_ns: int) -> float:
        return float(0.5 ** (max(0, now_ns - record.at_ns) / self._config.half_life_ns))
