"""What `import swarmd` gives to programs in Python: the picture that one daemon has, and the simulator.

    node = swarmd.connect()                      # the daemon that runs on this device
    for thing in node.objects(): …
    for change in node.watch(): …
    for seen in node.detect("solar-small-320", frame): …
    outcome = swarmd.simulate("partition-heal", seed=7)

Every call opens a connection of its own, so that a `Node` may be kept for as long as one likes and used by several
threads; a daemon that has restarted in the meantime is asked like any other. What comes back are frozen records, which
are checked as they are read; keys that a newer daemon adds are passed over.

Versions: what this module offers follows semantic versioning of the package. Something that is to go warns with
`DeprecationWarning` for at least one minor version before it does.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from swarmd.api.control import TIMEOUT_S, ControlClient
from swarmd.api.remote import place
from swarmd.errors import ControlError, DaemonError, WorkerError

if TYPE_CHECKING:
    import numpy as np

    from swarmd.api.remote import Remote


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


class Inferred(msgspec.Struct, frozen=True, kw_only=True):
    """What a model answered."""

    model: str
    version: str
    """Digest of the bundle that answered."""
    lender: str
    """Name of the member that answered, "" for this device."""
    took_us: int
    """Microseconds from the request to the answer, where it was answered."""
    outputs: "Mapping[str, np.ndarray[Any, np.dtype[Any]]]"
    """By name, as the graph gives them."""


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation ended with."""

    scenario: str
    seed: int
    virtual_s: float
    violations: tuple[Mapping[str, Any], ...]
    """Rules that were broken: none in a swarm that works."""
    figures: Mapping[str, Any]
    """Everything that `swarmd sim run --json` prints."""


Record = TypeVar("Record")


