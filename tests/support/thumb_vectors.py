"""Golden bytes of what members say to each other about pictures, and of a picture's name."""

from pathlib import Path

from swarmd_protocols.thumbs.form import name_of
from swarmd_protocols.thumbs.messages import Ask, Here, Lack, Message, encode
from swarmd_sim.run.thumbs import picture_of

PATH = Path(__file__).resolve().parents[2] / "protocols" / "vectors" / "thumbs.json"
PICTURE = picture_of(7)
CASES: dict[str, Message] = {
    "Ask": Ask(name_of(PICTURE)),
    "Here": Here(name_of(PICTURE), PICTURE),
    "Lack": Lack(bytes(range(16))),
}


def document() -> dict[str, object]:
    """What the golden file holds."""
    vectors = [{"name": name, "message": repr(one), "hex": encode(one).hex()} for name, one in CASES.items()]
    return {"wire_version": 1, "vectors": vectors}
