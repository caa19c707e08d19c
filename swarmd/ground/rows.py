"""What `/api/v1` says, as data: one struct for each kind of thing; the OpenAPI document is generated from them.

Rules this file keeps: times are UTC seconds since 1970 and end in `_s`, lengths are metres about the mission origin
and end in `_m`, and what nobody knows is null. Names and texts come from other nodes: whoever shows them must take
them for text, never for markup.
"""

import msgspec

from swarmd.ground.peer_rows import PeerStretch
from swarmd.records import Review

KINDS = ("member", "position", "object", "cell", "alert", "event", "release", "vote")
"""Kinds of things, in the order in which a snapshot tells them."""


class Asset(msgspec.Struct, frozen=True, gc=False):
    """One rectangle of the site map with sides east and north."""

    id: str
    east_m: float
    north_m: float
    width_m: float
    depth_m: float


class Site(msgspec.Struct, frozen=True, gc=False):
    """What does not change while the server runs: who looks, at which swarm and where."""

    mode: str
    """"live" or "recording"."""
    title: str
    """What is shown, for people: the swarm, or the recording."""
    seen_by: str
    """Name of the node whose knowledge this is."""
    version: str
    """Of swarmd."""
    latitude_deg: float | None
    longitude_deg: float | None
    """The mission origin; null where there is none, and nothing has a place."""
    assets: list[Asset]


class Member(msgspec.Struct, frozen=True, gc=False):
    """One member of the swarm."""

    id: str
    """Its node id, hexadecimal digits; `never met NAME` of one that failed before this node came, by others' word."""
    name: str
    state: str
    """`alive`, `suspect`, `degraded`, `failed`, `away`, `left`; `unknown` in a gap of its fetched past."""
    since_s: float | None
    """When this node came to that opinion; null where it was so before the server began."""
    is_self: bool
    rtt_ms: float | None
    loss: float
    """Share of this node's own pings that stayed unanswered, in steps of a hundredth."""
    quality: str
    """Of the link between this node and it: `good`, `late`, `lossy`, `indirect`, `heard-only`, `none` or `self`."""
    broken: list[str]
    """Its broken links by its own word, such as "a hears b, b does not hear a"."""
    capability: str
    version: str
    address: str
    root: int | None
    """Version of the fleet's root that it holds, by its own word."""
    group_key: int | None
    """Number of the group key that it holds, by its own word."""
    certificate: str | None
    """First digits of its certificate's digest, by its own word."""
    row: list[tuple[str, str]] = []
    """Its own row of the matrix of links: (the other's node id, quality) of those that are not good, 32 at most."""


class Position(msgspec.Struct, frozen=True, gc=False):
    """Where a member said that it is, or what a neighbouring swarm shares: its members and its claims of space."""

    id: str
    """Its node id, hexadecimal digits; of a neighbouring swarm's `NAME~ALIAS`."""
    name: str
    has_fix: bool
    """False: it has lost its fix; the place is the last one."""
    east_m: float | None
    north_m: float | None
    latitude_deg: float
    longitude_deg: float
    height_agl_m: float
    yaw_deg: float | None
    """Clockwise from north."""
    sigma_m: float
    battery: float | None
    """0 to 1."""
    at_s: float
    """When it was there."""
    swarm: str = ""
    """What a neighbouring swarm is called here, whose word this is; "" for own members."""
    claim_m: float | None = None
    """Of a neighbouring swarm's claim of space: its radius about the place; null where this is a member."""


class Object(msgspec.Struct, frozen=True, gc=False):
    """One thing in the world as the swarm agrees on it."""

    id: str
    label: str
    score: float
    tier: str
    """`reviewed` (operators agree), `confirmed` (as many observers as `dedup.confirm_observers` asks for are sure of
    it) or `candidate` (fewer, or nobody is sure)."""
    east_m: float | None
    north_m: float | None
    covariance_m2: list[float] | None
    """(east-east, east-north, north-north)."""
    asset: str
    observers: list[str]
    reports: int
    first_seen_s: float
    last_seen_s: float
    review: str = ""
    """What operators agree on: `confirmed`, `relabelled`, `rejected`; `disputed`; "" where nobody has a verdict."""
    detected: str = ""
    """The label that the detectors give it, where operators have corrected it."""
    reviews: list[Review] = []
    thumb: str = ""
    """Name of a picture of it, for `/api/v1/thumb/`; "" where nobody keeps one."""