class Node:
    """A daemon that runs: what it knows, and what it may be told. Made by `connect`.

    Every method may raise `ControlError` (nobody answers) and `DaemonError` (it refused, and says why).
    """

    def __init__(self, control: "Path | Remote", timeout_s: float) -> None:
        self._control = control
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        """Which."""
        return f"<swarmd.Node at {self._control}>"

    # --- what it knows ------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """Everything at a glance."""
        return _read(self.ask("status"), Status)

    def members(self) -> list[Member]:
        """All members that it knows, itself included."""
        return _read(self.ask("members")["members"], list[Member])

    def objects(self) -> list[Object]:
        """The deduplicated picture of the swarm."""
        return _read(self.ask("objects")["objects"], list[Object])

    def detections(self) -> list[Detection]:
        """Every member's own sightings."""
        return _read(self.ask("detections")["detections"], list[Detection])

    def cells(self) -> list[Cell]:
        """The survey area."""
        return _read(self.ask("cells")["cells"], list[Cell])

    def counters(self) -> dict[str, int]:
        """The swarm's shared counters, summed over all members."""
        return _read(self.ask("counters")["sums"], dict[str, int])

    def events(
        self, *, since_ms: int = 0, kinds: Sequence[str] = (), origin: str = "", limit: int = 1_000
    ) -> list[Event]:
        """What happened, oldest first.

        Args:
            since_ms: From then on, milliseconds since 1970.
            kinds: Only these; all where empty.
            origin: Only what this member said: its name or id.
            limit: The newest so many.
        """
        found = self.ask("events", since_ms=since_ms, kinds=list(kinds), origin=origin, limit=limit)
        return _read(found["events"], list[Event])

    def watch(self) -> "Changes":
        """What changes from now on. It listens when this returns, so read `objects` and `members` after it."""
        return Changes(ControlClient(self._control, self._timeout_s))

    # --- what its models see ------------------------------------------------------------------------------------------

    def detect(
        self,
        model: str,
        picture: "np.ndarray[Any, np.dtype[Any]]",
        *,
        version: str = "",
        priority: int = 2,
        deadline_ms: int | None = None,
        borrow: str = "",
    ) -> list[Seen]:
        """Have a model look at a picture, with all that the eye does to a frame, tracking apart.

        The daemon needs `inference.listen` (docs/inference-api.md), and this program runs on its device.

        Args:
            model: Name as served, or a bundle (`zoo:NAME`, a file): exactly that one.
            picture: Shape (rows, columns), or (rows, columns, 1 or 3): uint8, grey or blue, green, red.
            version: Digest of the bundle; "": the newest that is served.
            priority: 1 high, 2 normal, 3 low.
            deadline_ms: Milliseconds until an answer is of no use, 60,000 at most; None: as the daemon is set.
            borrow: "yes": another member may answer (`lending.borrow`); "quickest": whoever is soonest; "unsure": better models
                of others where the own one is in doubt (`lending.plan`).

        Raises:
            WorkerError: The API refused, and says why; a `DaemonError`.
        """
        name = model.removesuffix(".detect")
        image = picture[..., None] if picture.ndim == 2 else picture
        told = self._infer(name, ".detect", image, version, priority, deadline_ms, borrow).outputs
        rows = zip(told["labels"], told["scores"], told["boxes"], strict=True)
        return [
            Seen(label=str(label), score=float(score), box=(float(box[0]), float(box[1]), float(box[2]), float(box[3])))
            for label, score, box in rows
        ]

    def infer(
        self,
        model: str,
        tensor: "np.ndarray[Any, np.dtype[Any]]",
        *,
        version: str = "",
        priority: int = 2,
        deadline_ms: int | None = None,
        borrow: str = "",
    ) -> Inferred:
        """Have a model's graph answer a tensor; arguments and errors as of `detect`.

        Args:
            model: Name as served, or a bundle (`zoo:NAME`, a file): exactly that one.
            tensor: Shape and type of the graph's input; the first axis, the number of items, may be left out.
            version: Digest of the bundle; "": the newest that is served.
            priority: 1 high, 2 normal, 3 low.
            deadline_ms: Milliseconds until an answer is of no use, 60,000 at most; None: as the daemon is set.
            borrow: "yes": another member may answer (`lending.borrow`); "quickest": whoever is soonest; "unsure": better models
                of others where the own one is in doubt (`lending.plan`).
        """
        return self._infer(model, "", tensor, version, priority, deadline_ms, borrow)

    def _infer(
        self,
        model: str,
        lane: str,
        tensor: "np.ndarray[Any, np.dtype[Any]]",
        version: str,
        priority: int,
        deadline_ms: int | None,
        borrow: str,
    ) -> Inferred:
        from swarmd.worker import asking
        from swarmd_models.errors import ModelError

        wish = asking.Wish(version, priority, deadline_ms, borrow)
        if not isinstance(self._control, Path):
            raise ControlError(f"{self._control} is another device; inference is asked on the device that answers")
        try:
            name, digest = asking.named(model)
        except ModelError as error:
            raise WorkerError(str(error)) from error
        address = asking.address_of(self.ask("status"))
        head, outputs = asking.infer(address, name + lane, tensor, replace(wish, version=version or digest))
        return Inferred(
            model=str(head["model_name"]),
            version=str(head["model_version"]),
            lender=str(head["lender"]),
            took_us=int(head["parameters"]["took_us"]),
            outputs=outputs,
        )

    # --- what it is told ----------------------------------------------------------------------------------------------

    def observe(self, sightings: Iterable[Sighting]) -> int:
        """Say what a detector of one's own has seen; the swarm treats it like what an eye sees.

        Args:
            sightings: At most 1,000, and 64 KiB as JSON, which is some 500 with a place.

        Returns:
            How many were passed on: one that tells nothing new is not. `objects` shows them a moment later.
        """
        rows = [_row(sighting) for sighting in sightings]
        return _read(self.ask("observe", detections=rows)["taken"], int)

    def say(self, name: str, payload: str = "") -> None:
        """Send a user event to every member.

        Args:
            name: 1 to 128 characters.
            payload: At most 1,024 characters.
        """
        self.ask("event", name=name, payload=payload)

    def note(self, key: str, value: str) -> None:
        """Write a short note that every member keeps; the last writer's stands.

        Args:
            key: 1 to 64 bytes.
            value: At most 512 bytes.
        """
        self.ask("note", key=key, value=value)

    def review(
        self,
        object_id: str,
        verdict: str,
        text: str = "",
        *,
        public_key: bytes,
        sign: Callable[[bytes], bytes],
        by: str = "",
    ) -> str:
        """Say of an object what an operator knows of it; every member shows it beside what others say.

        Args:
            object_id: Of `objects`.
            verdict: `confirm`, `reject`, `relabel`, `withdraw` or `note`.
            text: The right label of a relabelling, the words of a note; else empty.
            public_key: Of the operator, 32 bytes; the root names it for the role operator.
            sign: Signs a message with that key (Ed25519), such as `nacl.signing.SigningKey.sign(m).signature`.
            by: The name that the operator goes by.

        Returns:
            The name of the signed statement, as in `Review.digest`.
        """
        from swarmd.api.reviewing import draft, read_subject

        subject = read_subject(self.ask("review_subject", object=object_id))
        made = draft(subject, verdict, text, time.time_ns() // 1_000_000, by)
        return _read(self.ask("review", statement=made.sign(public_key, sign).hex())["digest"], str)

    def ask_for_cell(self, *, east_m: float, north_m: float, battery: float = 1.0) -> list[Cell]:
        """Ask for a piece of the survey from a place.

        Args:
            east_m: Metres east of the mission's origin.
            north_m: Metres north of it.
            battery: 0 to 1.

        Returns:
            The cells that it holds already; the one it is given comes with `cells` a moment later.
        """
        answer = self.ask("cell_next", east_m=east_m, north_m=north_m, battery=battery)
        return _read(answer["cells"], list[Cell])

    def finish_cell(self, cell: str, *, quality: float = 1.0) -> None:
        """Say that a cell has been inspected.

        Args:
            cell: Its id.
            quality: How well, 0 to 1.
        """
        self.ask("cell_done", cell=cell, quality=quality)

    def ask(self, verb: str, **arguments: object) -> dict[str, Any]:
        """Any verb of the control socket, such as `trust_status`; its answer as JSON has it."""
        with ControlClient(self._control, self._timeout_s) as client:
            return client.call(verb, **arguments)


class Changes(Iterator[Change]):
    """Changes, one at a time, each waited for; they end when the daemon does, or with `close`. Made by `Node.watch`."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client
        try:
            self._notices = client.watch()
        except BaseException:
            client.close()
            raise

    def __next__(self) -> Change:
        """Wait for the next."""
        try:
            notice = dict(next(self._notices))
        except StopIteration:
            self.close()
            raise
        return Change(event=str(notice.pop("event")), subject=str(notice.pop("subject", "")), details=notice)

    def close(self) -> None:
        """Listen no longer."""
        self._client.close()

    def __enter__(self) -> "Changes":
        """Use as a context."""
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no longer."""
        self.close()


def connect(control: str | Path | None = None, *, timeout_s: float = TIMEOUT_S) -> Node:
    """A daemon that runs.

    Args:
        control: Its control socket or its node's name, or `tls://HOST[:PORT]` elsewhere; None: the only one here.
        timeout_s: Seconds that an answer may take.

    Raises:
        ControlError: Nobody answers, or several daemons could be meant; the message lists them.
    """
    with ControlClient(None if control is None else place(str(control)), timeout_s) as client:
        client.call("status")
        return Node(client.path, timeout_s)


def simulate(
    scenario: str,
    *,
    seed: int = 1,
    nodes: int | None = None,
    seconds: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Simulated:
    """Run a simulation in this process: the same protocol objects as the daemon's, under virtual time.

    Args:
        scenario: One that ships (`swarmd sim scenarios`), or a .toml file.
        seed: Equal seeds give equal runs.
        nodes: Another number of nodes.
        seconds: Another length, virtual seconds.
        settings: Any other key of the scenario, such as {"radio.loss": 0.3}.

    Raises:
        DaemonError: There is no such scenario or key, or a value does not fit it.
    """
    from swarmd_sim.errors import SimError
    from swarmd_sim.run.replay import Replay
    from swarmd_sim.run.scenario import load_scenario
    from swarmd_sim.run.simulation import Options

    if not isinstance(seed, int):
        raise DaemonError(f"seed is {seed!r}; it must be a whole number")
    changed = dict(settings or {})
    changed |= {} if nodes is None else {"swarm.nodes": nodes}
    changed |= {} if seconds is None else {"swarm.seconds": seconds}
    try:
        result = Replay(load_scenario(scenario, changed), seed).run(Options())
    except SimError as error:
        raise DaemonError(str(error)) from error
    figures: dict[str, Any] = dict(result.figures)
    return _read({**figures, "figures": figures}, Simulated)


def _row(sighting: Sighting) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(sighting)
    return {key: value for key, value in row.items() if value is not None}


def _read(value: object, kind: type[Record]) -> Record:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ControlError(f"the daemon's answer is not what this version of swarmd reads: {error}") from error
