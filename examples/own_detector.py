"""A detector of one's own: what it sees is shared and deduplicated like what an eye sees.

    swarmd run --name drone-1 --no-eye --dev-fleet fleet &
    python examples/own_detector.py drone.csv          # lines of label,score,east_m,north_m

`swarmd objects` then shows the things, on this member and on all others.
"""

import csv
import sys

import swarmd


def sightings(path: str) -> list[swarmd.Sighting]:
    with open(path, newline="", encoding="utf-8") as file:
        return [
            swarmd.Sighting(label=label, score=float(score), east_m=float(east_m), north_m=float(north_m))
            for label, score, east_m, north_m in filter(None, csv.reader(file))
        ]


def main(path: str, control: str | None = None) -> None:
    node = swarmd.connect(control)
    print(f"{node.observe(sightings(path))} told to {node.status().swarm}")
    for thing in node.objects():
        print(f"{thing.label} at {thing.east_m} m east, {thing.north_m} m north, seen by {', '.join(thing.observers)}")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit("give a CSV file of label,score,east_m,north_m, and where several daemons run a control socket")
    try:
        main(*sys.argv[1:])
    except (swarmd.DaemonError, OSError) as error:
        sys.exit(str(error))
    except ValueError as error:
        sys.exit(f"{sys.argv[1]} is no CSV of label,score,east_m,north_m without a heading: {error}")
