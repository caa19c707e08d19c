"""The records of `import swarmd`: frozen, checked as they are read; keys that a newer daemon adds are passed over."""

from collections.abc import Mapping
from typing import Any

import msgspec


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where a member is, by its own word."""

    latitude_deg: float
    longitude_deg: float
    height_agl_m: float
    """Metres above the ground."""
    yaw_deg: float | None
    """Where its nose points, degrees from north, clockwise."""
    sigma_m: float
    """Standard deviation of the place, metres."""
    battery: float | None
    """0 to 1."""
    age_s: float
    """Seconds since it was there."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the swarm, as this daemon knows it."""

    name: str
    node: str
    """Its id, hexadecimal digits."""
    state: str
    """`alive`, `suspect`, `degraded`, `failed`, `away` or `left`; in a mesh also `unreachable`."""
    address: str
    rtt_ms: float | None
    loss: float
    """Share of packets that are lost on the way, 0 to 1."""
    version: str
    capability: str
    position: Position | None = None
    unheard_s: float | None = None
    """In a mesh: seconds since nobody who is reached hears it; None while somebody does, and in any other view."""


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """What one operator says of an object: the newest verdict, or the newest note."""

    operator: str
    """The name that the operator goes by; whose it is, `key` says."""
    key: str
    """First eight hexadecimal digits of the id of the operator's key."""
    verdict: str
    """`confirm`, `reject`, `relabel`, `withdraw` or `note`."""
    text: str
    """The right label, or the words of the note."""
    seen: str
    """The label that the operator saw."""
    made_s: float
    """Seconds since 1970, by the operator's clock."""
    revision: int
    digest: str
    """Names the signed statement."""

    def __str__(self) -> str:
        """In words, for tables."""
        return f"{self.operator} ({self.key}): {self.verdict} {self.text}".rstrip()


class Object(msgspec.Struct, frozen=True, kw_only=True):
    """One thing out there, however many members have seen it."""

    id: str
    """Stable: the same on every member, in every interface."""
    label: str
    score: float
    """0 to 1."""
    east_m: float | None
    """Metres east of the mission's origin; None where nobody knows the place."""
    north_m: float | None
    covariance_m2: tuple[float, float, float] | None
    """East-east, east-north, north-north."""
    asset: str
    """The part of the plant that it lies on, "" for none."""
    observers: tuple[str, ...]
    """Names of the members that have seen it."""
    confirmed: bool
    reports: int
    first_seen_s: float
    """Seconds since 1970, by the swarm's clock."""
    last_seen_s: float
    tier: str = ""
    """`reviewed` (operators agree), `confirmed`, or `candidate`."""
    evidence: float = 1.0
    """What its sightings are worth together, as a share of what makes one sure; 1 where anybody is."""
    review: str = ""
    """`confirmed`, `relabelled`, `rejected` or `disputed` by operators, "" where nobody has a verdict."""
    detected: str = ""
    """The label that the detectors give it, where operators have corrected `label`."""
    reviews: tuple[Review, ...] = ()


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    """What one member has seen, before deduplication; fields as in `Object`."""

    node: str
    """Name of the member."""
    label: str
    score: float
    east_m: float | None
    north_m: float | None
    covariance_m2: tuple[float, float, float] | None
    asset: str
    first_seen_s: float
    last_seen_s: float
    candidate: bool = False
    """Its member is not sure of it."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the survey area."""

    id: str
    east_m: float
    north_m: float
    state: str
    """`open`, `claimed` or `done`."""
    holder: str
    """Name of the member that works on it, "" for none."""
    done_by: tuple[str, ...]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, at this member or, as it told, at another."""

    id: str
    at_ms: int
    """Milliseconds since 1970, UTC by the swarm's clock."""
    origin: str
    """Name of the member that says it."""
    kind: str
    level: str
    """`info`, `warning` or `error`."""
    subject: str
    reason: str
    evidence: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon at a glance; `swarmd status --json` has more."""

    node: str
    """Its name."""
    node_id: str
    swarm: str
    version: str
    address: str
    members: Mapping[str, str]
    """State by name."""
    objects: int
    detections: int
    digest: str
    """Equal on members that know the same facts."""
    problems: tuple[str, ...]
    """What a person has to mend."""
    uptime_s: float


class Sighting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a detector of one's own has seen.

    A place is metres from the mission's origin (`east_m`, `north_m`) or degrees (`latitude_deg`, `longitude_deg`), or
    neither: the thing is counted, and is not on the map. Degrees need a daemon with `node.origin`: elsewhere the thing
    has no place.
    """

    label: str
    score: float = 1.0
    """0 to 1."""
    east_m: float | None = None
    north_m: float | None = None
    latitude_deg: float | None = None
    longitude_deg: float | None = None
    covariance_m2: tuple[float, float, float] | None = None
    """East-east, east-north, north-north; a metre each way where nothing is said."""
    track: str = ""
    """The detector's name for this thing, so that the next look at it is no second thing."""
    event: str = "update"
    """`new`, `update` or `end`."""
    moving: bool = False


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Something that has just changed."""

    event: str
    """`join`, `suspect`, `degraded`, `failed`, `unreachable`, `away`, `leave`; `object`; `user`."""
    subject: str
    """Name of a member, id of an object, name of a user event."""
    details: Mapping[str, Any]
    """What else the daemon says of it, such as `label` of an object, `payload` of a user event."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a model sees in a picture."""

    label: str
    score: float
    """0 to 1."""
    box: tuple[float, float, float, float]
    """x1, y1, x2, y2: pixels of the picture, from its upper left corner."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What a model says of one window of a sound or a log."""

    at_s: float
    """Where the window begins, seconds."""
    label: str = ""
    """The likeliest; "" of a model that gives numbers."""
    score: float = 0.0
    """Its probability, 0 to 1."""
    values: tuple[float, ...] = ()
    """Probabilities of all labels, or the numbers."""
    by: str = ""
    """The expert of an ensemble that has judged it; "": the model is none."""


def heard(outputs: Mapping[str, Any]) -> list[Heard]:
    """Records of what `MODEL.series` gives."""
    rows = outputs["scores"] if "scores" in outputs else outputs["values"]
    found = []
    for at, row in enumerate(rows):
        label = str(outputs["labels"][at]) if "labels" in outputs else ""
        by = str(outputs["routed"][at]) if "routed" in outputs else ""
        score = float(max(row)) if label else 0.0
        found.append(Heard(at_s=float(outputs["at_s"][at]), label=label, score=score,
                           values=tuple(map(float, row)), by=by))  # fmt: skip
    return found


class Inferred(msgspec.Struct, frozen=True, kw_only=True):
    """What a model answered."""

    model: str
    version: str
    """Digest of the bundle that answered."""
    lender: str
    """Name of the member that answered, "" for this device."""
    took_us: int
    """Microseconds from the request to the answer, where it was answered."""
    outputs: Mapping[str, Any]
    """NumPy arrays by name, as the graph gives them."""


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation ended with."""

    scenario: str
    seed: int
    virtual_s: float
    violations: tuple[Mapping[str, Any], ...]
    """Rules that were broken: none in a swarm that works."""
    figures: Mapping[str, Any]
    """Everything that `swarmd sim run --json` prints."""
