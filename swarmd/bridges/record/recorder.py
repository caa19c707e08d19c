"""One MCAP file: ROS 2 messages (profile `ros2`) or JSON with Foxglove's schema names (profile `foxglove`).

The two never share a file: one JSON channel makes ROS 2 tools refuse the whole recording. A recording that has no
room left is finished properly and said; the daemon goes on. The loop waits neither for the disk nor for a long message
to be encoded: other threads do.
"""

import asyncio
import contextlib
import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from swarmd.bridges.ros2.names import TYPE_HASHES
from swarmd.durable import sync_folder
from swarmd.errors import RecordError

try:
    from mcap.writer import CompressionType, Writer
    from mcap_ros2.writer import serialize_dynamic
except ImportError as problem:
    raise RecordError(f"recording needs mcap ({problem}); run: pip install 'swarmd[record]'") from problem

CHUNK_BYTES = 256 * 1024
"""Bytes of one chunk of the file: what a killed daemon loses at most."""
CHUNK_S = 2.0
"""A chunk is finished at this age however small it is, and is on the disk a second later (`keep`)."""
FREE_CHECK_S = 1.0
"""Seconds between two looks at the room on the disk: `min_free_mib` is minutes of any recording."""
FORMAT_VERSION = "1"
# rosbags asks for all eight keys.
_QOS = """- history: 1
  depth: 10
  reliability: 1
  durability: 2
  deadline: {sec: 2147483647, nsec: 4294967295}
  lifespan: {sec: 2147483647, nsec: 4294967295}
  liveliness: 1
  liveliness_lease_duration: {sec: 2147483647, nsec: 4294967295}
  avoid_ros_namespace_conventions: false
"""


