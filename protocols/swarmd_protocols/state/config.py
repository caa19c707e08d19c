"""Settings of the replicated state."""

import msgspec

from swarmd_protocols.state.claims.config import ClaimConfig
from swarmd_protocols.state.clock import ClockConfig
from swarmd_protocols.state.dedup.config import DedupConfig


class ReplicaConfig(msgspec.Struct, frozen=True):
    """Bounds and periods; every one of them is safe to differ between nodes except `dedup` and `claims`."""

    dedup: DedupConfig = msgspec.field(default_factory=DedupConfig)
    claims: ClaimConfig = msgspec.field(default_factory=ClaimConfig)
    clock: ClockConfig = msgspec.field(default_factory=ClockConfig)
    flush_ns: int = 50_000_000
    """Facts that follow each other within this time share a batch; the first of them goes at once."""
    rumor_ns: int = 200_000_000
    """How often a node with news names it to others."""
    rumor_rounds: int = 5
    rumor_peers: int = 2
    ask_ns: int = 120_000_000
    """How long an answer may take before the question is put again."""
    ask_tries: int = 6
    direct_peers_max: int = 8
    """Up to so many peers, an origin sends its news to each of them itself."""
    fanout: int = 3
    """Peers to which news is passed on in larger swarms."""
    sync_ns: int = 400_000_000
    """Least time between two comparisons of facts with one peer."""
    busy_sync_ns: int = 1_000_000_000
    """The same with anybody while news goes round, which makes digests differ."""
    vitals_sync_ns: int = 4_000_000_000
    """The same for records, which differ nearly always."""
    vitals_ns: int = 5_000_000_000
    """How often counters and status are said while they change."""
    expire_ns: int = 5_000_000_000
    clock_ask_ns: int = 10_000_000_000
    journal_ns: int = 1_000_000_000
    """Others' batches are journalled in groups, this often."""
    journal_others: bool = True
    stream_bytes_max: int = 262_144
    """Largest reliable payload of a repair."""
    repair_bytes_max: int = 1_048_576
    """Largest repair in answer to one question; the rest comes with the next."""
    slack_rows: int = 128
    """Dead rows that the own log may carry at most beyond as many as are alive, before it is cleaned; fewer in a swarm
    of more than four (`crdt/ownlog.py`)."""
    origins_max: int = 4_096
    """Certified origins; more than any fleet has."""
    origin_cost_max: int = 25_165_824
    """Bytes of memory that the facts of one origin may take (`log.cost_of`): 20,000 rows in full batches. With the
    queues it keeps what one member can cost below 32 MB."""
    waiting_max: int = 256
    """Batches kept whose author's certificate is not known yet."""
    waiting_a_peer_max: int = 64
    """Of those, as many as one peer may send: an invented author must not keep real ones waiting outside."""
    waiting_ns: int = 5_000_000_000
    """How long they wait; repair brings them again."""
    queue_bytes_max: int = 2_097_152
    """Batches of one peer that wait to be read: two of the largest messages."""
    slice_units: int = 6_000
    """Work (`quota.py`) done in one event, about 6 ms: a third of what may hold the event loop."""
    slice_pause_ns: int = 6_000_000
    """Time between two slices, so that others get half of the loop while there is a backlog."""
    passed_on_max: int = 32
    """Batches of one other origin that are passed on unasked in one second: an honest one writes 20; the rest is found
    by comparison."""
