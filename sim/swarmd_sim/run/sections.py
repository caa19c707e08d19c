"""What a scenario file may say: one dataclass a section, the defaults beside their meaning."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SwarmSection:
    """`[swarm]`: how many nodes, for how long, and how they come together."""

    nodes: int = 20
    seconds: int = 120
    formation: str = "together"
    """"together" (at random within `start_within_s`) or "staggered" (evenly over it)."""
    start_within_s: float = 1.0
    seeds: int = 3
    """Nodes that all others are told to join."""
    role_threshold: int = 0
    """How many of three keys each role of the fleet takes; 0: as a development fleet has it."""
    observers: int = 0
    """Nodes without a drone, at the end of the list."""


@dataclass(frozen=True, slots=True)
class SiteSection:
    """`[site]`: the ground."""

    kind: str = "farm"
    """"farm" (generated), "file" (a CSV of panels) or "none"."""
    file: str = ""
    """For "file": relative to the scenario file."""
    seed: int = 7
    tables: int = 24
    modules: int = 40
    faults: float = 0.025
    """Share of modules that are faulty."""
    cell_m: float = 20.0
    site_map: bool = True
    """Nodes know the assets, so that an asset is an identity."""
    extent_m: tuple[float, float] = (400.0, 400.0)
    """For "none"."""


@dataclass(frozen=True, slots=True)
class LayoutSection:
    """`[layout]`: where nodes stand when their radios reach a few others only (`radio.range_m`).

    Each is told to join the nearest `swarm.seeds` others in its range.
    """

    kind: str = "homes"
    """"homes" (a grid over the ground), "line", "grid", "random" (connected), "islands" (two lines and a mule) or
    "drawn" (a line, a grid or random, by the seed)."""
    spacing_m: float = 150.0
    """Between neighbours of a line and a grid."""
    degree: float = 5.0
    """For "random": others in range, about."""


@dataclass(frozen=True, slots=True)
class MobilitySection:
    """`[mobility]`: how nodes move that fly no cells."""

    kind: str = "none"
    """"none", "waypoint" (to random places), "groups" (that part and meet again), "mule" (the last node) or "drawn"
    (none or waypoint, by the seed)."""
    speed_m_s: float = 5.0
    from_s: float = 20.0
    until_s: float = 0.0
    """0: to the end of the run."""
    connected: bool = True
    """Nobody takes a step that would cut the swarm in two."""
    groups: int = 2
    period_s: float = 20.0
    """For "groups": between parting and meeting."""


@dataclass(frozen=True, slots=True)
class DronesSection:
    """`[drones]`: how they fly."""

    work: str = "claims"
    """"claims" (cells agreed by the swarm), "lanes" (each its own share), "log" (a replayed flight log) or "none"."""
    speed_m_s: float = 10.0
    drain_per_s: float = 0.0005
    """Share of the battery used in a second of flight."""
    reserve: float = 0.2
    charge_s: float = 60.0
    tick_ms: int = 500
    """How often drones move and look."""
    passes: int = 1
    """For "lanes": drones that fly each cell, at most all."""
    flight_log: str = ""
    """For "log": CSV with t_ms, east_m, north_m, or an ArduPilot .bin; relative to the scenario file."""


@dataclass(frozen=True, slots=True)
class DetectorSection:
    """`[detector]`: the statistical eye; `pixels = true` renders frames and runs the real one (at most 20 drones)."""

    pixels: bool = False
    model: str = "zoo:small-320"
    footprint_m: float = 9.0
    recall: float = 0.7
    edge_recall: float = 0.3
    confusion: float = 0.0
    false_alarms_per_look: float = 0.002
    sigma_m: float = 0.12
    edge_sigma_m: float = 0.2
    asset_probability: float = 0.0
    """How sure an asset must be to be named, as `dedup.asset_probability`; 0: each look names the nearest."""
    latency_ms: tuple[int, ...] = (28, 30, 31, 33, 35, 38, 42, 47, 60, 110)
    drift_m: float = 0.0
    """Deviation of the error that all places of one drone have in common."""
    looks: bool = False
    """Sightings say how their things look; `swarmd sim run` also runs the same without."""


@dataclass(frozen=True, slots=True)
class RidgeTable:
    """`[[radio.ridge]]`: links that cross the line from `from_m` to `to_m` lose `loss_db` more."""

    from_m: tuple[float, float]
    to_m: tuple[float, float]
    loss_db: float = 25.0


@dataclass(frozen=True, slots=True)
class RadioSection:
    """`[radio]`: the air."""

    model: str = "disc"
    """"disc" or "pathloss"."""
    range_m: float = 0.0
    """For "disc"; 0 is everywhere."""
    rate_mbit_s: float = 6.0
    latency_ms: float = 2.0
    jitter_ms: float = 3.0
    loss: float = 0.0
    shared_air: bool = False
    retries: int = 0
    tx_power_dbm: float = 20.0
    exponent: float = 2.7
    shadowing_db: float = 4.0
    carrier_sense_m: float = 300.0
    ridge: tuple[RidgeTable, ...] = ()
    trace: str = ""
    """CSV of measured links (t_ms, source, destination, loss, rate_kbit_s, delay_ms); relative to the scenario file."""


@dataclass(frozen=True, slots=True)
class DeviceSection:
    """`[device]`: clock, disk and CPU of each node."""

    fsync_ms: float = 0.0
    cpu_us_per_event: float = 0.0
    wake_us: float = 0.0
    """CPU time that the first event after 10 ms of sleep costs on top: caches are cold."""
    shared_cores: int = 0
    """All nodes run on one machine with so many processor cores; 0: each has its own."""
    teardown_ms: float = 0.0
    """How long a killed process keeps its ports before the kernel refuses for it."""
    drift_ppm: int = 50
    """Each clock's rate error is drawn up to this."""
    wall_offset_s: float = 2.0
    """Each wall clock's error is drawn up to this."""


