"""What gateways and regions read from pipes: frames, what is inside them, and a gate that stands open to anybody."""

from collections.abc import Callable
from contextlib import suppress

from swarmd.federation.uplink import read_place
from swarmd_protocols.channel.codec import encode
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.errors import WireError
from swarmd_protocols.federation.facts import open_fact, read_fact
from swarmd_protocols.federation.gate import Gate, Heard, Pin
from swarmd_protocols.federation.objects import encode_object, read_object
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.federation.wire import (
    Have,
    Pair,
    RowKind,
    TrustRow,
    Up,
    UpRow,
    Way,
    encode_row,
    read_ask,
    read_bundle,
    read_down,
    read_head,
    read_site,
    read_trust,
    read_up,
)
from swarmd_protocols.trust.identity import dev_root, make_dev_identity
from tests.support import federation_vectors as vectors

CRYPTO = ModelCrypto()
SECRET = b"the secret of a fuzzed fleet"
_FRAMES = (read_head, read_up, read_down, read_ask)
_READERS = (*_FRAMES, read_object, open_fact, read_fact, read_trust, read_site, read_bundle)


def corpus() -> list[bytes]:
    """One of each body and frame."""
    facts = [vectors.signed(vectors.fact()), vectors.signed(vectors.fact("note"))]
    bodies = [encode_object(vectors.row()), encode_row(vectors.site()), encode(vectors.up()), encode(vectors.down())]
    rows = (RowKind.OBJECT, encode_object(vectors.row())), (RowKind.SITE, encode_row(vectors.site()))
    said = [bytes((kind,)) + body for kind, body in rows]
    return [*vectors.frames().values(), *bodies, *facts, *(fact[96:] for fact in facts), *said]


def read(data: bytes) -> None:
    """Every decoder; a refusal is a `WireError`."""
    for reader in _READERS:
        with suppress(WireError):
            reader(data)
    read_place(data.decode("latin-1"))


def at_a_gate() -> Callable[[bytes], None]:
    """Bodies of rows that a certified gateway says: whatever it says, the gate takes it or refuses it; and `read`."""
    identity = make_dev_identity(SECRET, "farm", "gw", CRYPTO, roles=[ROLE])
    pin = Pin("farm", "farm", dev_root(SECRET, CRYPTO), 1 << 40, 1 << 40)
    gate = Gate(pin, bytes(32), CRYPTO)
    pair = Pair(CRYPTO, identity.seed, CRYPTO.public_key(bytes(32)))
    number = 0
    proof = vectors.batch(identity.seed, vectors.read(vectors.proofs()[0])[1]).raw

    def hear(rows: tuple[UpRow, ...], batches: tuple[bytes, ...]) -> Heard:
        nonlocal number
        number += 1
        up = Up(bytes(8), 1, 1, 0, Have(bytes(8), 0), rows, batches)
        heard = gate.hear(pair.seal(Way.UP, pin.key, 1, number, bytes(8), up), number)
        assert isinstance(heard, Heard)
        return heard

    hear((UpRow(0, RowKind.TRUST, encode_row(TrustRow("node", identity.certificate))),), ())

    def target(data: bytes) -> None:
        read(data)
        kind, body = (data[0] % 7, data[1:]) if data else (0, b"")
        batch = body if 300 > len(body) >= 127 else proof
        heard = hear((UpRow(1, kind, body[:60_000], (0,)),), (batch,))
        done = {seq for seq, _ in heard.taken} | {seq for seq, _ in heard.refused} | set(heard.known_before)
        assert done == {1} or heard.wanted, "a row is neither taken nor refused, and nothing is asked for"

    return target
