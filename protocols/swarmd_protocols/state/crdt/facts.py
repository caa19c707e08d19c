"""The facts of a FACTS batch and their columns.

A body is one msgpack array `[sightings, joins, dones, note puts, note removals, reviews, pictures]`, the first three
nil or an array of their own. Rows of one kind share columns (`columns.py`), sorted by time: neighbours are alike.

    keys        [n, labels, label column, kind column, place x, place y, assets]
    sightings   [keys, flags, east, north, covariance (3), score, first ms, span ms, reports, models, model column,
                beside count, beside x, beside y]
    joins       [keys, origins, origin column, first ms, span ms]   "I see it too": another origin's sighting
    dones       [cells (6 bytes each), quality column]
    puts        [[incarnation, serial, stamp, key, value, removed dots], …]   one operator note each
    removals    [[key, removed dots], …]
    reviews     [statement, …]                  what operators say of objects (`reviews.py`)
    pictures    [name (16 bytes) or nothing, …] of each sighting, in their order (`thumbs/form.py`)
    features    [form and 16 numbers, or nothing, …] of each sighting, in their order (`dedup/looks.py`)
    needs       score from which its author would be sure, of each sighting; 0: it is (`dedup/tiers.py`)
    alike       correlations of looks by the author's bundle, of each sighting: of a pass, then of two days; 0: not said

A body ends behind the last of reviews, pictures, features, needs and alike that its batch holds, as nodes wrote it that
knew no more; such a node reads a longer body as if it held none of what follows.
"""

from collections.abc import Sequence
from itertools import repeat
from operator import add, gt, mul
from typing import NamedTuple

import msgspec

from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NODE_ID_BYTES, NodeId
from swarmd_protocols.state.clock import LOGICAL_BITS
from swarmd_protocols.state.crdt.columns import pack, pack_deltas, unpack, unpack_deltas
from swarmd_protocols.state.crdt.note_rows import NotePut as NotePut
from swarmd_protocols.state.crdt.note_rows import NoteRemoval as NoteRemoval
from swarmd_protocols.state.crdt.note_rows import Put, Removal, checked_put, checked_removal
from swarmd_protocols.state.crdt.places import ASSET as ASSET
from swarmd_protocols.state.crdt.places import LABEL_MAX_BYTES, PLACE_MAX
from swarmd_protocols.state.crdt.places import LATTICE as LATTICE
from swarmd_protocols.state.crdt.places import TRACK as TRACK
from swarmd_protocols.state.crdt.places import Place as Place
from swarmd_protocols.state.crdt.places import SightingKey as SightingKey
from swarmd_protocols.state.crdt.reviews import REVIEW_WEIGHT, SignedReview, open_review
from swarmd_protocols.state.crdt.unsure import NO_COLUMN, NOT_SAID, Alike, pack_unsure, unpack_unsure
from swarmd_protocols.thumbs.form import NAME_BYTES

ROWS_MAX = 128
"""Rows of one batch: more than fit `batch.BATCH_MAX_BYTES` packed as small as can be."""
BESIDE_MAX = 8
"""Things that an author names as seen beside this one: those of one frame around it."""
POSITION_MAX_CM = 100_000_000
"""1,000 km from the mission origin."""
VARIANCE_MAX_CM2 = 10**10
"""A standard deviation of 1 km: beyond it nothing is known of the place."""
FEATURES_BYTES = 17
"""Of how a thing looks: a form and 16 numbers."""
CELL_HASH_BYTES = 6
"""Of a cell's name: among 10,000 cells two share one with a probability of 2 in 10 million."""
WIRE_PITCH_CM = 50
"""Positions of lattice rows travel as offsets from `place` times this."""
_MS_MAX = (1 << 43) - 1
"""Milliseconds since 2020: the year 2298."""


