"""A lender whose clock was ahead and has been set back: what it gave meanwhile keeps nobody from borrowing."""

from hypothesis import given
from hypothesis import strategies as st

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.offload.tickets import Grants, GrantsConfig

CRYPTO = ModelCrypto()
SEED = bytes(range(32))
LENDER = node_id_of(CRYPTO.public_key(SEED))
BORROWER, DIGEST = NodeId(b"b" * 16), b"d" * 32


@given(st.integers(0, 86_400_000))
def test_a_clock_that_was_ahead_denies_nobody_for_longer_than_a_ticket_lives(ahead_ms: int) -> None:
    life_ms, now_ms = 30_000, 1_800_000_000_000
    book = Grants(LENDER, SEED, CRYPTO, GrantsConfig(life_ms=life_ms), 3)
    while book.grant(BORROWER, DIGEST, now_ms + ahead_ms) is not None:
        for left in book._left.values():
            left.count -= left.is_whole
    assert book._left
    asked = [book.grant(BORROWER, DIGEST, now_ms + since_ms) for since_ms in (0, life_ms, 2 * life_ms)]
    assert any(asked), "set back, it counts what it gave for no longer than twice as long as such a ticket lives"
