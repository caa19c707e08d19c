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
from swarmd.records import (
    Cell,
    Change,
    Detection,
    Event,
    Heard,
    Inferred,
    Member,
    Object,
    Seen,
    Sighting,
    Simulated,
    Status,
    heard,
)

if TYPE_CHECKING:
    import numpy as np

    from swarmd.api.remote import Remote
    from swarmd.worker.asking import Wish


Record = TypeVar("Record")


class Node:
    """A daemon that runs: what it knows, and what it may be told. Made by `connect`.

    Every method may raise `ControlError` (nobody answers) and `DaemonError` (it refused, and says why).

    Examples:
        >>> import swarmd
        >>> node = swarmd.connect()
        >>> [(member.name, member.state) for member in node.members()]
        [('drone-1', 'alive')]
        >>> with node.watch() as changes:
        ...     taken = node.observe([swarmd.Sighting(label="crack", score=0.9, east_m=3.0, north_m=4.0)])
        ...     told = next(change for change in changes if change.event == "object")
        >>> told.details["label"]
        'crack'
        >>> [(thing.label, thing.east_m, thing.observers) for thing in node.objects()]
        [('crack', 3.0, ('drone-1',))]
        >>> node.note("weather", "windy")
        >>> node.ask("event", name="")
        Traceback (most recent call last):
        ...
        swarmd.errors.DaemonError: ...
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

    def detect(
        self,
        model: str,
        picture: "np.ndarray[Any, np.dtype[Any]]",
        *,
        version: str = "",
        priority: int = 2,
        deadline_ms: int | None = None,
        borrow: str = "",
        copies: int = 1,
    ) -> list[Seen]:
        """Have a model look at a picture, with all that the eye does to a frame, tracking apart.

        The daemon needs `inference.listen` (docs/inference-api.md), and this program runs on its device.

        Args:
            model: Name as served, or a bundle (`zoo:NAME`, a file): exactly that one.
            picture: Shape (rows, columns), or (rows, columns, 1 or 3): uint8, grey or blue, green, red.
            version: Digest of the bundle; "": the newest that is served.
            priority: 1 high, 2 normal, 3 low.
            deadline_ms: Milliseconds until an answer is of no use, 60,000 at most; None: as the daemon is set.
            borrow: "yes": another member may answer (`lending.borrow`); "quickest": whoever is soonest; "unsure":
                better models of others where the own one is in doubt (`lending.plan`); "split": others for parts of
                the model (`lending.split`); "fleet": whoever is idle, for a batch of many requests at once.
            copies: 2: two other members have it at once, with `borrow` "yes", "quickest" or "unsure", so that the death
                of one loses nothing that the other has time for; the second begins when the first is late or fails.

        Raises:
            WorkerError: The API refused, and says why; a `DaemonError`.
        """
        name = model.removesuffix(".detect")
        image = picture[..., None] if picture.ndim == 2 else picture
        told = self._infer(name, ".detect", image, version, priority, deadline_ms, borrow, copies).outputs
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
        copies: int = 1,
    ) -> Inferred:
        """Have a model's graph answer a tensor; arguments and errors as of `detect`.

        `tensor` has shape and type of the graph's input; the first axis, the number of items, may be left out.
        """  # fmt: skip
        return self._infer(model, "", tensor, version, priority, deadline_ms, borrow, copies)

    def hear(
        self,
        model: str,
        samples: "np.ndarray[Any, np.dtype[Any]]",
        *,
        version: str = "",
        priority: int = 2,
        deadline_ms: int | None = None,
        borrow: str = "",
        copies: int = 1,
    ) -> list[Heard]:
        """Have a model judge a sound or a log, window by window; arguments and errors as of `detect`.

        `samples` has shape (n,) or (n, channels), at the rate that the model's metadata say; 64 windows at most.
        """  # fmt: skip
        rows = samples.astype("float32").reshape(len(samples), -1)
        name = model.removesuffix(".series")
        told = self._infer(name, ".series", rows, version, priority, deadline_ms, borrow, copies)
        return heard(told.outputs)

    def write(
        self,
        model: str,
        text: str,
        *,
        version: str = "",
        priority: int = 2,
        deadline_ms: int | None = None,
        borrow: str = "",
        max_tokens: int = 128,
    ) -> Iterator[str]:
        """Have a language model go on with a text, and hear it as it comes; arguments and errors as of `detect`.

        `text` is what it begins with, `deadline_ms` is about the whole text (60,000 at most, and where None is given),
        `borrow` is "yes" or "quickest", and of `max_tokens` there are 1,024 at most.
        """
        from swarmd.worker import asking_text

        address, name, wish = self._asked(model, version, priority, deadline_ms, borrow)
        for row in asking_text.stream(address, name, text, wish, max_tokens=max_tokens):
            if row["text_output"]:
                yield row["text_output"]

    def _asked(
        self, model: str, version: str, priority: int, deadline_ms: int | None, borrow: str, copies: int = 1
    ) -> "tuple[str, str, Wish]":
        """Where the API is, the model's name, and how the request is to be answered."""
        from swarmd.worker import asking
        from swarmd_models.errors import ModelError

        wish = asking.Wish(version, priority, deadline_ms, borrow, copies=copies)
        if not isinstance(self._control, Path):
            raise ControlError(f"{self._control} is another device; inference is asked on the device that answers")
        try:
            name, digest = asking.named(model)
        except ModelError as error:
            raise WorkerError(str(error)) from error
        return asking.address_of(self.ask("status")), name, replace(wish, version=version or digest)

    def _infer(
        self,
        model: str,
        lane: str,
        tensor: "np.ndarray[Any, np.dtype[Any]]",
        version: str,
        priority: int,
        deadline_ms: int | None,
        borrow: str,
        copies: int = 1,
    ) -> Inferred:
        from swarmd.worker import asking

        address, name, wish = self._asked(model, version, priority, deadline_ms, borrow, copies)
        head, outputs = asking.infer(address, name + lane, tensor, wish)
        return Inferred(
            model=str(head["model_name"]),
            version=str(head["model_version"]),
            lender=str(head["lender"]),
            took_us=int(head["parameters"]["took_us"]),
            outputs=outputs,
        )

    def observe(self, sightings: Iterable[Sighting]) -> int:
        """Say what a detector of one's own has seen; the swarm treats it like what an eye sees.

        Args:
            sightings: At most 1,000, and 64 KiB as JSON, which is some 500 with a place.

        Returns:
            How many were passed on: one that tells nothing new is not. `objects` shows them a moment later.
        """
        rows = [_row(sighting) for sighting in sightings]
        return _read(self.ask("observe", detections=rows)["taken"], int)

    def judge(
        self,
        object_id: str,
        model: str,
        picture: "np.ndarray[Any, np.dtype[Any]]",
        *,
        need: float,
        version: str = "",
        deadline_ms: int | None = None,
        borrow: str = "",
    ) -> float:
        """Ask another judge about a candidate's newest look and say its verdict; what it says next replaces this one.

        The verdict is this device's, by another model than its eye's, and counts as one witness of another
        model (`dedup.judge_confirms` has it confirm by itself). Arguments and errors else as of `detect`: with `borrow`
        a larger model of another member answers.

        Args:
            object_id: Of `objects`.
            model: Name as served, or a bundle (`zoo:NAME`, a file): exactly that one.
            picture: Of the thing: the model's surest word of anything in it counts.
            need: Score from which the model is sure, 0.001 to 1.
            version: Digest of the bundle; "": the newest that is served.
            deadline_ms: Milliseconds until an answer is of no use.
            borrow: As of `detect`.

        Returns:
            The score that it has said; 0 where the model sees nothing, which withdraws an earlier verdict.
        """
        name = model.removesuffix(".detect")
        image = picture[..., None] if picture.ndim == 2 else picture
        told = self._infer(name, ".detect", image, version, 2, deadline_ms, borrow)
        score = max((float(score) for score in told.outputs["scores"]), default=0.0)
        self.ask("judge", object=object_id, score=score, need=need, model_digest=told.version)
        return score

    def withdraw_verdict(self, object_id: str) -> None:
        """Take back what this device's judge has said of an object."""
        self.ask("judge", object=object_id, score=0.0, need=1.0, model_digest="00" * 8)

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

    Examples:
        >>> import swarmd
        >>> outcome = swarmd.simulate("partition-heal", seed=7, nodes=10)
        >>> outcome.violations
        ()
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