class Sighting(NamedTuple):
    """What one origin knows of one thing; a single-writer register, later rows replace earlier ones."""

    label: str
    kind: int
    place: Place
    moving: bool
    positioned: bool
    east_cm: int
    north_cm: int
    covariance_cm2: tuple[int, int, int]
    score_milli: int
    first: int
    """Stamp, milliseconds only (logical part 0)."""
    last: int
    reports: int
    model: bytes
    beside: tuple[tuple[int, int], ...]
    """Lattice offsets to own sightings that were seen in the same frame: they are other things."""
    thumb: bytes = b""
    """Name of the picture that its author keeps of it; b"": there is none."""
    features: bytes = b""
    """How it looks to `model`, in a few numbers (`dedup/looks.py`); b"": not said."""
    need_milli: int = 0
    """Score from which its author would be sure; above `score_milli` it is a candidate (`dedup/tiers.py`)."""
    alike: Alike = NOT_SAID
    """Of a candidate: how alike looks are by its author's bundle."""

    @property
    def key(self) -> SightingKey:
        """The register's key at its origin."""
        return (self.label, self.kind, self.place)


class Join(NamedTuple):
    """An origin saw what another origin's sighting describes, and has nothing to add but itself."""

    origin: NodeId
    key: SightingKey
    first: int
    last: int


class Done(NamedTuple):
    """A cell was finished."""

    cell: bytes
    quality_milli: int


class Facts(msgspec.Struct):
    """All facts of one batch."""

    sightings: Sequence[Sighting] = ()
    joins: Sequence[Join] = ()
    dones: Sequence[Done] = ()
    puts: Sequence[NotePut] = ()
    removals: Sequence[NoteRemoval] = ()
    reviews: Sequence[SignedReview] = ()

    @property
    def weight(self) -> int:
        """Rows, and what they name beside themselves: what the facts cost whoever keeps them."""
        named = sum(len(row.beside) for row in self.sightings) + sum(len(put.removes) for put in self.puts)
        named += sum(len(removal.removes) for removal in self.removals)
        rows = len(self.sightings) + len(self.joins) + len(self.dones) + len(self.puts) + len(self.removals)
        return rows + (3 * named + 3) // 4 + REVIEW_WEIGHT * len(self.reviews)


_NOTHING = NO_COLUMN


class _Keys(msgspec.Struct, array_like=True, frozen=True):
    """Label, kind and place of n rows."""

    n: int
    labels: tuple[str, ...]
    label_of: bytes
    kinds: bytes
    xs: bytes
    ys: bytes
    assets: tuple[str, ...]


class _Sightings(msgspec.Struct, array_like=True, frozen=True):
    keys: _Keys
    flags: bytes
    east: bytes
    north: bytes
    ee: bytes
    en: bytes
    nn_more: bytes
    """North-north minus east-east: nothing at all where errors are round."""
    score: bytes
    first_ms: bytes
    span_ms: bytes
    reports: bytes
    models: tuple[bytes, ...]
    model_of: bytes
    beside_count: bytes
    beside_x: bytes
    beside_y: bytes


class _Joins(msgspec.Struct, array_like=True, frozen=True):
    keys: _Keys
    origins: tuple[bytes, ...]
    origin_of: bytes
    first_ms: bytes
    span_ms: bytes


class _Dones(msgspec.Struct, array_like=True, frozen=True):
    cells: bytes
    quality: bytes


class _Body(msgspec.Struct, array_like=True, frozen=True):
    sightings: _Sightings | None
    joins: _Joins | None
    dones: _Dones | None
    puts: tuple[Put, ...]
    removals: tuple[Removal, ...]


class _Reviewed(_Body, array_like=True, frozen=True):
    reviews: tuple[bytes, ...] = ()


class _Pictured(_Reviewed, array_like=True, frozen=True):
    pictures: tuple[bytes, ...] = ()


class _Featured(_Pictured, array_like=True, frozen=True):
    features: tuple[bytes, ...] = ()


class _Tiered(_Featured, array_like=True, frozen=True):
    needs: bytes = _NOTHING
    alike: bytes = _NOTHING


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(_Tiered).decode