@dataclass(frozen=True, slots=True)
class WorkloadSection:
    """`[workload]`: what people and programs ask of the nodes."""

    user_events_per_min: float = 2.0
    """In the whole swarm."""
    status_s: float = 10.0
    """Each node reports its status this often; 0 is never."""
    counters_s: float = 5.0
    notes_per_min: float = 1.0
    meta_per_min: float = 0.0
    """Metadata of nodes, set by their programs, in the whole swarm."""
    detections_per_min: float = 0.0
    """Synthetic ones for sites without modules, in the whole swarm."""
    looks_per_min: float = 0.0
    """People who look at the picture of such a detection, in the whole swarm; 0: there are no pictures."""
    until_s: float = 0.0
    """Stop asking then, so that the swarm comes to rest; 0: `checks.settle_s` before the end."""


@dataclass(frozen=True, slots=True)
class FaultsSection:
    """`[faults]`: which random faults a seed may draw from (swarm testing: each seed draws its own subset)."""

    kinds: tuple[str, ...] = ()
    """Fault kinds; "all" means every kind."""
    attacks: tuple[str, ...] = ()
    """Attacks (docs/simulator.md); "all" means every one."""
    attacks_off: tuple[str, ...] = ()
    """Attacks that are not drawn, though `attacks` names them."""
    attacks_most: int = 2
    """A run has at most so many attacks."""
    per_minute: float = 6.0
    from_s: float = 10.0
    until_s: float = 0.0
    """0: `checks.settle_s` before the end."""
    longest_s: float = 20.0


@dataclass(frozen=True, slots=True)
class FaultTable:
    """`[[fault]]`: one scripted fault."""

    kind: str
    at_s: float
    duration_s: float = 0.0
    nodes: tuple[int, ...] = ()
    amount: int = 0
    """What it means depends on the kind; see docs/simulator.md."""


@dataclass(frozen=True, slots=True)
class ReleaseSection:
    """`[release]`: models that are published during the run; every node runs the daemon's release protocol."""

    publish_at_s: float = 0.0
    """A good version 2 then; 0: no releases at all."""
    bad_at_s: float = 0.0
    """Version 3, which fails its gates on every device; 0: never."""
    revoke_at_s: float = 0.0
    """A version is revoked; 0: never."""
    revoke: str = "bad"
    """"bad" (version 3), "running" (version 2, in which a hole was found) or "either" (drawn)."""
    next_at_s: float = 0.0
    """A good version 4, and the floor rises to it; 0: never."""
    chance: float = 1.0
    """Share of the seeds that have releases at all (swarm testing)."""
    model_kb: int = 64
    model_sizes_kb: tuple[int, ...] = ()
    """Of which a run draws one, in place of `model_kb`; empty: none is drawn."""
    upload_bytes_s: int = 0
    """What a node gives of files a second, over any ten; 0: as fast as the links carry."""
    soak_s: int = 2
    """How long a trial lasts at least."""
    turn_s: float = 5.0
    """How long each node waits for a canary before it that says nothing."""
    rollout: tuple[int, ...] = (5, 25, 100)
    """Percent of the nodes at each stage."""


@dataclass(frozen=True, slots=True)
class OffloadSection:
    """`[offload]`: devices that lend and borrow inference; every node runs the daemon's protocol for it."""

    requests_per_s: float = 0.0
    """What the programs of each node that asks ask, on average; 0: nobody lends or borrows."""
    lending: bool = True
    """False: everybody thinks alone, to compare with."""
    fleet: str = "drones"
    """"drones", "traffic", "parts" or "batch": `run/offload_fleet.py`."""
    jobs: int = 400
    """In a batch: frames that the last node has."""
    rule: str = "ours"
    """"ours", or what a user would write instead: "local", "always", "if" (`run/offload_rules.py`)."""
    compare: bool = True
    """`swarmd sim run` runs the other rules too, with the same seed."""
    judges: str = "drawn"
    """In traffic what judges say: "drawn" by a statistic (`world/judges.py`), or what real detectors said of rendered
    "traffic" (`world/recorded_looks.py`)."""
    strong: int = 6
    """The first so many nodes lend and ask nothing; in traffic the gateways."""
    clouds: int = 0
    """In traffic the next so many, far away."""
    busy: int = 6
    """The next so many lend and ask; in traffic the poles. The rest only asks."""
    liars: tuple[int, ...] = ()
    """Nodes among these that answer something else than the model said."""
    deadline_ms: float = 400.0
    input_bytes: int = 1200
    offers_per_s: int = 10
    """Offers that leave a lender; in traffic alone, whose cables carry more than drones' air."""
    copies_share: float = 0.0
    """Of requests of drones and of looks of traffic that are given to two lenders."""
    repeat_share: float = 0.0
    """Of looks of traffic that show what this camera showed shortly before, bit by bit."""
    keep_s: float = 0.0
    """For how long such an answer may be kept."""
    owners: int = 0
    """The nodes belong to so many owners in turn, by their certificates, and lend and borrow among their own alone; 0:
    nobody looks."""
    release_at_s: float = 0.0
    """When a new version of all models begins to roll in traffic; 0: never."""
    release_over_s: float = 20.0
    """How long it rolls."""
    release_swap: bool = False
    """Lenders unload the old version before they load the new one, to compare with."""


