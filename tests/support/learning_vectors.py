"""Golden bytes of what members say about learning, and of a session's name."""

from pathlib import Path

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning.form import Session, sign_delta
from swarmd_protocols.learning.messages import Give, Have, Message, Row, encode
from swarmd_protocols.state.crdt.batch import NodeSigner

PATH = Path(__file__).resolve().parents[2] / "protocols" / "vectors" / "learning.json"
SESSION = Session(bytes(range(32)), 715, 36, 15)
ENTRIES = [(0, 1), (1, -127), (200, 127), (714, -3)]
_AUTHOR = NodeId(b"author-of-deltas")
DELTA = sign_delta(_AUTHOR, SESSION.id, 3, 240, 14, ENTRIES, NodeSigner(NaClCrypto(), bytes(range(32))))
CASES: dict[str, Message] = {
    "Have": Have(SESSION.id, True, (Row(_AUTHOR, 0b1011, 0xDEADBEEF, False), Row(bytes(16), 0, 0, True))),
    "Give": Give((DELTA.raw,)),
}


def document() -> dict[str, object]:
    """What the golden file holds."""
    vectors = [{"name": name, "message": repr(one), "hex": encode(one).hex()} for name, one in CASES.items()]
    return {"wire_version": 1, "session": SESSION.id.hex(), "vectors": vectors}
