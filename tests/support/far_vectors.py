"""Golden bytes of what the ends of a stream to a far member, and who is between, say to each other."""

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.swim.mesh.far_words import SIZE_MAX_BYTES, UNIT_BYTES, UNITS_MAX, Got, Segment, Stuck, Word
from tests.support.paths import ROOT

PATH = ROOT / "protocols" / "vectors" / "far.json"


def vectors() -> dict[str, Word]:
    """A word of each kind, and the largest that is handed on."""
    last = SIZE_MAX_BYTES - (UNITS_MAX - 1) * UNIT_BYTES
    return {
        "a unit": Segment(3 << 20 | 7, 2_000, 1, bytes(UNIT_BYTES)),
        "the last of the longest": Segment((1 << 63) - 1, SIZE_MAX_BYTES, UNITS_MAX - 1, bytes(last)),
        "nothing is missing": Got(3 << 20 | 7, 3, b""),
        "the ninth and the last that can be named": Got(3 << 20 | 7, 7, b"\x01" + bytes(6) + b"\x80"),
        "it ended here": Stuck(bytes(range(8)), bytes(range(16)), bytes(range(64))),
    }


def document() -> dict[str, object]:
    """What the golden file holds."""
    found = [{"name": name, "message": repr(one), "hex": encode(one).hex()} for name, one in vectors().items()]
    return {"wire_version": 3, "vectors": found}