class Cell(msgspec.Struct, frozen=True, gc=False):
    """One piece of the survey area."""

    id: str
    east_m: float
    north_m: float
    state: str
    """`open`, `claimed` or `done`."""
    holder: str
    done_by: list[str]


class Alert(msgspec.Struct, frozen=True, gc=False):
    """What stands at this node until it is solved."""

    id: str
    code: str
    subject: str
    level: str
    text: str
    means: str
    remedy: str
    since_s: float
    acknowledged_by: str = ""
    """Who has said first that he has seen it; "" while nobody has."""
    acknowledged_s: float | None = None
    acknowledged_note: str = ""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened."""

    id: str
    at_s: float
    origin: str
    kind: str
    level: str
    subject: str
    reason: str
    evidence: str


class Signed(msgspec.Struct, frozen=True, gc=False):
    """What officers signed about a release."""

    kind: str
    """`halt`, `model-revoke`, `force` or `floor`."""
    stage: int | None
    """Which a `force` opens, counted from 0."""
    reason: str
    issued_s: float
    """When it was prepared, by its own word; 0 where it does not say."""
    signers: list[str]
    """First digits of the ids of the keys whose signatures hold."""


class Release(msgspec.Struct, frozen=True, gc=False):
    """One release of a model, and how far it has come as this node counts."""

    id: str
    """Model and first digits of the digest."""
    model: str
    digest: str
    version: int
    epoch: int
    state: str
    """`stage N of M`, `promoted`, `halted`, `revoked` or `forked`."""
    since_s: float | None
    """When this node came to that state; null where it was so before the server began."""
    is_desired: bool
    """Whether the fleet should run it."""
    stages_percent: list[int]
    stage: int
    """The stage that is open, counted from 0; as many as there are stages when all have passed."""
    nodes: int
    """Certified nodes that say they run the model."""
    cohort: int
    """Nodes of the open stage."""
    passes: int
    needed: int
    """Passes that open the next stage."""
    fails: int
    fails_to_halt: int
    issued_s: float
    signers: list[str]
    statements: list[Signed]
    chunks: tuple[int, int]
    """Pieces of its largest file that lie at this node, and all."""


class Vote(msgspec.Struct, frozen=True, gc=False):
    """What one node says of one release; of each model the newest releases have votes."""

    id: str
    release: str
    """Id of the release."""
    node: str
    """Its node id, hexadecimal digits."""
    name: str
    rank: int
    """Its place in the order in which nodes try this release, from 0."""
    turn: str
    """`canary` (of the open stage), `stand-in` (where canaries stay silent), `later`; "" where all may run it."""
    runs: int
    """Version that it runs."""
    phase: str
    """`idle`, `fetching`, `ready`, `trial`, `passed` or `failed`; "" where it speaks of another release."""
    verdict: str
    """`PASS`, `FAIL` or `NONE`."""
    reason: str
    soak_s: int
    """Seconds that its trial took."""
    samples: int
    heard_s: float | None
    """When this node heard the verdict; null where there is none, or it came before the server began."""


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A statement about a release that nobody has signed."""

    name: str
    """Of the file."""
    text: str
    """The file's content, for `swarmd keys sign`."""
    kind: str
    issued_s: float
    does: list[str]
    """What it will do, in words, computed from the bytes that are signed."""
    warnings: list[str]
    role: str
    """Whose keys must sign."""
    need: int
    """How many of them."""
    keys: list[str]
    """First digits of the ids of all that may."""
    commands: list[str]
    """What to run where the keys are, and then where a member can be reached."""


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """One node's own sighting of an object."""

    id: str
    node: str
    label: str
    score: float
    east_m: float | None
    north_m: float | None
    covariance_m2: list[float] | None
    model_digest: str
    """First digits of the SHA-256 of the model that saw it."""
    reports: int
    first_seen_s: float
    last_seen_s: float
    thumb: str = ""
    """Name of the picture that this node keeps of it, for `/api/v1/thumb/`; "" where it keeps none."""


Row = Member | Position | Object | Cell | Alert | Event | Release | Vote


class Change(msgspec.Struct, frozen=True, gc=False):
    """One thing as it became, or went."""

    seq: int
    at_s: float
    kind: str
    id: str
    row: msgspec.Raw | None
    """The whole thing as it is from now on; null: it is gone."""