def encode_facts(facts: Facts) -> bytes:
    """Pack the facts of one batch; the order of rows is fixed by their keys, so equal facts give equal bytes."""
    sightings = sorted(facts.sightings, key=_sighting_order)
    body = (
        _pack_sightings(sightings) if sightings else None,
        _pack_joins(sorted(facts.joins, key=_join_order)) if facts.joins else None,
        _pack_dones(sorted(facts.dones)) if facts.dones else None,
        tuple(Put(*put) for put in facts.puts),
        tuple(Removal(*removal) for removal in facts.removals),
    )
    statements = tuple(sorted(review.statement for review in facts.reviews))
    pictures = tuple(row.thumb for row in sightings)
    features = tuple(row.features for row in sightings)
    needs = [row.need_milli for row in sightings]
    if any(needs):
        named = pictures if any(pictures) else ()
        columns = pack_unsure(needs, [row.alike for row in sightings])
        return _ENCODE((*body, statements, named, features if any(features) else (), *columns))
    if any(features):
        return _ENCODE(_Featured(*body, statements, pictures if any(pictures) else (), features))
    if any(pictures):
        return _ENCODE(_Pictured(*body, statements, pictures))
    return _ENCODE(_Reviewed(*body, statements) if statements else _Body(*body))


def decode_facts(body: bytes) -> Facts:
    """Read the facts of one batch.

    Raises:
        WireError: The bytes are no body, or a value is out of bounds.
    """
    try:
        packed = _DECODE(body)
        return Facts(
            _unpack_sightings(packed) if packed.sightings is not None else (),
            _unpack_joins(packed.joins) if packed.joins is not None else (),
            _unpack_dones(packed.dones) if packed.dones is not None else (),
            [checked_put(put) for put in packed.puts],
            [checked_removal(removal) for removal in packed.removals],
            [open_review(statement) for statement in packed.reviews],
        )
    except WireError:
        raise
    except (msgspec.MsgspecError, IndexError, ValueError, OverflowError) as error:
        raise WireError(f"a batch's body cannot be read: {error}") from error


def _place_order(kind: int, place: Place) -> tuple[int, int, int, str]:
    return (kind, 0, 0, place) if isinstance(place, str) else (kind, place[0], place[1], "")


def _sighting_order(row: Sighting) -> tuple[int, tuple[int, int, int, str], str]:
    return (row.first, _place_order(row.kind, row.place), row.label)


def _pack_places(rows: Sequence[Sighting]) -> tuple[bytes, bytes]:
    """Positions: offsets from the lattice points where every row has one (a byte each), else differences."""
    if any(row.kind != LATTICE for row in rows):
        return pack_deltas([row.east_cm for row in rows]), pack_deltas([row.north_cm for row in rows])
    pitch = WIRE_PITCH_CM
    return (
        pack([row.east_cm - row.place[0] * pitch for row in rows]),  # type: ignore[operator]
        pack([row.north_cm - row.place[1] * pitch for row in rows]),  # type: ignore[operator]
    )


def _unpack_places(keys: "_KeyColumns", east: bytes, north: bytes) -> tuple[Sequence[int], Sequence[int]]:
    n = len(keys.kinds)
    if any(keys.kinds):
        return unpack_deltas(east, n), unpack_deltas(north, n)
    pitch = WIRE_PITCH_CM
    return (
        [at + x * pitch for at, x in zip(unpack(east, n), keys.xs, strict=True)],
        [at + y * pitch for at, y in zip(unpack(north, n), keys.ys, strict=True)],
    )


def _join_order(row: Join) -> tuple[bytes, tuple[int, int, int, str], str]:
    return (row.origin, _place_order(row.key[1], row.key[2]), row.key[0])


def _pack_keys(keys: Sequence[SightingKey]) -> _Keys:
    labels = sorted({label for label, _, _ in keys})
    xs: list[int] = []
    ys: list[int] = []
    assets: list[str] = []
    for _, _, place in keys:
        if isinstance(place, str):
            xs.append(len(assets))
            ys.append(0)
            assets.append(place)
        else:
            xs.append(place[0])
            ys.append(place[1])
    return _Keys(
        len(keys),
        tuple(labels),
        pack([labels.index(label) for label, _, _ in keys]),
        pack([kind for _, kind, _ in keys]),
        pack_deltas(xs),
        pack_deltas(ys),
        tuple(assets),
    )


class _KeyColumns(NamedTuple):
    labels: Sequence[str]
    kinds: Sequence[int]
    places: Sequence[Place]
    xs: Sequence[int]
    ys: Sequence[int]


