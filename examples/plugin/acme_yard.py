"""A bridge and a detector of one's own, as plug-ins of the daemon: it starts them, each in a process of its own.

A bridge is a function of the daemon and its options; it runs until it is ended. A detector is a generator: each list of
sightings that it yields is shared with the swarm. What either raises is in the daemon's log and in `swarmd status`, and
it is started again; what it prints is in the log.
"""

import json
import urllib.request
from collections.abc import Iterator

import swarmd


def webhook(node: swarmd.Node, options: dict[str, str]) -> None:
    """Post each new object of the swarm to a web address, as JSON: option `url`."""
    with node.watch() as changes:
        for change in changes:
            if change.event == "object" and change.details["kind"] == "new":
                found = json.dumps({"id": change.subject, "label": change.details["label"]}).encode()
                request = urllib.request.Request(options["url"], found, {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=10):
                    pass


def trip_wire(options: dict[str, str]) -> Iterator[list[swarmd.Sighting]]:
    """A sensor that writes LABEL,EAST_M,NORTH_M a line to a serial port, a pipe or a file: option `path`."""
    with open(options["path"], encoding="utf-8") as lines:
        for line in lines:
            label, east_m, north_m = line.split(",")
            yield [swarmd.Sighting(label=label, east_m=float(east_m), north_m=float(north_m), track=label)]