class Rows(msgspec.Struct, frozen=True, gc=False):
    """Everything that is there, by kind; of events the newest."""

    member: list[Member]
    position: list[Position]
    object: list[Object]
    cell: list[Cell]
    alert: list[Alert]
    event: list[Event]
    release: list[Release]
    vote: list[Vote]


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """The picture at one moment."""

    epoch: str
    """Which life of the server numbered the changes."""
    seq: int
    """Changes after this number lead from this picture to the newest; for a moment of the past 0."""
    at_s: float
    """The moment."""
    rows: Rows


class Changes(msgspec.Struct, frozen=True, gc=False):
    """One `data:` line of the stream of changes."""

    now_s: float
    seq: int
    """Everything up to this number has been told."""
    changes: list[Change]
    reset: bool = False
    """True: the numbers asked for are gone, or of another epoch; ask for a snapshot."""


class History(msgspec.Struct, frozen=True, gc=False):
    """One page of what happened, oldest first."""

    changes: list[Change]
    gaps: list[tuple[float, float]]
    """(from, to) in which nothing was written down: a page that replays asks for a snapshot after each."""
    next: str | None
    """The cursor of the next page; null after the last."""
    peers: list[PeerStretch] = []
    """Of others' own past, where this server was not there: what is whole, and why the rest is a gap."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """One point of the timeline."""

    at_s: float
    lane: str
    """`members`, `objects` or `events`."""
    level: str
    """`info`, `warning` or `error`."""
    text: str
    count: int = 1
    """Of how many marks this one stands for; then `text` is that of one of them."""


class Timeline(msgspec.Struct):
    """What the past holds."""

    from_s: float
    to_s: float
    covered: list[tuple[float, float]]
    """(from, to) of which there is a history; the rest are gaps."""
    marks: list[Mark]
    fetched: list[tuple[float, float]] = []
    """(from, to) in such a gap of which some node's own past is here."""
    peers: list[PeerStretch] = []


class Problem(msgspec.Struct, frozen=True, gc=False):
    """Why there is no answer."""

    error: str


# --- what operators do ------------------------------------------------------------------------------------------------


class Challenge(msgspec.Struct, frozen=True, gc=False):
    """What only the holder of a key can answer."""

    challenge: str
    message: str
    """The bytes to sign with the operator's Ed25519 key, hexadecimal digits."""


class Login(msgspec.Struct, frozen=True, gc=False):
    """The answer to a challenge."""

    public_key: str
    """32 bytes, hexadecimal digits."""
    challenge: str
    signature: str
    """64 bytes, hexadecimal digits."""
    name: str = ""
    """The name that the operator goes by."""


class Session(msgspec.Struct, frozen=True, gc=False):
    """Somebody who has proved to hold an operator's key."""

    token: str
    """For `Authorization: Bearer`; ends with the server, and with the key's role."""
    operator: str
    key: str


class Wish(msgspec.Struct, frozen=True, gc=False):
    """A review that an operator wants to make."""

    object: str
    verdict: str
    """`confirm`, `reject`, `relabel`, `withdraw` or `note`."""
    text: str = ""
    """The right label, or the words of the note."""
    shown: list[str] = []
    """Digests of the reviews of it that the operator sees."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A review that is to be signed."""

    payload: str
    """As it travels, hexadecimal digits."""
    message: str
    """The bytes to sign, hexadecimal digits."""
    words: str
    """What the signature will say."""


class SignedDraft(msgspec.Struct, frozen=True, gc=False):
    """A review with its operator's signature."""

    object: str
    payload: str
    signature: str
    """64 bytes, hexadecimal digits."""


class Act(msgspec.Struct, frozen=True, gc=False):
    """What an operator does to a member."""

    what: str
    """`dismiss`, `away`, `eye_start` or `eye_stop`."""
    member: str
    """Its name."""
    seconds: float = 0.0
    """How long it is away."""


class Nothing(msgspec.Struct, frozen=True, gc=False):
    """No arguments."""


class Done(msgspec.Struct, frozen=True, gc=False):
    """It was done."""

    text: str


class AuditLog(msgspec.Struct, frozen=True, gc=False):
    """Who did what on which revision at this ground station, and what it came to know that others did."""

    lines: list[dict[str, str | int | bool]]
    """The newest first."""
    sound: int
    """Lines whose chain is unbroken, from the first on."""
    newest: str
    """Hash of the newest: noted elsewhere, it shows whether the end was cut off."""
    problem: str
    """What is wrong with the chain; "" for nothing."""
