"""What can be tuned in membership, in the units that the protocol computes with."""

from typing import Literal

import msgspec

from swarmd_protocols.errors import StateError

_MS = 1_000_000
_S = 1_000_000_000


class SwimConfig(msgspec.Struct, frozen=True):
    """The default is the budget profile: a crash is known everywhere in under a second at under 1,000 B/s a node.

    Sources of the defaults: SWIM (Das, Gupta, Motivala, 2002), Lifeguard (Dadgar, Phillips, Currey, 2018), and
    measurements noted at the field.
    """

    protocol_period_ns: int = 250 * _MS
    """One probe a period. Half of them watch the ring successor, half go round robin through a shuffled list."""
    resend_ns: tuple[int, ...] = (150 * _MS, 300 * _MS)
    """A ping is repeated at these times after the first: at 30 % loss one datagram fails half the time."""
    probe_window_ns: int = 500 * _MS
    """No answer on any path until then: a suspicion."""
    indirect_after_ns: int = 300 * _MS
    """When the helpers are asked, after the first ping."""
    ping_req_fanout: int = 3
    """Helpers asked per failed probe (the paper's k)."""
    suspicion_min_ns: int = 400 * _MS
    """Shortest time a suspect gets to refute, when its host is dark too and others confirm."""
    suspicion_max_ns: int = 1_000 * _MS
    """Longest time a suspect gets when its host is dark too: nobody else confirms."""
    suspicion_unasked_ns: int = 6 * _S
    """Time a suspect gets where the transport cannot ask the host (dds): longer than a process usually hangs."""
    host_timeout_ns: int = 500 * _MS
    """How long the host of a silent member has to answer at most; half of it where its pings are answered quickly."""
    unresponsive_failed_ns: int = 12 * _S
    """A process whose host answers but which itself does not is DEGRADED until then, FAILED after."""
    accusers_needed: int = 3
    """Distinct signers it takes to believe others' word that a member failed."""
    local_health_max: int = 8
    """Lifeguard's S: the local health multiplier is 1 + score, the score at most this."""
    pause_ns: int = 200 * _MS
    """A timer that fires later than this says that this process itself was stopped: nobody is accused for it."""
    gossip_fanout: int = 4
    """Members told at once about news; they tell as many others when they hear it first."""
    record_fanout: int = 3
    """Members told at once about a new member: its record is large, and repair finds who missed it."""
    gossip_lambda: int = 1
    """An update rides in lambda * log2(n) further datagrams; what still misses it is found by the digest."""
    budget_bytes_s: int = 1_000
    """Hard budget of datagram bytes sent per second in steady state, headers included; probing slows to keep it."""
    budget_burst_bytes: int = 48_000
    """News may borrow this much ahead of the budget."""
    header_bytes: int = 42
    """Ethernet, IP and UDP headers that each datagram costs, for the budget."""
    rejoin_ns: int = 1 * _S
    """One failed or unheard member or seed is tried this often, the one not tried for longest first."""
    rejoin_max_ns: int = 3 * _S
    """One lost address is tried at least this often for ten minutes, and a tenth as often after."""
    forget_ns: int = 24 * 3600 * _S
    """Failed and left members are forgotten after this."""
    sync_interval_ns: int = 200 * _MS
    """Shortest time between two repairs of the view with the same peer."""
    full_view_max: int = 256
    """Up to so many members, everybody knows everybody; above, a node keeps a few neighbours (`overlay.py`)."""
    mesh: Literal["off", "auto", "on"] = "off"
    """Whether the view becomes a mesh where the node finds that one radio reaches a part of the swarm only (`mesh/`):
    `off`, never; `auto`, then, by two words of others; `on`, by one word too. Before that, with either, one casts a
    beacon now and then, so that swarms meet that have never heard of each other; with `auto` one for all around. Where
    one node has it off, nobody is reached through it."""
    casts: bool = False
    """Whether the transport reaches whoever listens with one frame."""
    active_view: int = 6
    """Neighbours that a node seeks in a partial view; it holds at most two more."""
    passive_view: int = 30
    """Signed records of others that a node in a partial view keeps to choose new neighbours from."""
    shuffle_ns: int = 30 * _S
    """How often some of these are exchanged with a neighbour."""
    members_max: int = 4_096
    """Members held; more are refused and counted."""
    meta_bytes_max: int = 65_536
    """All metadata of one node together."""
    accusations_per_s: int = 8
    """Accusations taken from one accuser per second; more are dropped and counted."""
    event_bytes_max: int = 16_384
    """Largest payload of a user event."""

    def __post_init__(self) -> None:
        """Refuse combinations that cannot work, all of them at once."""
        problems = [
            f"{item.name} is {getattr(self, item.name)}; it must be positive"
            for item in msgspec.structs.fields(self)
            if type(getattr(self, item.name)) is int and getattr(self, item.name) <= 0
        ]
        if self.resend_ns and self.resend_ns[-1] >= self.probe_window_ns:
            problems.append(f"resend_ns ends at {self.resend_ns[-1]}; probe_window_ns is {self.probe_window_ns}")
        if self.suspicion_max_ns < self.suspicion_min_ns:
            problems.append(f"suspicion_max_ns {self.suspicion_max_ns} is below suspicion_min_ns")
        if problems:
            raise StateError("; ".join(problems))

    @staticmethod
    def lean() -> "SwimConfig":
        """At most 300 B/s a node in steady state; a crash is known everywhere within 3 s."""
        return SwimConfig(
            protocol_period_ns=1_000 * _MS,
            ping_req_fanout=2,
            budget_bytes_s=300,
            shuffle_ns=120 * _S,
            gossip_fanout=3,
        )
