"""Settings of deduplication; the same on every node, or their views differ."""

import msgspec


class DedupConfig(msgspec.Struct, frozen=True):
    """How detections become objects."""

    radius_cm: int = 500
    """Nothing farther apart than this is the same thing, whatever the covariances say."""
    gate_milli: int = 16_000
    """Squared Mahalanobis distance, thousandths, up to which two positions may be one (chi-square, 2 degrees: 16 is
    1 in 3,000 true pairs)."""
    use_covariance: bool = True
    """False: the outer distance alone decides."""
    floor_cm: int = 5
    """Standard deviation added to every reported position: no report is perfect."""
    poor_cm: int = 60
    """Standard deviation, each way, of the difference of two positions above which looks are compared too: beyond it
    things as near as `beside_min_cm` cannot be told apart by place."""
    lattice_cm: int = 50
    confirm_observers: int = 2
    prior_milli: int = 20
    """Share of things that are faulty, as far as anybody knows: where a score begins to say something (`tiers.py`)."""
    look_correlation_milli: int = 970
    """Between two looks at one thing by one model, where its bundle does not say (`Sighting.alike`). Source: 0.96 to
    0.98 in docs/performance/models.md."""
    day_correlation_milli: int = 970
    """Between two looks of which one is from another day. Source: none; a bundle that has measured it says so."""
    other_day_ms: int = 28_800_000
    """From so long after it a look is one of another day: 8 h, the sun has gone round or down."""
    model_correlation_milli: int = 950
    """Between two models' looks at one thing. Source: 0.947 to 0.967 in docs/performance/models.md."""
    judge_confirms: bool = False
    """Whether the verdict of another judge that is sure confirms a thing by itself (`judged.py`)."""
    candidate_refresh_ms: int = 600_000
    """How often a candidate that goes on to be seen is said again: it costs little and is worth little."""
    ttl_ms: int = 3_600_000
    """An object that nobody has seen for this long is no longer shown."""
    track_ttl_ms: int = 120_000
    """The same for things that move or have no position."""
    beside_min_cm: int = 60
    """Tracks of one frame at least this far apart are two things for good."""
    groups: dict[str, str] = msgspec.field(default_factory=dict)
    """Label to class group; labels of one group may be the same thing. A label without an entry is its own group."""
    refresh_ms: int = 10_000
    """How often a sighting that goes on is said again."""
    gain_milli: int = 200
    """Part of the object's variance that an own position must take away to be worth saying (else only "me too")."""
    score_step_milli: int = 50
    sightings_max: int = 20_000
    """Things that this node itself reports; new ones beyond are left out, counted and named (`room.py`)."""
    crowd_max: int = 24
    """Sightings of one origin and class group in one square of `radius_cm` that are told apart by place; the younger
    ones beyond are each a thing of their own. A table of modules 1 m x 2 m has 12; without a bound, one member could
    stack thousands on one spot and make everybody compare each with each."""
    listed_max: int = 16
    """How many sightings of one origin may count as seen beside one lattice point; the oldest do. A row names 8."""
