"""Golden bytes of what members hand on for others."""

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.swim.mesh.relay_words import HOPS_MAX, PART_BYTES, PARTS_MAX, Onward, Taken
from tests.support.paths import ROOT

PATH = ROOT / "protocols" / "vectors" / "relay.json"
TARGET = bytes(range(16))


def vectors() -> dict[str, Onward | Taken]:
    """A message of each kind, and the largest."""
    name = bytes(range(8))
    return {
        "a whole frame, once": Onward(TARGET, HOPS_MAX, 24, False, name, 0, 1, b"a sealed frame"),
        "a part that is kept until it is taken": Onward(TARGET, 3, 9, True, name, 1, 2, b"the rest of one"),
        "the largest": Onward(
            b"\xff" * 16, HOPS_MAX, 65_535, True, b"\xff" * 8, PARTS_MAX - 1, PARTS_MAX, bytes(PART_BYTES)
        ),
        "taken": Taken(name),
    }


def document() -> dict[str, object]:
    """What the golden file holds."""
    found = [{"name": name, "message": repr(one), "hex": encode(one).hex()} for name, one in vectors().items()]
    return {"wire_version": 3, "vectors": found}
