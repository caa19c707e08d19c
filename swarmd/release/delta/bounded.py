"""Decompression that never gives more than it was told to: the libraries' own limits do not hold.

`brotli.decompress` has none and `Decompressor.process(output_buffer_limit=…)` is approximate; 317 bytes of brotli can
be 200 MiB. So output is taken in small steps and counted here. zstandard ignores `max_output_size` when the frame
declares its size; we do not use it for what comes from outside.
"""

import lzma

import brotli

from swarmd.release.errors import DeltaError

_STEP = 65_536
_XZ_MEMORY = 24 << 20


def unbrotli(data: bytes, limit: int) -> bytes:
    """Decompress at most `limit` bytes.

    Raises:
        DeltaError: The data are malformed, or there would be more.
    """
    decompressor = brotli.Decompressor()
    parts: list[bytes] = []
    total = 0
    pending = data
    while True:
        try:
            piece: bytes = decompressor.process(pending, output_buffer_limit=_STEP)
        except brotli.error:
            raise DeltaError("the delta is no sound brotli stream") from None
        pending = b""
        total += len(piece)
        if total > limit:
            raise DeltaError(f"the delta unpacks to more than its signed {limit} bytes")
        parts.append(piece)
        if decompressor.is_finished():
            return b"".join(parts)
        if not piece and decompressor.can_accept_more_data():
            raise DeltaError("the delta is cut short (brotli)")


def unxz(data: bytes, limit: int) -> bytes:
    """Decompress at most `limit` bytes, in at most 24 MiB of memory.

    Raises:
        DeltaError: The data are malformed, want more memory, or there would be more.
    """
    decompressor = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
    try:
        out = decompressor.decompress(data, max_length=limit + 1)
    except lzma.LZMAError as error:
        raise DeltaError(f"the delta is no sound xz stream: {error}") from None
    if len(out) > limit:
        raise DeltaError(f"the delta unpacks to more than its signed {limit} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise DeltaError("the delta is cut short or has a tail (xz)")
    return out


def brotlied(data: bytes) -> bytes:
    """The publisher's side: as small as brotli gets."""
    window = min(24, max(16, len(data).bit_length()))
    return bytes(brotli.compress(data, quality=11, lgwin=window))


def xzed(data: bytes) -> bytes:
    """The publisher's side: as small as xz gets within the reader's memory."""
    dictionary = min(8 << 20, max(1 << 16, 1 << len(data).bit_length()))
    filters = [
        {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": dictionary, "lc": 4, "lp": 0, "pb": 0}
    ]
    return lzma.compress(data, format=lzma.FORMAT_XZ, check=lzma.CHECK_NONE, filters=filters)
