"""Golden bytes of pages of the past, and of every message about them, signed with fixed keys."""

from pathlib import Path

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.past import messages
from swarmd_protocols.past.pages import Page, PastEvent, PastPlace, new_page, sign_page
from swarmd_protocols.state.crdt.batch import NodeSigner

PATH = Path(__file__).resolve().parents[2] / "protocols" / "vectors" / "past.json"
CRYPTO = NaClCrypto()
SEED = bytes(range(32))
SIGNER = NodeSigner(CRYPTO, SEED)
KEY = CRYPTO.public_key(SEED)
NODE = node_id_of(KEY)
AT_MS = 215_000_000_000
PAGES: dict[str, Page] = {
    "a quiet minute": new_page(NODE, 1, (AT_MS, AT_MS + 60_000), (), (), ()),
    "a minute of a drone": new_page(
        NODE,
        (1_700_000_000 << 28) + 2,
        (AT_MS + 60_000, AT_MS + 120_000),
        (
            PastEvent(0, 5, 1, "started", "drone-1", "after a clean stop", ""),
            PastEvent(59_999, 5, 2, "failed", "drone-2", "no answer", "3 of 4 ask in vain"),
        ),
        (PastPlace(10, -188_856_864, -701_124_341, 3_200, 9_000, 120, 710), PastPlace(1_010)),
        (("detections_shared", 17), ("node_stream_bytes_out", 1 << 40)),
    ),
    "a moment": new_page(NODE, 3, (AT_MS, AT_MS), (PastEvent(0, 0, 1, "alarm", "", "", "§"),), (), ()),
}


def signed() -> dict[str, bytes]:
    """The pages as they travel."""
    return {name: sign_page(page, SIGNER) for name, page in PAGES.items()}


def vectors() -> dict[str, messages.Message]:
    """Every message."""
    pages = tuple(signed().values())
    return {
        "whose pages do you keep": messages.List(1),
        "of nobody": messages.Listing(1, ()),
        "of one": messages.Listing((1 << 32) - 1, (messages.Row(NODE, AT_MS, AT_MS + 1, AT_MS + 120_000),)),
        "the newest pages of an hour": messages.Ask(2, NODE, AT_MS, AT_MS + 3_600_000, (1 << 46) - 1, (1 << 63) - 1),
        "the pages below one": messages.Ask(3, NODE, AT_MS, AT_MS + 3_600_000, AT_MS + 60_000, 1),
        "two pages of an author": messages.Answer(2, pages[1::-1], True, AT_MS),
        "a page from another keeper": messages.Answer(3, pages[:1], False, 0, b"a certificate"),
        "no more": messages.Answer(4, (), False, 0),
        "not to you": messages.Deny(5, messages.REFUSED, messages.RETRY_MAX_MS),
        "not now": messages.Deny(6, messages.BUSY, 10_000),
        "of nobody known": messages.Deny(7, messages.UNKNOWN, 0),
    }


def document() -> dict[str, object]:
    """What the golden file holds."""
    pages = [
        {"name": name, "message": repr(PAGES[name]), "hex": data.hex(), "page": True} for name, data in signed().items()
    ]
    said = [
        {"name": name, "message": repr(message), "hex": messages.encode_message(message).hex(), "page": False}
        for name, message in vectors().items()
    ]
    return {"wire_version": 3, "vectors": [*pages, *said]}
