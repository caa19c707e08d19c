"""Tensors that travel packed: brotli, in steps that never give more than was said.

What lies at a cut of a quantised model is mostly zeros and repeats: 8-bit numbers shrink to a half or less. A packed
tensor carries `"coding": "br"` beside its `binary_data_size`, which is then the packed one; shape and type say how much
it must unpack to, to the byte.
"""

import brotli

CODING = "br"
CODED_MAX_BYTES = 2 << 20
"""Of one tensor unpacked: more holds the loop for tens of milliseconds, and goes as it is."""
_LEAST_BYTES = 1024
"""What is smaller travels in one datagram anyway."""
_QUALITY = 1
"""Brotli's: 100 MB/s and more; higher ones win less than a tenth on features."""
_STEP_BYTES = 65_536


def packed(data: bytes) -> bytes | None:
    """The same, smaller; None where it would not be, or is not worth it."""
    if not _LEAST_BYTES <= len(data) <= CODED_MAX_BYTES:
        return None
    small: bytes = brotli.compress(data, quality=_QUALITY)
    return small if len(small) < len(data) else None


def unpacked(data: bytes, size_bytes: int) -> bytes:
    """What was packed; never more is made than `size_bytes`.

    Raises:
        ValueError: It is no sound stream, or one of another length.
    """
    if size_bytes > CODED_MAX_BYTES:
        raise ValueError(f"a packed tensor has {size_bytes} bytes; at most {CODED_MAX_BYTES} are unpacked")
    decompressor, out, pending = brotli.Decompressor(), bytearray(), data
    while not decompressor.is_finished():
        try:
            piece: bytes = decompressor.process(pending, output_buffer_limit=_STEP_BYTES)
        except brotli.error as error:
            raise ValueError("a packed tensor is no sound brotli stream") from error
        pending = b""
        out += piece
        if len(out) > size_bytes or (not piece and decompressor.can_accept_more_data()):
            break
    if len(out) != size_bytes or not decompressor.is_finished():
        raise ValueError(f"a packed tensor does not unpack to its {size_bytes} bytes")
    return bytes(out)
