"""What brain and worker say to each other: one JSON object a line, on the worker's standard input and output.

The brain speaks first, with `Serve`; the end of its input is the end of the worker. Both come from one installation:
a line that cannot be read means a broken process, never a newer peer.
"""

from typing import TypeAlias

import msgspec

CANNOT_BIND_STATUS = 3
"""How a worker ends that was given an address which is taken, or none of this device's."""
MAX_LINE_BYTES = 1 << 19
"""Of one line: what is lent or borrowed, 256 KiB, in base64, and what stands beside it."""


class _Word(msgspec.Struct, frozen=True, tag=True):
    """Base: a tagged object."""


# --- Brain to worker ------------------------------------------------------------------------------------------------


class Serve(_Word, frozen=True):
    """How to work; the first line, exactly once."""

    listen: str
    """Loopback HOST:PORT; port 0: any."""
    backends: tuple[str, ...] = ("litert",)
    threads: int = 1
    max_requests: int = 256
    max_request_bytes: int = 16 << 20
    deadline_ms: int = 1000
    """Of requests that name none."""
    batch_ms: float = 20.0
    is_idle: bool = False
    """Run only where nothing else wants to (SCHED_IDLE)."""
    gate_fd: int = -1
    """The eye's gate (`swarmd.eye.gate`); -1: there is no eye."""
    borrows: bool = False
    """Programs may have other devices answer."""
    lends: bool = False
    grpc: str = ""
    """Loopback HOST:PORT; "": no gRPC."""
    lane: str = ""
    """HOST:PORT where lenders fetch what is too large for the brains; "": nothing larger leaves."""
    plan: str = ""
    """A file of plans (`cascade.py`); "": none."""
    split: str = ""
    """A file of models in parts (`splitting.py`); "": none."""
    leave: str = "frames"
    """What may leave at most (`leaving.py`)."""
    jpeg_quality: int = 0
    """Of pictures that may leave with other pixels (`forms.py`); 0: none does."""
    session_key: bytes = b""
    """What texts that go on later are sealed with (`texting.py`), 32 bytes; empty: the worker makes its own."""


class Load(_Word, frozen=True):
    """Serve this bundle too; it becomes the newest version of its name."""

    model: str
    labels: str = ""
    ability: str = ""
    """What it is able to, by its owner's word; "": it does not say."""
    grade_milli: int = 0
    """How well, thousandths."""


class Lend(_Word, frozen=True):
    """Another device's request, or one that came back to this one; answered by `Ran`."""

    job: int
    digest: str
    data: bytes
    units: int
    left_ms: int
    is_own: bool
    lane_bytes: int = 0
    """To be fetched from the borrower's worker, at most."""
    host: str = ""
    """Where the borrower is, or the lender that keeps the input; "": nobody knows, or it is not proven."""
    borrower: str = ""
    """Whose request it is, hexadecimal; "": this device's own."""
    is_here: bool = False
    """This device itself keeps the input."""
    turn_ns: int = 0
    """Of others' work the one with the earliest turn runs first (`swarmd_protocols.offload.turns`)."""
    asked: int = 0
    """`Borrow.number` of what came back to this device; 0: it is another's."""


class Lenders(_Word, frozen=True):
    """Who lends what just now; once a second to a worker that borrows."""

    bundles: dict[str, dict[str, int]]
    """By digest and node, both hexadecimal: what one inference takes there by its own word, nanoseconds."""


class Look(_Word, frozen=True):
    """Have a model look at a picture of this device; answered by `Looked`."""

    number: int
    model: str
    """As programs name it: a name as served, `zoo:NAME`, a file, or `able:ABILITY`."""
    jpeg: bytes
    left_ms: int
    borrow: str = ""
    """As `Swarmd-Borrow`: another member may answer; "": this device alone."""
    cause: str = ""
    """`traceparent` of the sighting that the picture is of; "": it is not known."""
    pixel_m: float = 0.0
    """Metres of ground that a pixel of it shows (`swarmd_models/scale.py`); 0.0: not known."""
    place: tuple[float, float] | None = None
    """Where in it the middle of the thing lies, shares of its width and height; None: not known."""


class Drop(_Word, frozen=True):
    """Nobody waits for this job any more."""

    job: int


class Borrowed(_Word, frozen=True):
    """What came of a `Borrow`."""

    number: int
    data: bytes | None
    lender: str = ""
    """The name of the device that answered."""
    reason: str = ""
    """Why there is no answer."""
    is_check_wanted: bool = False
    """Hold it against the own model when there is time, and say `Judged`."""
    digest: str = ""
    """Of the bundle that answered."""
    is_kept: bool = False
    """The answer was kept from an equal request."""
    is_offered: bool = False
    """There is no answer, and still a member offers what was asked for: asking again may help."""
    node: str = ""
    """The lender that answered, hexadecimal; "": this device."""
    proof: bytes = b""
    """Where it keeps what it computed: by which another lender can see that this one has given the answer."""
    host: str = ""
    """With `proof`: where it is; "": nobody knows."""
    way_ns: int = 0
    """There and back of a word that no work stands behind, measured; 0: it was not."""


