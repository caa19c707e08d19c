"""What one member may make this node do: an account of work for each, which debts silence until time has paid them.

Rules this file keeps:

- Work is counted, not timed, so that every run of the simulator decides alike; a unit is about a microsecond on the
  reference machine (`tests/bench/hostile_state.py` measures how far off that is).
- Work that was begun is finished: an account may go below zero. While it is, nothing new of its owner is taken in.
  So what an owner costs in the long run is the rate, whatever a single message makes necessary.
- Who goes below zero is named, at most once a minute, with what it sent since its account was last full.
"""

from dataclasses import dataclass

from swarmd_protocols.effects import Alarm
from swarmd_protocols.ids import NodeId

WORK_RATE = 18_000
"""Units of work a second, 1.8 % of a core, for what a member signs and again for what it sends: with the bursts spread
over a minute and what cannot be attributed it stays below 5 %."""
AUTHOR_BURST = 500_000
"""Units that may come at once of one author: an honest log of 2,000 sightings that a newcomer reads."""
SENDER_BURST = 200_000
"""Units that may come at once from one sender: questions and repairs of a newcomer that lacks 1.6 MB."""
ALARM_NS = 60_000_000_000
"""Least time between two alarms about one member: an alarm is for people."""
ACCOUNTS_MAX = 8_192
"""More accounts than a swarm has members are not kept; those that are full are dropped first."""
MESSAGE_UNITS = 20
"""Reading one message, whatever it says."""
OPEN_UNITS = 20
"""Reading the header of one batch and looking whether it is known."""
VERIFY_UNITS = 150
"""Checking one Ed25519 signature (libsodium: 100 to 150 us on the reference machine)."""
BATCH_UNITS = 150
"""Keeping one batch: hashes, frontier, journal, passing on."""
ROW_UNITS = 25
"""Decoding a row and putting it into a view, beside the decisions it causes, which the view counts itself."""
HAVE_ROW_UNITS = 5
"""Comparing one origin of a peer's summary."""
BYTES_A_UNIT = 8
"""Repairs sent on request: 18,000 units are 144 kB a second to one peer after a first 1.6 MB."""

_NS = 1_000_000_000


@dataclass(slots=True)
class _Account:
    level: int
    """Units left times 10^9; below zero it is a debt."""
    at_ns: int
    units: int = 0
    """Spent since the account was last full."""
    things: int = 0
    """Batches or messages since then."""
    evidence: str = ""
    alarmed_ns: int = -ALARM_NS


class Accounts:
    """One account for each member, in one role: what it wrote, or what it sent."""

    def __init__(self, code: str, what: str, burst: int) -> None:
        """All accounts are full.

        Args:
            code: Of the alarms.
            what: What the members do here, for people: "signed" or "sent".
            burst: Units that an account holds.
        """
        self._burst = burst
        self._code = code
        self._what = what
        self._accounts: dict[NodeId, _Account] = {}
        self.debtors: set[NodeId] = set()
        """Who was below zero when last asked."""

    def is_in_debt(self, node: NodeId, now_ns: int) -> bool:
        """Whether nothing new of this member is to be taken in."""
        account = self._accounts.get(node)
        if account is None:
            return False
        self._refill(account, now_ns)
        if account.level < 0:
            return True
        self.debtors.discard(node)
        return False

    def charge(self, node: NodeId, units: int, now_ns: int, things: int = 0, evidence: str = "") -> list[Alarm]:
        """Book work.

        Args:
            node: Who caused it.
            units: How much.
            now_ns: Own monotonic clock.
            things: Batches or messages among it.
            evidence: What the member did last, for the alarm; signed by it where it is its own.

        Returns:
            An alarm when the account has just gone below zero.
        """
        account = self._accounts.get(node)
        if account is None:
            if len(self._accounts) >= ACCOUNTS_MAX:
                self._drop_full(now_ns)
            account = self._accounts[node] = _Account(self._burst * _NS, now_ns)
        self._refill(account, now_ns)
        account.level -= units * _NS
        account.units += units
        account.things += things
        account.evidence = evidence or account.evidence
        if account.level >= 0:
            return []
        self.debtors.add(node)
        if now_ns - account.alarmed_ns < ALARM_NS:
            return []
        account.alarmed_ns = now_ns
        text = (
            f"{node.hex()} {self._what} {account.things} things that cost {account.units / 1e6:.2f} s of work, more "
            f"than {self._burst / 1e6} s and {WORK_RATE / 1e4} % of a core after that: what else it says waits"
        )
        return [Alarm(self._code, f"{text}; the last was {account.evidence}" if account.evidence else text)]

    def _refill(self, account: _Account, now_ns: int) -> None:
        account.level += max(0, now_ns - account.at_ns) * WORK_RATE
        account.at_ns = max(account.at_ns, now_ns)
        if account.level >= self._burst * _NS:
            account.level = self._burst * _NS
            account.units = account.things = 0

    def _drop_full(self, now_ns: int) -> None:
        for node, account in list(self._accounts.items()):
            self._refill(account, now_ns)
            if account.level == self._burst * _NS:
                del self._accounts[node]
        while len(self._accounts) >= ACCOUNTS_MAX:
            del self._accounts[next(iter(self._accounts))]
