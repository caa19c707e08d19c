"""How far a swarm has come: when it has formed, when it agrees again, and the rows of the plots."""

from dataclasses import dataclass

from swarmd_sim.checkers.base import RunContext
from swarmd_sim.run.scenario import NS_PER_S

STEP_NS = NS_PER_S
"""How often a run is looked at from outside."""
_FEW_HOSTS, _SELDOM = 100, 5
"""Digests of more hosts than this are compared only so many steps apart, until the quiet time begins."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of the plots."""

    at_ns: int
    live: int
    digests: int
    sent_bytes: int
    sent_packets: int


class Milestones:
    """What a run has reached so far.

    Args:
        run: The run.
        quiet_ns: When the quiet time begins.
        is_partial: Whether nodes keep partial views.
    """

    def __init__(self, run: RunContext, quiet_ns: int, *, is_partial: bool) -> None:
        self._run = run
        self._is_partial = is_partial
        self.quiet_ns = quiet_ns
        self.converged_ns = -1
        """From when on all digests have been equal in the quiet time; -1 while they are not."""
        self.formed_ns = -1
        """When everybody was told of everybody; with partial views, the second from which everybody is known to
        somebody and has heard somebody."""
        self.booted = 0
        """Hosts that have had their first boot."""
        self.samples: list[Sample] = []

    def on_step(self, now_ns: int) -> None:
        """About once a virtual second."""
        self._sample(now_ns)
        run = self._run
        if self.formed_ns < 0 and self.booted == len(run.hosts):
            if self._is_partial:
                self.formed_ns = (
                    now_ns if all(h.life.known_ns >= 0 and h.life.first_heard_ns >= 0 for h in run.hosts) else -1
                )
            elif run.watch.joins >= len(run.hosts) * (len(run.hosts) - 1):  # Counted, not polled.
                self.formed_ns = run.watch.last_join_ns

    def _sample(self, now_ns: int) -> None:
        """How many digests there are, and the traffic so far."""
        run = self._run
        every = 1 if len(run.hosts) <= _FEW_HOSTS or now_ns >= self.quiet_ns else _SELDOM
        if (now_ns // STEP_NS) % every:
            return
        live = [host for host in run.hosts if host.process_up and not host.life.left]
        digests = {run.digest_of(host) for host in live}
        sent = run.network
        self.samples.append(Sample(now_ns, len(live), len(digests), sum(sent.sent_bytes), sum(sent.sent_packets)))
        if now_ns >= self.quiet_ns:
            if len(digests) > 1:
                self.converged_ns = -1
            elif self.converged_ns < 0:
                self.converged_ns = now_ns
