"""The delta file: `b"SWD1" codec(1) base-prefix(8) target-prefix(8) varint(out bytes) body`.

Codecs: `tflite-brotli`, `tflite-xz` (tensor-aware; the body differs in how the residual is packed) and `blocks`. The
publisher makes all of them and signs the smallest. The prefixes only give a clear error early; what decides is that the
SHA-256 of the output is the signed one.

A codec keeps its number for ever. One that is no longer read is refused by name, and the node fetches the whole file: a
release that was signed with such a delta holds as before.
"""

from hashlib import sha256

import numpy as np

from swarmd.release.delta import blocks
from swarmd.release.delta.bounded import brotlied, unbrotli, unxz, xzed
from swarmd.release.delta.flatbuffer import regions
from swarmd.release.delta.residual import U8, Pair, apply_planes, pair_regions, planes_of, skeleton, xor
from swarmd.release.delta.varint import read_varint, varint
from swarmd.release.errors import DeltaError

MAGIC = b"SWD1"
CODECS = ("blocks", "tflite-brotli", "tflite-xz")
"""By their number in the file."""
RETIRED = {3: "tflite-rans"}
"""Numbers of codecs that are not read any more."""
WORTH = 0.8
"""A delta above this share of the compressed file is not worth having."""


def make_all(old: bytes, new: bytes) -> dict[str, bytes]:
    """Every delta we know to make, by codec; each was applied once and gave `new`.

    Raises:
        DeltaError: A codec is broken: its output differs. Never published.
    """
    made = {"blocks": _file("blocks", old, new, brotlied(blocks.encode(old, new)))}
    try:
        pairs, head = _plan(old, new)
    except DeltaError:
        return _checked(made, old, new)
    planes = _planes(old, new, pairs)
    flat = head + b"".join(plane.tobytes() for _, plane in planes)
    made["tflite-brotli"] = _file("tflite-brotli", old, new, brotlied(flat))
    made["tflite-xz"] = _file("tflite-xz", old, new, xzed(flat))
    return _checked(made, old, new)


def make_best(old: bytes, new: bytes) -> tuple[str, bytes] | None:
    """The smallest delta with its codec, or None when no delta is worth it.

    Raises:
        DeltaError: See `make_all`.
    """
    made = make_all(old, new)
    codec = min(made, key=lambda name: (len(made[name]), name))
    return (codec, made[codec]) if len(made[codec]) <= WORTH * len(brotlied(new)) else None


def _checked(made: dict[str, bytes], old: bytes, new: bytes) -> dict[str, bytes]:
    for codec, delta in made.items():
        if apply_delta(old, delta, len(new)) != new:
            raise DeltaError(f"our own {codec} delta does not give the new file back; please report this")
    return made


def _file(codec: str, old: bytes, new: bytes, body: bytes) -> bytes:
    head = MAGIC + bytes([CODECS.index(codec)]) + sha256(old).digest()[:8] + sha256(new).digest()[:8]
    return head + varint(len(new)) + body


def codec_of(delta: bytes) -> str:
    """The codec of a delta file.

    Raises:
        DeltaError: It is none.
    """
    if delta[:4] == MAGIC and len(delta) >= 22 and delta[4] in RETIRED:
        raise DeltaError(f"deltas of codec {RETIRED[delta[4]]} are not read; the whole file is fetched")
    if delta[:4] != MAGIC or len(delta) < 22 or delta[4] >= len(CODECS):
        raise DeltaError("not a delta of swarmd")
    return CODECS[delta[4]]


def apply_delta(old: bytes, delta: bytes, out_bytes: int) -> bytes:
    """Make the new file. Call it through `child.apply_in_child` for what comes from outside.

    Args:
        old: The base.
        delta: A delta file.
        out_bytes: The signed length of the new file.

    Raises:
        DeltaError: Wrong base, malformed, or the output is not what the delta says.
    """
    codec = codec_of(delta)
    if sha256(old).digest()[:8] != delta[5:13]:
        raise DeltaError("the delta is for another base")
    size, at = read_varint(delta, 21)
    if size != out_bytes:
        raise DeltaError(f"the delta makes {size} bytes, {out_bytes} are signed")
    body = delta[at:]
    if codec == "blocks":
        new = blocks.apply(old, unbrotli(body, 2 * out_bytes + 4_096), out_bytes)
    else:
        unpack = unbrotli if codec == "tflite-brotli" else unxz
        new = _rebuild_flat(old, unpack(body, 2 * out_bytes + 4_096), out_bytes)
    if sha256(new).digest()[:8] != delta[13:21]:
        raise DeltaError("what the delta makes is not what it names")
    return new


# --- Which numbers belong together ---


