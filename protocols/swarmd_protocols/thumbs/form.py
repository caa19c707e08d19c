"""The one form of picture that travels: a small baseline JPEG, named by its hash. Pure.

Whoever shows a picture of another node's decodes bytes that the other node chose. So nothing is kept, passed on or
shown but what has exactly the form that an eye writes, and that is read here, marker by marker, without decoding
anything: a baseline frame of 8 to 192 by 8 to 144 pixels in one or three components, one scan, no other segments (no
metadata, no second image, no restarts), and the end where the bytes end. How much a decoder has to do is so bounded by
the size of the frame and by `THUMB_MAX_BYTES`.

Source: ITU-T T.81 (JPEG), annex B; the APP0 segment: ITU-T T.871 (JFIF).
"""

from hashlib import blake2b

WIDTH_MAX, HEIGHT_MAX = 192, 144
"""Pixels: what a list of findings and a finding's page show without scaling up, four to three."""
SIDE_MIN = 8
"""Pixels of either side: one block of JPEG, below which nothing can be recognised."""
THUMB_MAX_BYTES = 6 << 10
"""Of one picture: thrice what one of a thermal camera takes (2.1 kB)."""
NAME_BYTES = 16
"""Of a name. Who makes a picture may show what he likes: only another picture under his name must be out of reach."""

_SOI, _EOI = b"\xff\xd8", b"\xff\xd9"
_APP0, _DQT, _SOF0, _DHT, _SOS = 0xE0, 0xDB, 0xC0, 0xC4, 0xDA
_MARKER_BYTES = 4
"""Of a marker and the length behind it."""
_COMPONENTS = (1, 3)
"""Grey, or luminance and two of colour."""
_WHOLE_SCAN = b"\x00\x3f\x00"
"""All coefficients at once: what a baseline scan has."""


def name_of(jpeg: bytes) -> bytes:
    """What a picture is called in sightings and on the way: 16 bytes of BLAKE2b."""
    return blake2b(jpeg, digest_size=NAME_BYTES, person=b"swarmd-thumb").digest()


def problem_of(data: bytes) -> str:
    """Why these bytes are no picture that may be kept or shown; "" where they are one.

    >>> problem_of(b"<svg/>")
    'a picture of 6 bytes that does not begin and end as a JPEG does'
    """
    if len(data) > THUMB_MAX_BYTES:
        return f"a picture of {len(data)} bytes; at most {THUMB_MAX_BYTES} are taken"
    if not (data.startswith(_SOI) and data.endswith(_EOI)):
        return f"a picture of {len(data)} bytes that does not begin and end as a JPEG does"
    return _problem_of_segments(data)


def _problem_of_segments(data: bytes) -> str:
    at, seen, components = len(_SOI), set[int](), 0
    while True:
        marker, size = data[at + 1 : at + 2], int.from_bytes(data[at + 2 : at + _MARKER_BYTES], "big")
        segment = data[at + _MARKER_BYTES : at + 2 + size]
        if data[at : at + 1] != b"\xff" or size < 2 or len(segment) != size - 2:
            return "a picture with a segment that is cut short"
        kind = marker[0]
        if kind == _SOF0:
            components = segment[5] if len(segment) > 5 else 0
            problem = "a second frame" if kind in seen else _problem_of_frame(segment)
        elif kind == _APP0:
            problem = "" if segment.startswith(b"JFIF\0") and len(segment) == len(b"JFIF\0") + 9 else "metadata"
        elif kind == _SOS:
            if not {_SOF0, _DQT, _DHT} <= seen:
                return "a picture with a scan before its frame and tables"
            return _problem_of_scan(segment, data[at + 2 + size : -len(_EOI)], components)
        else:
            problem = "" if kind in (_DQT, _DHT) else f"a segment of kind {kind:#x}"
        if problem:
            return f"a picture with {problem}"
        seen.add(kind)
        at += 2 + size


def _problem_of_frame(segment: bytes) -> str:
    count = segment[5] if len(segment) > 5 else 0
    if count not in _COMPONENTS or len(segment) != 6 + 3 * count or segment[0] != 8:
        return "a frame that is not of 8 bits in one or three components"
    height, width = int.from_bytes(segment[1:3], "big"), int.from_bytes(segment[3:5], "big")
    if not (SIDE_MIN <= width <= WIDTH_MAX and SIDE_MIN <= height <= HEIGHT_MAX):
        return f"a frame of {width} x {height} pixels; {WIDTH_MAX} x {HEIGHT_MAX} at most are taken"
    if any(side not in (1, 2) for factors in segment[7::3] for side in (factors >> 4, factors & 15)):
        return "a frame with other sampling than a half"
    return ""


def _problem_of_scan(segment: bytes, coded: bytes, components: int) -> str:
    if len(segment) != 4 + 2 * components or segment[0] != components or segment[-3:] != _WHOLE_SCAN:
        return "a picture with a scan that is not of the whole frame"
    if b"\xff" in coded.replace(b"\xff\0", b""):
        return "a picture that goes on behind its scan"
    return "" if coded else "a picture with an empty scan"
