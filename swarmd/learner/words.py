"""What brain and learner say to each other: one JSON object each way, on the child's standard input and output."""

from typing import Any, TypeAlias

import msgspec

MAX_LINE_BYTES = 1 << 20
"""Of an answer: 4,096 weights of some twenty digits, and what stands beside them; a longer one is a broken child."""
SETS_MAX = 64
"""Training sets that are looked at, the newest first by their names."""
PICTURES_MAX = 400
"""Pictures that teach, the newest of all sets: a small board reads as many in a minute or two."""
PROBLEMS_MAX, PROBLEM_CHARS = 8, 300
"""Sentences about sets that cannot be used, which name files."""


class _Word(msgspec.Struct, frozen=True, tag=True):
    """Base: a tagged object."""


class Common(msgspec.Struct, frozen=True):
    """How a task is to behave."""

    is_idle: bool = False
    """Run only where nothing else wants to (SCHED_IDLE): there is an eye beside."""
    gate_fd: int = -1
    """The eye's gate (`swarmd.eye.gate`); -1: none."""


class Describe(_Word, frozen=True):
    """Say what head a bundle has."""

    model: str
    common: Common = Common()


class Teach(_Word, frozen=True):
    """Train from a head on, and judge that head."""

    model: str
    digest: str
    """Of the bundle, hexadecimal: another one is refused."""
    folder: str
    """Training sets lie below."""
    cache: str
    """Folder for what the heads read in the labelled pictures, which is the same in each round."""
    moved: tuple[int, ...]
    """By how much the head was moved from the bundle's, in 2^-24."""
    frames: str = ""
    """Where the eye keeps frames; "": nowhere."""
    reviews: tuple[dict[str, Any], ...] = ()
    """Objects that operators have judged, as GeoJSON features: labels of what is in `frames`."""
    common: Common = Common()


class Described(_Word, frozen=True):
    """Answers `Describe`."""

    name: str
    digest: str
    weights: int


class Taught(_Word, frozen=True):
    """Answers `Teach`."""

    change: tuple[float, ...]
    """Of each weight; empty where there are no rows."""
    rows: int
    held: int
    """Rows held back: they judge."""
    start: float | None
    """Share of those that the bundle's own head names right; None without any."""
    now: float | None
    """Likewise the head that was given."""
    sets: tuple[str, ...]
    """Digests of the sets that were used."""
    problems: tuple[str, ...]
    """What could not be used, and why."""


class Failed(_Word, frozen=True):
    """Answers either: nothing can be done, and why."""

    text: str


ToLearner: TypeAlias = Describe | Teach
FromLearner: TypeAlias = Described | Taught | Failed
_ENCODER = msgspec.json.Encoder()
_TO: "msgspec.json.Decoder[ToLearner]" = msgspec.json.Decoder(ToLearner)
_FROM: "msgspec.json.Decoder[FromLearner]" = msgspec.json.Decoder(FromLearner)


def encode(word: ToLearner | FromLearner) -> bytes:
    """A line, without its end."""
    return _ENCODER.encode(word)


def decode_to_learner(line: bytes) -> ToLearner:
    """Read a task; raises `msgspec.DecodeError`."""
    return _TO.decode(line)


def decode_from_learner(line: bytes) -> FromLearner:
    """Read an answer; raises `msgspec.DecodeError`."""
    return _FROM.decode(line)