def _unpack_keys(packed: _Keys) -> _KeyColumns:
    n = packed.n
    if not 0 < n <= ROWS_MAX or len(packed.labels) > n or len(packed.assets) > n:
        raise WireError(f"a batch has 1 to {ROWS_MAX} rows of a kind, not {n}")
    if any(len(text.encode()) > LABEL_MAX_BYTES for text in (*packed.labels, *packed.assets)):
        raise WireError(f"a label or asset is longer than {LABEL_MAX_BYTES} bytes")
    labels, assets = packed.labels, packed.assets
    label_of, kinds = unpack(packed.label_of, n), unpack(packed.kinds, n)
    xs, ys = unpack_deltas(packed.xs, n), unpack_deltas(packed.ys, n)
    if min(label_of) < 0 or min(kinds) < LATTICE or max(kinds) > TRACK:
        raise WireError("a row's label or kind is out of range")
    if min(min(xs), min(ys)) < -PLACE_MAX or max(max(xs), max(ys)) > PLACE_MAX:
        raise WireError("a row's place is out of range")
    places: list[Place] = list(zip(xs, ys, strict=True))
    if ASSET in kinds:
        for row, kind in enumerate(kinds):
            if kind == ASSET:
                if xs[row] < 0:
                    raise WireError("a row's asset is out of range")
                places[row] = assets[xs[row]]
    named = labels * n if len(labels) == 1 and not any(label_of) else [labels[index] for index in label_of]
    return _KeyColumns(named, kinds, places, xs, ys)


def _pack_sightings(rows: Sequence[Sighting]) -> _Sightings:
    models = sorted({row.model for row in rows})
    beside = [offset for row in rows for offset in row.beside]
    return _Sightings(
        _pack_keys([row.key for row in rows]),
        pack([row.positioned | row.moving << 1 for row in rows]),
        *_pack_places(rows),
        pack([row.covariance_cm2[0] for row in rows]),
        pack([row.covariance_cm2[1] for row in rows]),
        pack([row.covariance_cm2[2] - row.covariance_cm2[0] for row in rows]),
        pack([row.score_milli for row in rows]),
        pack_deltas([row.first >> LOGICAL_BITS for row in rows]),
        pack([(row.last >> LOGICAL_BITS) - (row.first >> LOGICAL_BITS) for row in rows]),
        pack([row.reports for row in rows]),
        tuple(models),
        pack([models.index(row.model) for row in rows]),
        pack([len(row.beside) for row in rows]),
        pack([x for x, _ in beside]) if beside else _NOTHING,
        pack([y for _, y in beside]) if beside else _NOTHING,
    )


def _unpack_sightings(body: _Tiered) -> list[Sighting]:
    packed, pictures, features = body.sightings, body.pictures, body.features
    assert packed is not None
    keys = _unpack_keys(packed.keys)
    n = len(keys.kinds)
    if pictures and (len(pictures) != n or any(len(name) not in (0, NAME_BYTES) for name in pictures)):
        raise WireError("a picture's name is out of range")
    if features and (len(features) != n or any(len(look) not in (0, FEATURES_BYTES) for look in features)):
        raise WireError("a sighting's features are out of range")
    firsts = unpack_deltas(packed.first_ms, n)
    spans = unpack(packed.span_ms, n)
    flags = unpack(packed.flags, n)
    easts, norths = _unpack_places(keys, packed.east, packed.north)
    ees, ens = unpack(packed.ee, n), unpack(packed.en, n)
    nns = ees if packed.nn_more == _NOTHING else list(map(add, ees, unpack(packed.nn_more, n)))
    scores, reports, model_of = unpack(packed.score, n), unpack(packed.reports, n), unpack(packed.model_of, n)
    besides = _unpack_beside(packed, n)
    far = POSITION_MAX_CM
    _check_columns(
        (
            (firsts, 0, _MS_MAX),
            (spans, 0, _MS_MAX),
            (flags, 0, 3),
            (easts, -far, far),
            (norths, -far, far),
            (ees, 0, VARIANCE_MAX_CM2),
            (nns, 0, VARIANCE_MAX_CM2),
            (scores, 0, 1000),
            (reports, 0, 1 << 40),
            (model_of, 0, ROWS_MAX),
        )
    )
    if any(map(gt, map(mul, ens, ens), map(mul, ees, nns))):
        raise WireError("a covariance is not positive")
    models = packed.models
    if len(models) > n or any(len(model) > 8 for model in models):
        raise WireError("a batch's model digests are out of range")
    plain = min(flags) == max(flags) == 1
    columns = zip(
        keys.labels,
        keys.kinds,
        keys.places,
        (False,) * n if plain else [flag > 1 for flag in flags],
        (True,) * n if plain else [bool(flag & 1) for flag in flags],
        easts,
        norths,
        zip(ees, ens, nns, strict=True),
        scores,
        [first << LOGICAL_BITS for first in firsts],
        [(first + span) << LOGICAL_BITS for first, span in zip(firsts, spans, strict=True)],
        reports,
        models * n if len(models) == 1 and not any(model_of) else [models[model] for model in model_of],
        besides,
        pictures or repeat(b"", n),
        features or repeat(b"", n),
        *unpack_unsure(body.needs, body.alike, scores),
        strict=True,
    )
    # As `Sighting._make` does, whose check of the length `zip` has made: this is half the time of reading a batch.
    return list(map(tuple.__new__, repeat(Sighting), columns))


