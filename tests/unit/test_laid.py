"""How often a lender may fetch what a borrower has laid out."""

from collections.abc import Callable

import pytest

from swarmd.worker import lane
from swarmd.worker.laid import READS_MAX, Laid
from swarmd.worker.lane import CHUNK_BYTES, Shelf
from swarmd.worker.lent import token_of

DATA = bytes(range(256)) * 4096
HONEST, LIAR = bytes(8), b"\1" * 8


def fetched(one: Shelf, connection: bytes, token: bytes, offset: int) -> bytes:
    """What one question brings."""
    return (one._reply(connection, lane._GET.pack(b"G", token, offset)) or b"")[lane._HEAD.size :]


def law_each_lender_has_a_body_a_few_times() -> None:
    """A question of 25 bytes is answered with 256 KiB: who asks on, by whatever connections, gets a few times all."""
    one = Shelf(len(DATA))
    try:
        with one.lay_out(DATA, bytes(32)) as place:
            liar, honest = (token_of(place.lane_key, who) for who in (LIAR, HONEST))
            got = sum(len(fetched(one, b"%d" % n, liar, n % 3 * CHUNK_BYTES)) for n in range(1_000))
            assert got <= READS_MAX * len(DATA), f"{got / len(DATA):.0f} times"
            for _ in range(READS_MAX):
                pieces = [fetched(one, b"", honest, offset) for offset in range(0, len(DATA), CHUNK_BYTES)]
                assert b"".join(pieces) == DATA, "another lender does not get it"
            assert one.counters["lane_refused"] >= 900
    finally:
        one.close()


def test_law() -> None:
    law_each_lender_has_a_body_a_few_times()


def _all_read(self: Laid, who: bytes, offset: int, most_bytes: int) -> bytes:
    return self.body[offset : offset + most_bytes].tobytes()


def _all_share(self: Laid, who: bytes, offset: int, most_bytes: int) -> bytes | None:
    return READ(self, b"", offset, most_bytes)


READ = Laid.read


@pytest.mark.parametrize("mutant", [_all_read, _all_share])
def test_the_law_finds_its_mutant(mutant: Callable[..., bytes | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Laid, "read", mutant)
    with pytest.raises(AssertionError):
        law_each_lender_has_a_body_a_few_times()