def _plan(old: bytes, new: bytes) -> tuple[list[Pair], bytes]:
    """The paired regions, and the head: how to pair them again, and the skeleton.

    Head: varint(1) when the layout is the old one, else varint(0) varint(count) then for each pair
    varint(gap to the region before) varint(index of the old region); then varint(size) and the skeleton's blocks.
    """
    old_regions, new_regions = regions(old), regions(new)
    pairs = pair_regions(old, old_regions, new, new_regions)
    spans = [(pair.new_start, pair.size) for pair in pairs]
    bones = skeleton(new, spans)
    same = [(one.start, one.size, one.kind) for one in old_regions] == [
        (pair.new_start, pair.size, pair.kind) for pair in pairs
    ] and all(pair.new_start == pair.old_start for pair in pairs)
    if same and len(old) == len(new):
        return pairs, varint(1) + xor(skeleton(old, spans), bones)
    index = {one.start: number for number, one in enumerate(old_regions)}
    head, at = varint(0) + varint(len(pairs)), 0
    for pair in pairs:
        head += varint(pair.new_start - at) + varint(index[pair.old_start])
        at = pair.new_start + pair.size
    old_bones = skeleton(old, [(one.start, one.size) for one in old_regions])
    steps = blocks.encode(old_bones, bones)
    return pairs, head + varint(len(steps)) + steps


def _read_plan(old: bytes, stream: bytes, out_bytes: int) -> tuple[list[Pair], bytes, int]:
    """The pairs, the skeleton of the new file, and where the head ends."""
    old_regions = regions(old)
    same, at = read_varint(stream, 0)
    if same == 1:
        pairs = [Pair(one.start, one.start, one.size, one.kind) for one in old_regions]
        bones = skeleton(old, [(one.start, one.size) for one in old_regions])
        if len(old) != out_bytes or at + len(bones) > len(stream):
            raise DeltaError("the delta is cut short (skeleton)")
        return pairs, xor(bones, stream[at : at + len(bones)]), at + len(bones)
    count, at = read_varint(stream, at)
    if same != 0 or count > len(old_regions):
        raise DeltaError("the delta is malformed (layout)")
    pairs, end = [], 0
    for _ in range(count):
        gap, at = read_varint(stream, at)
        number, at = read_varint(stream, at)
        if number >= len(old_regions):
            raise DeltaError("the delta is malformed (region)")
        region = old_regions[number]
        pairs.append(Pair(end + gap, region.start, region.size, region.kind))
        end += gap + region.size
    if end > out_bytes:
        raise DeltaError("the delta is malformed: its regions reach beyond the file")
    size, at = read_varint(stream, at)
    old_bones = skeleton(old, [(one.start, one.size) for one in old_regions])
    return pairs, blocks.apply(old_bones, stream[at : at + size], out_bytes), at + size


def _planes(old: bytes, new: bytes, pairs: list[Pair]) -> list[tuple[Pair, U8]]:
    """Every byte plane with its region: one-byte numbers first, then plane after plane of the wider ones."""
    made = [(pair, planes_of(old, pair.old_start, new, pair.new_start, pair.size, pair.kind)) for pair in pairs]
    return [(pair, planes[plane]) for plane in range(4) for pair, planes in made if plane < len(planes)]


def _plane_sizes(pairs: list[Pair]) -> list[tuple[int, int]]:
    """(index of the pair, symbols) of every plane, in the order of `_planes`."""
    widths = [int(pair.kind[1]) for pair in pairs]
    return [
        (index, pairs[index].size // widths[index])
        for plane in range(4)
        for index in range(len(pairs))
        if plane < widths[index]
    ]


def _assemble(old: bytes, pairs: list[Pair], bones: bytes, symbols: U8, out_bytes: int) -> bytes:
    """Put skeleton and numbers together."""
    gathered: list[list[U8]] = [[] for _ in pairs]
    at = 0
    for index, count in _plane_sizes(pairs):
        gathered[index].append(symbols[at : at + count])
        at += count
    if at != len(symbols) or len(bones) + sum(pair.size for pair in pairs) != out_bytes:
        raise DeltaError("the delta does not add up to the signed length")
    parts, bone_at, end = [], 0, 0
    for pair, planes in zip(pairs, gathered, strict=True):
        gap = pair.new_start - end
        parts += [bones[bone_at : bone_at + gap], apply_planes(old, pair.old_start, planes, pair.kind)]
        bone_at += gap
        end = pair.new_start + pair.size
    return b"".join([*parts, bones[bone_at:]])


def _rebuild_flat(old: bytes, stream: bytes, out_bytes: int) -> bytes:
    pairs, bones, at = _read_plan(old, stream, out_bytes)
    return _assemble(old, pairs, bones, np.frombuffer(stream, np.uint8, offset=at), out_bytes)
