"""Any DDS program reads what swarmd publishes for ROS 2: prints each object of the swarm when it appears.

python examples/dds_listener.py [DOMAIN]        # ROS_DOMAIN_ID, 0 by default; ends with Ctrl-C

Needs `pip install 'swarmd[dds]'`, and no ROS 2. With ROS 2: ros2 topic echo /swarm/objects
"""

import contextlib
import os
import sys
import time

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from swarmd.bridges.ros2.messages import Detection3DArray


def main(domain: str = "") -> None:
    """Read for ever; a reader that comes late gets the picture as it is."""
    participant = DomainParticipant(int(domain or os.environ.get("ROS_DOMAIN_ID") or "0"))
    quality = Qos(Policy.Reliability.Reliable(duration(milliseconds=100)), Policy.Durability.TransientLocal)
    objects = DataReader(participant, Topic(participant, "rt/swarm/objects", Detection3DArray), qos=quality)
    known: set[str] = set()
    while True:
        for array in objects.take(N=10):
            for found in getattr(array, "detections", ()):  # A writer that went is a sample without content.
                if found.id not in known:
                    known.add(found.id)
                    best, at = found.results[0], found.bbox.center.position
                    print(f"{best.hypothesis.class_id} at {at.x:.1f} m east, {at.y:.1f} m north", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
