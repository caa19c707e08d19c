"""A recording's ROS 2 messages on the local DDS domain again: the bytes as they were recorded, nothing is decoded."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclonedds.idl import IdlStruct

from swarmd.bridges.record.reading import Recording
from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.names import TYPE_HASHES, dds_topic, ros_type
from swarmd.bridges.ros2.participant import Ros2Participant, write_raw
from swarmd.errors import DaemonError, TransportError

LATE_S = 1.0
"""Readers get this long to find the writers before the first message goes out."""
_LATCHED = ("/swarm/objects", "/swarm/objects/markers", "/swarm/peers", "/swarm/cells")


def _known() -> dict[str, type[Any]]:
    """Every message that we can write, by its ROS 2 name."""
    found: list[Any] = [one for one in vars(m).values() if isinstance(one, type) and issubclass(one, IdlStruct)]
    return {ros_type(one.__idl_typename__): one for one in found if one is not IdlStruct}


_BY_TYPE = _known()


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a recording."""

    messages: Counter[str]
    """By topic."""
    skipped: Counter[str]
    """By type: of types that swarmd does not know."""
    torn: bool


def replay(path: Path, rate: float, domain: int, interface: str) -> Replayed:
    """Publish everything, at `rate` times the recorded pace (0: as fast as possible).

    Args:
        path: A recording of profile ros2, of ours or of rosbag2.
        rate: Speed, not negative.
        domain: DDS domain; -1 takes ROS_DOMAIN_ID, else 0.
        interface: Used when CYCLONEDDS_URI is not set.

    Returns:
        What was published.

    Raises:
        DaemonError: The file cannot be read or is of the other profile, or DDS refuses.
    """
    recording = Recording(path)
    if recording.profile != "ros2":
        raise DaemonError(f"{path} is not of profile ros2; only those can be replayed")
    participant = Ros2Participant(domain, "swarmd_replay", interface)
    writers: dict[str, Any] = {}
    done: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    try:
        for topic, type_name in _topics(recording):
            message = _BY_TYPE.get(type_name)
            if message is not None and type_name in TYPE_HASHES and topic not in writers:
                latched = topic in _LATCHED
                writers[topic] = participant.writer(
                    dds_topic(topic), message, reliable=True, transient_local=latched, depth=1 if latched else 100
                )
        participant.announce()
        time.sleep(LATE_S)
        began_s, first_ns = time.monotonic(), 0
        for schema, channel, recorded in recording.messages():
            first_ns = first_ns or recorded.log_time
            if rate:
                due_s = began_s + (recorded.log_time - first_ns) / 1e9 / rate
                time.sleep(max(0.0, due_s - time.monotonic()))
            if channel.topic not in writers or schema.name not in _BY_TYPE:
                skipped[schema.name] += 1
                continue
            try:
                write_raw(writers[channel.topic], recorded.data)
                done[channel.topic] += 1
            except TransportError:
                skipped[schema.name] += 1
        # A reliable reader may still be fetching the last ones.
        time.sleep(LATE_S / 2)
    finally:
        writers.clear()
        participant.close()
    return Replayed(done, skipped, recording.torn)


def _topics(recording: Recording) -> list[tuple[str, str]]:
    """(topic, type) of what is in it."""
    return sorted({(channel.topic, schema.name) for schema, channel, _ in recording.messages()})
