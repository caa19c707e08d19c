"""Parity of a chunk's pieces: as many parities as pieces are missing, whichever they are, make the chunk whole.

A systematic erasure code over GF(256): parity e is the sum over the pieces j of 1 / ((PIECES_MAX + e) + j) times the
piece, a row of a Cauchy matrix, every square part of which can be inverted. So receivers that miss different pieces of
a chunk are served by the same few parities. A piece that is shorter counts as if zeros followed.

Source:
    Blömer, Kalfane, Karp, Karpinski, Luby, Zuckerman, "An XOR-based erasure-resilient coding scheme", 1995 (the
    matrix); the field is that of RFC 5510.
"""

from collections.abc import Mapping
from functools import cache

PIECES_MAX = 64
"""Pieces of a chunk: 64 KiB in pieces of 1 KiB."""
PARITIES = 256 - PIECES_MAX
"""Different parities of one chunk: pieces and parities together have a field element each."""
MISSING_MAX = 16
"""Pieces that are made at once at most, a quarter of a chunk; more are better sent. Bounds the work: 16 take 3 ms."""
_POLYNOMIAL = 0x11D
"""x^8 + x^4 + x^3 + x^2 + 1, of which x is a primitive element: its powers are all that is not zero."""


def _powers() -> tuple[bytes, list[int]]:
    exp, log, value = bytearray(510), [0] * 256, 1
    for power in range(255):
        exp[power] = exp[power + 255] = value
        log[value] = power
        value = value << 1 ^ (_POLYNOMIAL if value & 0x80 else 0)
    return bytes(exp), log


_EXP, _LOG = _powers()


def _inverse(value: int) -> int:
    return _EXP[255 - _LOG[value]]


def _product(a: int, b: int) -> int:
    return _EXP[_LOG[a] + _LOG[b]] if a and b else 0


@cache
def _times(factor: int) -> bytes:
    """Every byte's product with a factor, for `bytes.translate`: 64 KiB for all factors."""
    return bytes(_product(factor, value) for value in range(256))


def _coefficient(parity: int, piece: int) -> int:
    return _inverse(PIECES_MAX + parity ^ piece)


def _sum(parity: int, pieces: Mapping[int, bytes]) -> int:
    """The sum of these pieces in a parity's row, as an integer."""
    total = 0
    for number, data in pieces.items():
        total ^= int.from_bytes(data.translate(_times(_coefficient(parity, number))), "little")
    return total


def parity_of(chunk: bytes, piece_bytes: int, parity: int) -> bytes:
    """One parity of a chunk.

    Args:
        chunk: All of it; at most `PIECES_MAX` pieces.
        piece_bytes: Length of a piece.
        parity: Which, below `PARITIES`.

    Returns:
        `piece_bytes` bytes.
    """
    pieces = {at // piece_bytes: chunk[at : at + piece_bytes] for at in range(0, len(chunk), piece_bytes)}
    return _sum(parity, pieces).to_bytes(piece_bytes, "little")


def missing_pieces(pieces: Mapping[int, bytes], parities: Mapping[int, bytes], missing: list[int]) -> dict[int, bytes]:
    """Make the pieces that are missing.

    Args:
        pieces: Every other piece of the chunk.
        parities: At least as many as are missing, all of one length.
        missing: At most `MISSING_MAX` numbers of pieces.

    Returns:
        The missing pieces, as long as a parity; nonsense where a piece or parity is not of this chunk.

    >>> chunk = bytes(range(100)) * 41
    >>> parts = {n: chunk[n * 1024 : (n + 1) * 1024] for n in range(5)}
    >>> two = {7: parity_of(chunk, 1024, 7), 9: parity_of(chunk, 1024, 9)}
    >>> lost = {n: parts.pop(n) for n in (0, 3)}
    >>> missing_pieces(parts, two, [0, 3]) == lost
    True
    """
    assert len(missing) <= min(len(parities), MISSING_MAX), "there are parities for what is missing"
    rows, sums = [], []
    for parity in list(parities)[: len(missing)]:
        rows.append([_coefficient(parity, number) for number in missing])
        sums.append(int.from_bytes(parities[parity], "little") ^ _sum(parity, pieces))
    size = len(next(iter(parities.values())))
    for at, row in enumerate(rows):  # No row has to be exchanged: every leading part of a Cauchy matrix is regular.
        scale = _inverse(row[at])
        rows[at] = row = [_product(scale, value) for value in row]
        data = sums[at].to_bytes(size, "little").translate(_times(scale))
        sums[at] = int.from_bytes(data, "little")
        for other, values in enumerate(rows):
            factor = values[at]
            if other != at and factor:
                rows[other] = [value ^ _product(factor, mine) for value, mine in zip(values, row, strict=True)]
                sums[other] ^= int.from_bytes(data.translate(_times(factor)), "little")
    return {number: sums[at].to_bytes(size, "little") for at, number in enumerate(missing)}