@dataclass(frozen=True, slots=True)
class NeighboursSection:
    """`[neighbours]`: a second swarm of another owner surveys the same ground (`run/neighbours.py`)."""

    agree_at_s: float = 0.0
    """Operators of both say yes; 0: there is no second swarm."""
    cut_at_s: float = 0.0
    """The gateways hear each other no more; 0: never."""
    cut_s: float = 0.0
    """For how long."""
    hostile_at_s: float = 0.0
    """From then on the second swarm's gateway claims the whole ground at every moment; 0: never."""
    hold_s: int = 60
    """For how long the first swarm's operators let it keep one place."""


@dataclass(frozen=True, slots=True)
class LearningSection:
    """`[learning]`: members learn one head from rows that differ from member to member (`run/learning.py`)."""

    labelled: int = 0
    """The first so many members have labelled rows; 0: nothing is learned."""
    bad: int = 0
    """So many after them have rows too, and lie."""
    lie: str = "mixed"
    """How: "sign", "scaled", "same", "other", "equivocate", "garbage", or "mixed"."""
    alpha: float = 0.3
    """Of the Dirichlet distribution by which rows are dealt out: the smaller, the more unequal."""
    seed: int = 11
    """Of the drawn modules."""
    scenes: int = 84
    """That rows are taken from, some 46 each; a third as many judge, a sixth as many are drawn by devices."""
    round_s: float = 6.0
    rounds: int = 15
    share: float = 0.05
    """Of the head's weights, told in a round."""
    noise: float = 0.0
    """Deviation of the noise that members add, in lengths; 0: none."""
    length: float = 1.0
    """That changes are clipped to where there is noise."""
    judged: bool = True
    """The bars are rules."""


@dataclass(frozen=True, slots=True)
class ChecksSection:
    """`[checks]`: bounds that this scenario must keep."""

    settle_s: float = 30.0
    """Quiet time at the end: no faults, no new work; then views must be equal."""
    detect_s: float = 12.0
    """A dead node must be known as failed within this at every reachable healthy node."""
    bytes_per_node_s: int = 0
    """Mean over the run; 0 is no bound."""
    attacked_bytes_s: int = 0
    """Mean of honest nodes over 10 s while an attack goes on and for 15 s after it; 0 is no bound."""
    doubted_ppm: int = 0
    """Share of healthy pairs that may be SUSPECT or DEGRADED while one member accuses, ppm; 0 is no bound."""
    recall: float = 0.0
    distinct_lost: int = -1
    """Faults that an eye reported but that no object stands for, at most; -1 is no bound."""
    cells_done: bool = False
    """All cells must be done at the end."""
    duplicate_work: float = 1.0
    """Cells flown more than once, as a share of all cells, at most."""
    false_failed: int = 0
    """Healthy members that may be called failed during the run (only links of 100 % loss excuse one)."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One checked scenario."""

    name: str
    title: str = ""
    swarm: SwarmSection = field(default_factory=SwarmSection)
    site: SiteSection = field(default_factory=SiteSection)
    layout: LayoutSection = field(default_factory=LayoutSection)
    mobility: MobilitySection = field(default_factory=MobilitySection)
    drones: DronesSection = field(default_factory=DronesSection)
    detector: DetectorSection = field(default_factory=DetectorSection)
    radio: RadioSection = field(default_factory=RadioSection)
    device: DeviceSection = field(default_factory=DeviceSection)
    workload: WorkloadSection = field(default_factory=WorkloadSection)
    faults: FaultsSection = field(default_factory=FaultsSection)
    fault: tuple[FaultTable, ...] = ()
    release: ReleaseSection = field(default_factory=ReleaseSection)
    offload: OffloadSection = field(default_factory=OffloadSection)
    neighbours: NeighboursSection = field(default_factory=NeighboursSection)
    learning: LearningSection = field(default_factory=LearningSection)
    checks: ChecksSection = field(default_factory=ChecksSection)
    gossip: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    """Overrides of the membership's configuration, by its own field names."""
    state: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    """Overrides of the replicated state's configuration, by its own field names."""
    folder: str = ""
    """Where relative paths start."""
