"""React to what the swarm finds: one line for each new object, wherever it was seen, until somebody says "enough".

python examples/react.py &
python -c 'import swarmd; swarmd.connect().say("enough")'
"""

import sys

import swarmd


def main(control: str | None = None) -> None:
    node = swarmd.connect(control)
    with node.watch() as changes:
        print(f"{len(node.objects())} things are known", flush=True)
        for change in changes:
            if change.event == "object" and change.details["kind"] == "new":
                print(f"go and look: {change.details['label']} ({change.subject})", flush=True)
            elif change.event in ("failed", "join"):
                print(f"{change.subject}: {change.event}", flush=True)
            elif change.event == "user" and change.subject == "enough":
                return


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except swarmd.DaemonError as error:
        sys.exit(str(error))
