"""Recordings, read again: complete ones by their index, torn ones as far as they go.

A recording ends torn when the daemon or the device died under it. What its finished chunks hold is whole; `recover`
writes it into a new file with an index, which every reader takes.
"""

import heapq
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from swarmd.errors import DaemonError

try:
    import lz4.frame
    import zstandard
    from mcap.data_stream import ReadDataStream
    from mcap.reader import SeekingReader
    from mcap.records import Channel, Chunk, Header, Message, Schema
    from mcap.stream_reader import StreamReader, breakup_chunk
    from mcap.writer import CompressionType, Writer
except ImportError as problem:
    raise DaemonError(f"reading recordings needs mcap ({problem}); run: pip install 'swarmd[record]'") from problem

RECORD_MAX_BYTES = 64 << 20
"""No record of a recording is larger, nor what a chunk unpacks to; a file that says so is damaged or hostile."""
HELD_MAX_BYTES = 4 * RECORD_MAX_BYTES
"""Of messages that wait for their turn: chunks that begin at one time are all read before the first of them."""


class Recording:
    """One file."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises:
            DaemonError: The file is missing or no MCAP.
        """
        self.path = path
        self.torn = False
        """Set once the end was reached: it was not the end that the writer meant."""
        try:
            with path.open("rb") as file:
                header = next(iter(StreamReader(file, record_size_limit=RECORD_MAX_BYTES).records))
        except OSError as error:
            raise DaemonError(f"cannot read {path}: {error.strerror}") from error
        except Exception as error:  # mcap lets struct and codec errors through as they are
            raise DaemonError(f"{path} is no MCAP recording ({error})") from error
        if not isinstance(header, Header):
            raise DaemonError(f"{path} is no MCAP recording (it has no header)")
        self.profile = header.profile

    def messages(self) -> Iterator[tuple[Schema, Channel, Message]]:
        """All messages, in order of time where there is an index, else in the order of the file."""
        with self.path.open("rb") as file:
            summary = self._summary(file)
            if summary is not None and summary.chunk_indexes:
                yield from self._by_index(file, summary)
                return
            self.torn = summary is None
            file.seek(0)
            yield from self._as_far_as_it_goes(file)

    def _summary(self, file: Any) -> Any:
        try:
            return SeekingReader(file, record_size_limit=RECORD_MAX_BYTES).get_summary()
        except Exception:  # whatever the damage makes mcap raise: then there is no index
            return None

    def _by_index(self, file: Any, summary: Any) -> Iterator[tuple[Schema, Channel, Message]]:
        # A chunk stands before its own messages: (time, where it lies, which of it, the message).
        begun = {one.chunk_start_offset: one.message_start_time for one in summary.chunk_indexes}
        waiting: list[tuple[int, int, int, Any]] = [(at_ns, offset, -1, None) for offset, at_ns in begun.items()]
        heapq.heapify(waiting)
        held = 0
        while waiting:
            _, offset, _, message = heapq.heappop(waiting)
            try:
                if message is None:
                    for index, record in enumerate(_chunk_at(file, offset)):
                        if isinstance(record, Message):
                            heapq.heappush(waiting, (record.log_time, offset, index, record))
                            held += len(record.data)
                    if held > HELD_MAX_BYTES:
                        raise ValueError("too much of one time")
                    continue
                channel = summary.channels[message.channel_id]
                schema = summary.schemas[channel.schema_id] if channel.schema_id else None
            except Exception:  # damage in the middle makes mcap raise anything
                self.torn = True
                return
            held -= len(message.data)
            if schema is not None:
                yield schema, channel, message

    def _as_far_as_it_goes(self, file: Any) -> Iterator[tuple[Schema, Channel, Message]]:
        schemas: dict[int, Schema] = {}
        channels: dict[int, Channel] = {}
        records = _records(file)
        while True:
            try:
                record = next(records)
            except Exception:  # StopIteration at a clean end, anything where it is torn
                return
            match record:
                case Schema():
                    schemas[record.id] = record
                case Channel():
                    channels[record.id] = record
                case Message():
                    channel = channels.get(record.channel_id)
                    schema = None if channel is None else schemas.get(channel.schema_id)
                    if channel is not None and schema is not None:
                        yield schema, channel, record
                case _:
                    pass


def _records(file: Any) -> Iterator[Any]:
    reader = StreamReader(file, emit_chunks=True, validate_crcs=True, record_size_limit=RECORD_MAX_BYTES)
    for record in reader.records:
        if isinstance(record, Chunk):
            yield from breakup_chunk(_unpacked(record), validate_crc=True)
        else:
            yield record


def _chunk_at(file: Any, offset: int) -> list[Any]:
    file.seek(offset + 1)
    size = int.from_bytes(file.read(8), "little")
    if size > RECORD_MAX_BYTES:
        raise ValueError(f"a chunk of {size} bytes")
    return list(breakup_chunk(_unpacked(Chunk.read(ReadDataStream(io.BytesIO(file.read(size)))))))


def _unpacked(chunk: Chunk) -> Chunk:
    """A chunk as it was before it was packed; mcap takes its frame's word for how much that is."""
    if chunk.compression == "zstd":
        said = zstandard.frame_content_size(chunk.data)
        size = chunk.uncompressed_size if said < 0 else said
        if size > RECORD_MAX_BYTES:
            raise ValueError(f"a chunk that unpacks to {size} bytes")
        return chunk
    if chunk.compression == "lz4":
        data = lz4.frame.LZ4FrameDecompressor().decompress(chunk.data, max_length=RECORD_MAX_BYTES + 1)
        if len(data) > RECORD_MAX_BYTES:
            raise ValueError("a chunk that unpacks to too much")
        return replace(chunk, compression="", data=data)
    return chunk


def recover(broken: Path, out: Path) -> int:
    """Write what a torn recording holds into a new, complete one.

    Args:
        broken: The torn file; it is left as it is.
        out: Must not exist.

    Returns:
        Messages written.

    Raises:
        DaemonError: Nothing can be read, or nothing written; no file is left.
    """
    recording = Recording(broken)
    try:
        file = out.open("xb")
    except OSError as error:
        raise DaemonError(f"cannot write {out}: {error.strerror}; choose another file") from error
    try:
        with file:
            return _copy(recording, file)
    except BaseException as error:
        out.unlink(missing_ok=True)  # Half of it would pass for all, and stand in the next run's way.
        if isinstance(error, OSError):
            raise DaemonError(f"cannot write {out}: {error.strerror}; make room") from error
        raise


def _copy(recording: Recording, file: BinaryIO) -> int:
    count = 0
    writer = Writer(file, compression=CompressionType.ZSTD)
    writer.start(profile=recording.profile, library="swarmd")
    schemas: dict[tuple[str, bytes], int] = {}
    channels: dict[int, int] = {}
    for schema, channel, message in recording.messages():
        key = schema.name, schema.data
        if key not in schemas:
            schemas[key] = writer.register_schema(schema.name, schema.encoding, schema.data)
        if channel.id not in channels:
            channels[channel.id] = writer.register_channel(
                channel.topic, channel.message_encoding, schemas[key], dict(channel.metadata)
            )
        writer.add_message(channels[channel.id], message.log_time, message.data, message.publish_time)
        count += 1
    writer.add_metadata("swarmd", {"recovered_from": recording.path.name})
    writer.finish()
    return count