def _check_columns(bounds: Sequence[tuple[Sequence[int], int, int]]) -> None:
    """Bounds of whole columns at once (lowest, highest); a row that breaks one makes the batch worthless."""
    for column, low, high in bounds:
        if min(column) < low or max(column) > high:
            raise WireError("a sighting's value is out of range")


def _unpack_beside(packed: _Sightings, n: int) -> list[tuple[tuple[int, int], ...]]:
    counts = unpack(packed.beside_count, n)
    if min(counts) < 0 or max(counts) > BESIDE_MAX:
        raise WireError(f"a sighting is beside 0 to {BESIDE_MAX} others")
    total = sum(counts)
    if total == 0:
        return [()] * n
    offsets = list(zip(unpack(packed.beside_x, total), unpack(packed.beside_y, total), strict=True))
    if any(abs(x) > 1 << 16 or abs(y) > 1 << 16 for x, y in offsets):
        raise WireError("a neighbour's offset is out of range")
    out, at = [], 0
    for count in counts:
        out.append(tuple(offsets[at : at + count]))
        at += count
    return out


def _pack_joins(rows: Sequence[Join]) -> _Joins:
    origins = sorted({row.origin for row in rows})
    return _Joins(
        _pack_keys([row.key for row in rows]),
        tuple(origins),
        pack([origins.index(row.origin) for row in rows]),
        pack_deltas([row.first >> LOGICAL_BITS for row in rows]),
        pack([(row.last - row.first) >> LOGICAL_BITS for row in rows]),
    )


def _unpack_joins(packed: _Joins) -> list[Join]:
    keys = _unpack_keys(packed.keys)
    n = len(keys.kinds)
    if len(packed.origins) > n or any(len(origin) != NODE_ID_BYTES for origin in packed.origins):
        raise WireError("a join's origin is no node id")
    firsts, spans = unpack_deltas(packed.first_ms, n), unpack(packed.span_ms, n)
    origin_of = unpack(packed.origin_of, n)
    if min(firsts) < 0 or max(firsts) >= 1 << 43 or min(spans) < 0 or max(spans) >= 1 << 43 or min(origin_of) < 0:
        raise WireError("a join's value is out of range")
    return [
        Join(NodeId(packed.origins[origin]), key, first << LOGICAL_BITS, (first + span) << LOGICAL_BITS)
        for key, origin, first, span in zip(
            zip(keys.labels, keys.kinds, keys.places, strict=True), origin_of, firsts, spans, strict=True
        )
    ]


def _pack_dones(rows: Sequence[Done]) -> _Dones:
    return _Dones(b"".join(row.cell for row in rows), pack([row.quality_milli for row in rows]))


def _unpack_dones(packed: _Dones) -> list[Done]:
    n, rest = divmod(len(packed.cells), CELL_HASH_BYTES)
    if rest or not 0 < n <= ROWS_MAX:
        raise WireError("a batch's done cells are cut short")
    qualities = unpack(packed.quality, n)
    if min(qualities) < 0 or max(qualities) > 1000:
        raise WireError("a cell's quality is out of range")
    size = CELL_HASH_BYTES
    return [Done(packed.cells[i * size : (i + 1) * size], qualities[i]) for i in range(n)]