class Recorder:
    """An open recording."""

    def __init__(
        self, path: Path, profile: str, metadata: Mapping[str, str], max_bytes: int, min_free_bytes: int
    ) -> None:
        """Create the file.

        Args:
            path: Must not exist; its folder is made.
            profile: "ros2" or "foxglove".
            metadata: Who records, kept in the file.
            max_bytes: The recording ends at this size.
            min_free_bytes: It ends when the disk has less left.

        Raises:
            RecordError: The file cannot be made; names it and the cause.
        """
        self.path = path
        self.profile = profile
        self.full = False
        self.counts: Counter[str] = Counter()
        self._max_bytes = max_bytes
        self._min_free_bytes = min_free_bytes
        self._channels: dict[tuple[str, str], tuple[int, Any]] = {}
        self._next_check_s = 0.0
        self._chunk_due_s = time.monotonic() + CHUNK_S
        self._is_named = False
        """Whether the file's name is on the disk."""
        self._unsynced = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._check_room(0)  # Each start of a daemon on a full disk would leave one file more.
            self._file = path.open("xb")
        except OSError as error:
            raise RecordError(f"cannot record to {path}: {error.strerror}; choose another file or make room") from error
        self._writer = Writer(self._file, chunk_size=CHUNK_BYTES, compression=CompressionType.ZSTD)
        self._writer.start(profile="ros2" if profile == "ros2" else "", library="swarmd")
        self._writer.add_metadata("swarmd", {"format": FORMAT_VERSION, "profile": profile, **metadata})

    def write(self, topic: str, type_name: str, message: Mapping[str, Any], unix_ns: int) -> None:
        """Add one message; does nothing once the recording is full.

        Args:
            topic: ROS topic, such as "/swarm/objects".
            type_name: "vision_msgs/msg/Detection3DArray", or a Foxglove schema name in that profile.
            message: The fields.
            unix_ns: Time of the message, UNIX nanoseconds.
        """
        self._add(topic, type_name, lambda encode: encode(message), unix_ns)

    async def write_long(self, topic: str, type_name: str, message: Mapping[str, Any], unix_ns: int) -> None:
        """The same for a message of any length: a thousand objects take a tenth of a second to encode.

        Args:
            topic: As `write` takes it.
            type_name: As `write` takes it.
            message: The fields; nobody changes them meanwhile.
            unix_ns: Time of the message.
        """
        if self.full:
            self.counts["dropped_full"] += 1
            return
        try:
            _, encode = self._channel(topic, type_name)  # A new one may finish a chunk.
        except OSError as error:
            self._end(error.strerror or str(error))
            return
        data = await asyncio.to_thread(encode, message)
        self._add(topic, type_name, lambda _: data, unix_ns)

    def _add(self, topic: str, type_name: str, data: Callable[[Any], bytes], unix_ns: int) -> None:
        if self.full:
            self.counts["dropped_full"] += 1
            return
        try:
            self._check_room(self._file.tell())
            channel, encode = self._channel(topic, type_name)
            self._writer.add_message(channel, unix_ns, data(encode), unix_ns)
            self.counts["messages"] += 1
            self._finish_chunk()
        except OSError as error:
            self._end(error.strerror or str(error))

    async def keep(self) -> None:
        """Once a second: have on the disk what was recorded, for a power cut to leave; the loop turns meanwhile."""
        if self.full:
            return
        try:
            self._finish_chunk()
            if self._unsynced:
                self._unsynced = False
                await asyncio.to_thread(self._sync)
        except (OSError, ValueError) as error:
            if not self.full:  # Else it was closed meanwhile, which has it synced.
                self._end(getattr(error, "strerror", None) or str(error))

    def _sync(self) -> None:
        os.fdatasync(self._file.fileno())
        if not self._is_named:
            sync_folder(self.path.parent)
            self._is_named = True

    def close(self) -> None:
        """Finish the file, so that readers find its index; may be called twice."""
        if not self.full:
            self._end("closed")

    def fail(self, why: str) -> None:
        """End it early, for a reason that lies elsewhere."""
        if not self.full:
            self._end(why)

    @property
    def problem(self) -> str:
        """Why the recording ended early; "" while it runs and after a proper close."""
        return self._problem if self.full and self._problem != "closed" else ""

    _problem = ""

    def _check_room(self, size: int) -> None:
        now_s = time.monotonic()
        if now_s < self._next_check_s:
            return
        self._next_check_s = now_s + FREE_CHECK_S
        if size >= self._max_bytes:
            raise OSError(0, f"record.max_mib reached ({self._max_bytes >> 20} MiB)")
        if shutil.disk_usage(self.path.parent).free < self._min_free_bytes:
            raise OSError(0, f"less than record.min_free_mib ({self._min_free_bytes >> 20} MiB) left on the disk")

    def _finish_chunk(self) -> None:
        """Give what was recorded so far to the kernel, in a form that readers take without the index."""
        now_s = time.monotonic()
        if now_s < self._chunk_due_s:
            return
        self._chunk_due_s = now_s + CHUNK_S
        finish = getattr(self._writer, "_Writer__finalize_chunk", None)
        if finish is not None:
            finish()
        self._file.flush()
        self._unsynced = True

    def _end(self, why: str) -> None:
        self.full = True
        self._problem = why
        try:
            self._writer.finish()
            self._file.flush()
        except OSError as error:
            # What is in the file stays readable: MCAP readers recover complete chunks without the index.
            self._problem = f"{why}; the index could not be written: {error.strerror}"
        # No daemon thread: a program that ends waits for it.
        threading.Thread(target=self._settle, name="record").start()

    def _settle(self) -> None:
        try:
            self._sync()
        except (OSError, ValueError) as error:
            self._problem = f"{self._problem}; the disk did not take the end: {error}"
        # Closing writes what is left in the buffer, and fails again where there is no room for it.
        with contextlib.suppress(OSError):
            self._file.close()

    def _channel(self, topic: str, type_name: str) -> tuple[int, Any]:
        known = self._channels.get((topic, type_name))
        if known is None:
            known = (
                self._ros2_channel(topic, type_name) if self.profile == "ros2" else self._json_channel(topic, type_name)
            )
            self._channels[topic, type_name] = known
        return known

    def _ros2_channel(self, topic: str, type_name: str) -> tuple[int, Any]:
        text = (files("swarmd.bridges.record") / "msgdef" / f"{type_name.replace('/msg/', '.')}.txt").read_text()
        schema = self._writer.register_schema(type_name, "ros2msg", text.encode())
        metadata = {"offered_qos_profiles": _QOS, "topic_type_hash": TYPE_HASHES[type_name]}
        channel = self._writer.register_channel(topic, "cdr", schema, metadata)
        return channel, serialize_dynamic(type_name, text)[type_name]

    def _json_channel(self, topic: str, type_name: str) -> tuple[int, Any]:
        schema_text = json.dumps({"title": type_name, "type": "object", "additionalProperties": True})
        schema = self._writer.register_schema(type_name, "jsonschema", schema_text.encode())
        channel = self._writer.register_channel(topic, "json", schema, {})
        return channel, lambda message: json.dumps(message).encode()
