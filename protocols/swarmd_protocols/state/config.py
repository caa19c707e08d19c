"""Settings of the replicated state."""

from dataclasses import dataclass, field

from swarmd_protocols.state.claims.config import ClaimConfig
from swarmd_protocols.state.clock import ClockConfig
from swarmd_protocols.state.dedup.config import DedupConfig


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """Bounds and periods; every one of them is safe to differ between nodes except `dedup` and `claims`."""

    dedup: DedupConfig = field(default_factory=DedupConfig)
    claims: ClaimConfig = field(default_factory=ClaimConfig)
    clock: ClockConfig = field(default_factory=ClockConfig)
    flush_ns: int = 50_000_000
    """Facts that follow each other within this time share a batch; the first of them goes at once."""
    rumor_ns: int = 200_000_000
    """How often a node with news asks others whether they have it."""
    rumor_rounds: int = 4
    rumor_peers: int = 2
    ask_ns: int = 120_000_000
    """How long an answer may take before the question is put again."""
    ask_tries: int = 6
    direct_peers_max: int = 8
    """Up to so many peers, an origin sends its news to each of them itself."""
    fanout: int = 4
    """Peers to which news is passed on in larger swarms."""
    piggyback_lambda: int = 3
    hot_max: int = 64
    sync_ns: int = 400_000_000
    """Least time between two comparisons of facts with one peer."""
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
    """Dead rows that the own log may carry beyond as many as are alive, before it is cleaned."""
    origins_max: int = 4_096
    origin_bytes_max: int = 4_194_304
    waiting_max: int = 256
    """Batches kept whose author's key is not known yet."""
