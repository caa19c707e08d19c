"""A DDS program as anybody has it, CycloneDDS without configuration: prints each topic written by others as it appears.

python plain_reader.py DOMAIN SECONDS [TOPIC]      with a topic of DiagnosticArray: also "sample NAME,NAME…"
"""

import sys
import time

from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication
from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from swarmd.bridges.ros2.messages import DiagnosticArray


def main() -> None:
    """Look for so many seconds."""
    participant = DomainParticipant(int(sys.argv[1]))
    written = BuiltinDataReader(participant, BuiltinTopicDcpsPublication)
    reader = None
    if len(sys.argv) > 3:
        wanted = Qos(Policy.Reliability.Reliable(duration(milliseconds=100)), Policy.Durability.TransientLocal)
        reader = DataReader(participant, Topic(participant, sys.argv[3], DiagnosticArray), qos=wanted)
    seen: set[str] = set()
    until_s = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < until_s:
        for found in written.take(N=100):
            name = getattr(found, "topic_name", "")
            if name and name not in seen:
                seen.add(name)
                print("topic", name, flush=True)
        for sample in reader.take(N=10) if reader is not None else ():
            if hasattr(sample, "status"):
                print("sample", ",".join(status.name for status in sample.status), flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