# --- Worker to brain ------------------------------------------------------------------------------------------------


class Serving(_Word, frozen=True):
    """The socket is bound."""

    address: str
    lane: str = ""
    grpc: str = ""


class Loaded(_Word, frozen=True):
    """A bundle is served."""

    model: str
    """As `Load` named it."""
    name: str
    version: str
    digest: str
    backend: str


class Problem(_Word, frozen=True):
    """Something is wrong, in one sentence."""

    text: str
    model: str = ""
    """The bundle that cannot be loaded, as `Load` named it."""


class Pulse(_Word, frozen=True):
    """The worker lives; once a second."""

    busy_ms: int
    """How long the running inference has taken so far; 0: none runs."""
    counters: dict[str, int]
    gauges: dict[str, float]
    held: dict[str, int] = {}
    """Measured nanoseconds of one inference by the digest of each bundle that is served; 0: not measured yet."""
    queue_ns: int = 0
    """Work of this device's own programs that waits."""
    able: dict[str, tuple[str, int]] = {}
    """Ability and grade of those bundles that have one, by digest."""
    watts: float = 0.0
    """What inference adds to the device's power while it runs; 0: that is not known, or not yet."""
    meter: str = ""
    """What measures it, or why nothing does."""
    asks: list[str] = []
    """Digests of bundles that programs are about to ask others for."""


class Borrow(_Word, frozen=True):
    """A program's request that another device may answer; answered by `Borrowed`."""

    number: int
    digest: str
    data: bytes
    units: int
    left_ms: int
    local_ns: int = 0
    """What the own model takes for it; 0: it is not here."""
    local_wait_ns: int = 0
    """What it has to do first."""
    lane_bytes: int = 0
    """Laid out for lenders to fetch."""
    ability: str = ""
    """Any bundle that is able to it may answer."""
    grade_min_milli: int = 0
    """The least grade of a lender's bundle, with `ability`."""
    keep_ms: int = 0
    """The answer may be kept for so long, and one that was kept serves; 0: neither."""
    lane_key: bytes = b""
    """What each lender's token is made with, in place of the one in `data` (`lent.token_of`)."""
    lane_at: int = 0
    """Where in `data` that stands."""
    only: str = ""
    """The node that is to answer, hexadecimal: this one or none; "": whichever the brain finds."""
    may_check: bool = False
    """The own model does not answer, and the answer may be held against it."""
    but: list[str] = []
    """Nodes that are not to answer."""
    priority: int = 2
    """Among what its lender does for others: 1 high, 2 normal, 3 low."""
    cause: str = ""
    """W3C `traceparent` of what the program was doing; "": it did not say."""
    copies: int = 1
    """Lenders that work on it from the start."""


class Abandon(_Word, frozen=True):
    """The program that asked with this `Borrow` has gone."""

    number: int


class Judged(_Word, frozen=True):
    """Whether the answer of a `Borrow` was as good as the own model's."""

    number: int
    is_right: bool
    is_silent: bool = False
    """Neither: its lender was reached, and is silent about what it keeps."""


class Malformed(_Word, frozen=True):
    """A borrower has sent what is in no form that can be read."""

    borrower: str
    """Hexadecimal."""


class Ran(_Word, frozen=True):
    """What came of a `Lend`; None: nothing."""

    job: int
    data: bytes | None


class Looked(_Word, frozen=True):
    """What came of a `Look`."""

    number: int
    score: float | None
    """The model's surest word of the thing in it, 0 to 1; 0: it sees nothing; None: nobody has answered, or unclear."""
    digest: str = ""
    """Of the bundle that has answered, hexadecimal."""
    lender: str = ""
    """The name of the member that has; "": this device."""
    took_us: int = 0
    """Microseconds of inference, by who has answered."""
    reason: str = ""
    """Why there is no answer."""
    is_unclear: bool = False
    """The model has answered, and nobody knows whether what it sees is the thing or a neighbour."""


ToWorker: TypeAlias = Serve | Load | Lend | Lenders | Look | Drop | Borrowed
FromWorker: TypeAlias = Serving | Loaded | Problem | Pulse | Borrow | Abandon | Judged | Malformed | Ran | Looked

_ENCODER = msgspec.json.Encoder()
_TO_WORKER: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)
_FROM_WORKER: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)


def encode(word: ToWorker | FromWorker) -> bytes:
    """One line."""
    return _ENCODER.encode(word) + b"\n"


def decode_to_worker(line: bytes) -> ToWorker:
    """A word of the brain's; raises `msgspec.DecodeError`."""
    return _TO_WORKER.decode(line)


def decode_from_worker(line: bytes) -> FromWorker:
    """A word of the worker's; raises `msgspec.DecodeError`."""
    return _FROM_WORKER.decode(line)
