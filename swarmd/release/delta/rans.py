"""Range asymmetric numeral systems with static tables, decoded many lanes at a time so that numpy does the work.

A stream codes symbols 0..255, each under one of several tables; which one is known beforehand to both sides (the
tensor plane, and how large the old weight was), so decoding needs no branch. State below 2^32, 16-bit renormalisation,
12-bit frequencies.

Source: Duda, "Asymmetric numeral systems" (arXiv:1311.2540); interleaving after Giesen (arXiv:1402.3392).
"""

import numpy as np
import numpy.typing as npt

from swarmd.release.errors import DeltaError

PRECISION = 12
TOTAL = 1 << PRECISION
_LOW = 1 << 16
MAX_TABLES = 4_096

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]


def lanes_for(count: int) -> int:
    """How many symbols are decoded at once: each lane costs two bytes, each row a few numpy calls.

    >>> lanes_for(100), lanes_for(1_000_000)
    (1, 256)
    """
    for limit, lanes in ((512, 1), (4_096, 4), (32_768, 16), (262_144, 64), (2_097_152, 256)):
        if count < limit:
            return lanes
    return 1_024


def frequencies(counts: I64) -> I64:
    """Counts scaled to sum to `TOTAL`, every symbol that occurs keeping at least one."""
    total = int(counts.sum())
    if not total:
        scaled = np.zeros(256, np.int64)
        scaled[0] = TOTAL
        return scaled
    scaled = np.maximum(counts * TOTAL // total, counts > 0)
    while (excess := int(scaled.sum()) - TOTAL) != 0:
        if excess < 0:
            scaled[int(np.argmax(counts))] -= excess
        else:
            # Take from where a count of one costs least: the most frequent symbols.
            largest = int(np.argmax(scaled))
            scaled[largest] -= max(1, min(excess, int(scaled[largest]) // 2))
    return scaled


def cost_bits(counts: I64) -> float:
    """Bits that the symbols take under their own table, and the table itself."""
    total = counts.sum()
    if not total:
        return 16.0
    used = counts[counts > 0]
    return float(-(used * np.log2(used / total)).sum()) + 16 + 20 * len(used)


def encode(symbols: U8, tables: npt.NDArray[np.uint16], table_count: int) -> bytes:
    """Code symbols, each under its table.

    Args:
        symbols: Shape (n,).
        tables: Shape (n,), which table codes each symbol, 0 <= table < `table_count`.
        table_count: At most `MAX_TABLES`.
    """
    count, lanes = len(symbols), lanes_for(len(symbols))
    stats = np.zeros((table_count, 256), np.int64)
    np.add.at(stats, (tables, symbols), 1)
    freq = np.stack([frequencies(row) for row in stats]) if table_count else np.zeros((0, 256), np.int64)
    start = np.cumsum(freq, axis=1) - freq
    rows = -(-count // lanes)
    grid, which = _grid(symbols, tables, rows, lanes, freq)
    state = np.full(lanes, _LOW, np.int64)
    words: list[npt.NDArray[np.uint16]] = []
    for row in range(rows - 1, -1, -1):
        f = freq[which[row], grid[row]]
        full = state >= f << (32 - PRECISION)
        if full.any():
            words.append((state[full] & 0xFFFF).astype("<u2"))
            state[full] >>= 16
        state = (state // f << PRECISION) + state % f + start[which[row], grid[row]]
    head = b"".join(_encode_table(row) for row in freq)
    return head + state.astype("<u4").tobytes() + b"".join(one.tobytes() for one in reversed(words))


def _grid(
    symbols: U8, tables: npt.NDArray[np.uint16], rows: int, lanes: int, freq: I64
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Symbols and tables in rows of lanes; the last row is filled with what costs nothing much."""
    grid = np.zeros(rows * lanes, np.int64)
    which = np.zeros(rows * lanes, np.int64)
    grid[: len(symbols)], which[: len(tables)] = symbols, tables
    if len(symbols):
        grid[len(symbols) :] = int(np.argmax(freq[0]))
    return grid.reshape(rows, lanes), which.reshape(rows, lanes)


def _encode_table(freq: I64) -> bytes:
    """Count of symbols; then gaps between symbols and frequencies as variable-length integers."""
    used = np.nonzero(freq)[0]
    out = bytearray(varint(len(used)))
    previous = -1
    for symbol in used.tolist():
        out += varint(symbol - previous - 1) + varint(int(freq[symbol]))
        previous = symbol
    return bytes(out)


def varint(value: int) -> bytes:
    """Seven bits a byte, lowest first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The integer at `at` and the position after it.

    Raises:
        DeltaError: The data end, or the integer has more than five bytes.
    """
    value = shift = 0
    while shift < 35:
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise DeltaError("the delta is cut short or malformed (integer)")


def decode(data: bytes, tables: npt.NDArray[np.uint16], table_count: int) -> U8:
    """The symbols of a stream.

    Args:
        data: What `encode` gave.
        tables: As for `encode`; their number is the number of symbols.
        table_count: As for `encode`.

    Raises:
        DeltaError: The stream contradicts itself or ends early.
    """
    count, lanes = len(tables), lanes_for(len(tables))
    lookup = np.zeros((table_count, TOTAL), np.uint8)
    freq = np.zeros((table_count, 256), np.int64)
    at = 0
    for table in range(table_count):
        at = _decode_table(data, at, freq[table])
        lookup[table] = np.repeat(np.arange(256, dtype=np.uint8), freq[table])
    start = np.cumsum(freq, axis=1) - freq
    if at + 4 * lanes > len(data) or (len(data) - at) % 2:
        raise DeltaError("the delta is cut short (state)")
    state = np.frombuffer(data, "<u4", lanes, at).astype(np.int64)
    words = np.frombuffer(data, "<u2", offset=at + 4 * lanes).astype(np.int64)
    rows = -(-count // lanes)
    which = np.zeros(rows * lanes, np.int64)
    which[:count] = tables
    out = np.empty((rows, lanes), np.uint8)
    _decode_rows(state, words, which.reshape(rows, lanes), lookup, freq, start, out)
    return out.reshape(-1)[:count]


def _decode_rows(state: I64, words: I64, which: I64, lookup: U8, freq: I64, start: I64, out: U8) -> None:
    """All lanes, row after row; flat indexes, because two-dimensional ones cost twice as much."""
    flat_lookup, flat_freq, flat_start = lookup.reshape(-1), freq.reshape(-1), start.reshape(-1)
    place = 0
    for row in range(len(out)):
        slot = state & (TOTAL - 1)
        symbol = flat_lookup[(which[row] << PRECISION) + slot]
        out[row] = symbol
        index = (which[row] << 8) + symbol
        state = flat_freq[index] * (state >> PRECISION) + slot - flat_start[index]
        low = np.flatnonzero(state < _LOW)
        if len(low):
            if place + len(low) > len(words):
                raise DeltaError("the delta is cut short (words)")
            state[low] = (state[low] << 16) | words[place : place + len(low)]
            place += len(low)
    if place != len(words) or (state != _LOW).any():
        raise DeltaError("the delta is malformed: words are left over or the state does not close")


def _decode_table(data: bytes, at: int, freq: I64) -> int:
    used, at = read_varint(data, at)
    symbol = -1
    for _ in range(used):
        gap, at = read_varint(data, at)
        value, at = read_varint(data, at)
        symbol += gap + 1
        if symbol > 255 or not 1 <= value <= TOTAL:
            raise DeltaError("the delta is malformed (table)")
        freq[symbol] = value
    if int(freq.sum()) != TOTAL:
        raise DeltaError("the delta is malformed (table sum)")
    return at
