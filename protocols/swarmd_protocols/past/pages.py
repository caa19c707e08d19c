"""A page: some time of one node's own past, in its own words, under its own signature.

    page = body ‖ signature 64            signature over "swarmd/past/v1\\0" ‖ body, by the author's key
    body = msgpack array [version, author 16, number, from_ms, to_ms, events, places, counters]
      event   = [at, life, number, kind, subject, reason, evidence]
      place   = [at, lat 1e-7, lon 1e-7, height cm, yaw cdeg | nil, sigma cm, battery ‰ | nil]; no fix: nil, nil
      counter = [name, value at the page's end]

Who the author is called is not in it: that its certificate says. Times are swarm time, milliseconds since 2020; `at`
counts from `from_ms`. The bytes are canonical: what reads as a page and is written otherwise is none, so a page has one
digest. Numbers of one author rise and none is used twice. A page says that its author wrote down all it had to say of
[from_ms, to_ms]: what happened then and is not in it was not seen.
"""

from hashlib import blake2b
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from swarmd_protocols.crypto import SIGNATURE_BYTES
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Signer
from swarmd_protocols.state.positions import Place

PAGE_MAX_BYTES = 32_768
"""Of a page with its signature, half of what one answer carries: sixty places and a hundred events of full length fill
it, and a quiet minute takes 1.5 kB."""
PAGE_MAX_MS = 600_000
"""Time that one page tells of at most, milliseconds: ten minutes, so that no one signature covers a whole gap."""
EVENTS_MAX, PLACES_MAX, COUNTERS_MAX = 256, 600, 32
"""Rows of a page: what a page's bytes hold at most, and one place a second for its longest time."""
TIME_MAX_MS = 1 << 46
"""Milliseconds since 2020 beyond which no time is read: two thousand years."""
NUMBER_MAX = (1 << 63) - 1
"""Of a page: what a database keeps as a whole number."""
_VERSION = 1
"""First element of a page; others are refused."""
_TAG = b"swarmd/past/v1\0"

_At = Annotated[int, Meta(ge=0, le=PAGE_MAX_MS)]
_Ms = Annotated[int, Meta(ge=0, lt=TIME_MAX_MS)]
_Text = Annotated[str, Meta(max_length=240)]


class PastEvent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One thing that happened to, or was seen by, the author."""

    at: _At
    """Milliseconds after the page's beginning."""
    life: Annotated[int, Meta(ge=0, lt=1 << 48)]
    number: Annotated[int, Meta(ge=1, lt=1 << 32)]
    kind: Annotated[str, Meta(min_length=1, max_length=32)]
    subject: Annotated[str, Meta(max_length=64)]
    reason: _Text
    evidence: _Text


class PastPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Where the author was; without coordinates it had no fix from then on."""

    at: _At
    latitude_e7: Annotated[int, Meta(ge=-900_000_000, le=900_000_000)] | None = None
    longitude_e7: Annotated[int, Meta(ge=-1_800_000_000, le=1_800_000_000)] | None = None
    height_agl_cm: Annotated[int, Meta(ge=-10_000_000, le=10_000_000)] = 0
    yaw_cdeg: Annotated[int, Meta(ge=0, lt=36_000)] | None = None
    sigma_cm: Annotated[int, Meta(ge=0, le=65_535)] = 0
    battery_milli: Annotated[int, Meta(ge=0, le=1_000)] | None = None

    @property
    def place(self) -> Place | None:
        """As positions are told elsewhere; None without a fix."""
        if self.latitude_e7 is None or self.longitude_e7 is None:
            return None
        return Place(
            self.latitude_e7, self.longitude_e7, self.height_agl_cm, self.yaw_cdeg, self.sigma_cm, self.battery_milli
        )


Counter: TypeAlias = tuple[
    Annotated[str, Meta(min_length=1, max_length=32)], Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
]


class Page(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Some time of one node's past."""

    version: Annotated[int, Meta(ge=_VERSION, le=_VERSION)]
    author: Annotated[bytes, Meta(min_length=16, max_length=16)]
    number: Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
    from_ms: _Ms
    to_ms: _Ms
    events: Annotated[tuple[PastEvent, ...], Meta(max_length=EVENTS_MAX)] = ()
    places: Annotated[tuple[PastPlace, ...], Meta(max_length=PLACES_MAX)] = ()
    counters: Annotated[tuple[Counter, ...], Meta(max_length=COUNTERS_MAX)] = ()


_ENCODER = msgspec.msgpack.Encoder()
_PAGES = msgspec.msgpack.Decoder(Page)


def new_page(
    author: NodeId,
    number: int,
    span_ms: tuple[int, int],
    events: tuple[PastEvent, ...],
    places: tuple[PastPlace, ...],
    counters: tuple[Counter, ...],
) -> Page:
    """A page of this version; rows are put in the order of time."""
    by_time = sorted(events, key=lambda one: (one.at, one.life, one.number))
    ways = sorted(places, key=lambda one: one.at)
    return Page(_VERSION, author, number, *span_ms, tuple(by_time), tuple(ways), tuple(sorted(counters)))


def sign_page(page: Page, signer: Signer) -> bytes:
    """A page as it is kept and travels.

    Raises:
        StateError: It is out of bounds; nothing was signed.
    """
    body = _ENCODER.encode(page)
    data = body + signer.sign(_TAG + body)
    try:
        read_page(data)
    except WireError as error:
        raise StateError(f"a page of the past cannot be written: {error}") from error
    return data


def read_page(data: bytes) -> Page:
    """What bytes say that are a page; who signed them is for `holds` to judge.

    Raises:
        WireError: They are none, or out of bounds.
    """
    if not SIGNATURE_BYTES < len(data) <= PAGE_MAX_BYTES:
        raise WireError(f"a page of the past has up to {PAGE_MAX_BYTES} bytes, not {len(data)}")
    body = data[:-SIGNATURE_BYTES]
    try:
        page = _PAGES.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not a page of the past: {error}") from error
    length_ms = page.to_ms - page.from_ms
    if not 0 <= length_ms <= PAGE_MAX_MS:
        raise WireError(f"a page of the past tells of {length_ms} ms; it may be 0 to {PAGE_MAX_MS}")
    if any(row.at > length_ms for row in page.events) or any(row.at > length_ms for row in page.places):
        raise WireError("a page of the past tells of what came after its end")
    if any((row.latitude_e7 is None) is not (row.longitude_e7 is None) for row in page.places):
        raise WireError("a place of the past with one coordinate")
    if _ENCODER.encode(_in_order(page)) != body:
        raise WireError("a page of the past that is not written as pages are")
    return page


def holds(data: bytes, public_key: bytes, signer: Signer) -> bool:
    """Whether its author has signed these bytes of a page."""
    return signer.verify(public_key, _TAG + data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:])


def digest_of(data: bytes) -> bytes:
    """16 bytes that name a page: of two that an author signed under one number the lower is kept, by everybody."""
    return blake2b(data[:-SIGNATURE_BYTES], digest_size=16, person=b"swarmd-page").digest()


def _in_order(page: Page) -> Page:
    """The same rows as `new_page` puts them."""
    span_ms = (page.from_ms, page.to_ms)
    rows = page.events, page.places, page.counters
    return new_page(NodeId(page.author), page.number, span_ms, *rows)
