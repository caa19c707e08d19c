"""`swarmd demo`: real daemons on loopback survey a rendered solar farm."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd.cli.common import add_json, print_json

if TYPE_CHECKING:
    from swarmd.demo.swarm import Demo


DRONES = ("drone-1", "drone-2")
"""Of `--offload`."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("demo", help="real daemons on loopback survey a rendered solar farm")
    parser.add_argument("--nodes", type=int, default=4, help="drones, 1 to 32 (default 4)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long they fly (default 30)")
    parser.add_argument("--seed", type=int, default=7, help="which farm (default 7)")
    parser.add_argument("--faults", type=float, default=0.025, help="share of faulty modules (default 0.025)")
    parser.add_argument(
        "--model", default="zoo:small-320", help="zoo name, bundle, .tflite or .onnx (default zoo:small-320)"
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the picture (default ./out)")
    parser.add_argument("--farm", default="", metavar="KEY=VALUE&…", help="more keys for the sim://farm address")
    parser.add_argument(
        "--offload", action="store_true", help="two weak drones and a station that lends them its model instead"
    )
    parser.add_argument("--mqtt", action="store_true", help="start a mosquitto and show what it gets")
    parser.add_argument("--dds", action="store_true", help="publish as ROS 2 topics and show what a reader gets")
    parser.add_argument("--view", action="store_true", help="show them in the ground view while they fly")
    parser.add_argument("--page", default="127.0.0.1:7982", metavar="HOST:PORT", help="of --view (%(default)s)")
    parser.add_argument("--open", action="store_true", help="with --view: open this machine's browser")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Fly, then print the summary; exit 1 when the drones do not agree."""
    if args.offload:
        return _run_offload(args)
    import asyncio

    from swarmd.demo.map import draw
    from swarmd.demo.swarm import Demo, DemoOptions
    from swarmd.errors import DaemonError

    if not (1 <= args.nodes <= 32 and 1 <= args.seconds <= 3600):
        print("swarmd demo: --nodes is 1 to 32 and --seconds 1 to 3600", file=sys.stderr)
        return 2
    options = DemoOptions(
        args.nodes,
        args.seconds,
        args.seed,
        args.faults,
        args.model,
        args.out,
        args.farm,
        args.mqtt,
        args.dds,
        tuple(args.settings),
        args.page if args.view else "",
    )
    table = None if args.json else _Table()
    try:
        demo = Demo(options, _shower(table, is_opened=args.open))
        summary = asyncio.run(demo.run())
    except asyncio.CancelledError:
        return 143  # As a shell says it of SIGTERM.
    finally:
        if table is not None:
            table.close()
    picture = args.out / f"demo-seed{args.seed}.png"
    try:
        draw(picture, demo.farm, demo.objects, [drone.path for drone in demo.drones])
    except OSError as error:
        raise DaemonError(f"{picture}: {error}") from error
    print(f"map: {picture}", file=sys.stderr)
    if not args.view:
        print("live in a browser: swarmd demo --view (make demo ARGS=--view)", file=sys.stderr)
    if table is not None:
        _print_result(summary)
        for name, listener in (("MQTT", demo.mqtt), ("DDS", demo.dds)):
            for topic, sample in sorted(listener.samples.items()) if listener is not None else ():
                print(f"{name} {topic}\n    {sample}")
    if args.json:
        print_json(summary)
    problem = disagreement(summary, demo.members)
    if problem:
        print(f"swarmd demo: {problem}", file=sys.stderr)
    return 1 if problem else 0


def disagreement(summary: Mapping[str, Any], members: int) -> str:
    """Why the drones of a summary did not end as one, "" where they did.

    Args:
        summary: Of a demo: `digests` and `members` by drone.
        members: Whom each drone should have heard at the end, itself included.
    """
    problems = [
        f"{drone} heard {count} of {members} members at the end"
        for drone, count in summary["members"].items()
        if count != members
    ]
    if len(set(summary["digests"].values())) > 1:
        problems.append("the drones do not hold the same facts")
    if not problems:
        return ""
    return "; ".join(problems) + "; where other programs hold the processors, try again with fewer drones (--nodes 2)"


def _run_offload(args: argparse.Namespace) -> int:
    """Lending; exit 1 when it gained nothing."""
    import asyncio

    from swarmd.demo.offload import OffloadDemo, OffloadOptions

    def say(text: str) -> None:
        if not args.json:
            print(text, file=sys.stderr)

    summary = asyncio.run(OffloadDemo(OffloadOptions(seed=args.seed), say).run())
    print_json(summary)
    rows = summary["rows"]
    return (
        0 if all(rows[f"{name} with the station"]["found"] > rows[f"{name} alone"]["found"] for name in DRONES) else 1
    )


def _shower(table: "_Table | None", *, is_opened: bool) -> "Callable[[Demo], None]":
    """Draws the table, and says once where the page is."""
    said: set[str] = set()

    def show(demo: "Demo") -> None:
        if demo.page and demo.page not in said:
            said.add(demo.page)
            print(f"ground view: {demo.page}", file=sys.stderr)
            if is_opened:
                import webbrowser

                webbrowser.open(demo.page)
        if table is not None:
            table.show(demo)

    return show


def _print_result(summary: dict[str, Any]) -> None:
    truth, claims = summary["truth"], summary["claims"]
    print(
        f"\n{truth['found']} of {truth['faults']} faults found, {truth['false']} false, {truth['duplicates']} twice, "
        f"{truth['distinct_lost']} swallowed by a neighbour; {claims['done']} of {claims['cells']} cells done, "
        f"{claims['duplicate_work']} twice; digests "
        f"{'equal' if len(set(summary['digests'].values())) == 1 else 'DIFFER'}\n"
    )


class _Table:
    """The live view: one row a drone."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, demo: "Demo") -> None:
        """Draw what the last look found."""
        from rich.table import Table

        title = f"swarmd demo · {len(demo.farm.modules)} modules · {demo.flown_s:.0f} s"
        # Without frame: all ten columns fit a terminal of 80 characters.
        table = Table(title=title, box=None, pad_edge=False, collapse_padding=True)
        for column in ("drone", "members", "eye", "fps", "frames", "detections", "objects", "cell", "kB out", "digest"):
            table.add_column(column)
        for drone in demo.drones:
            status = drone.status
            if not status:
                table.add_row(drone.name, "starting")
                continue
            eye = status["eye"] or {"state": "-", "frames": 0, "cells": []}
            alive = sum(state == "alive" for state in status["members"].values())
            table.add_row(
                drone.name,
                str(alive),
                eye["state"],
                f"{status['fps']:.1f}",
                str(eye["frames"]),
                str(status["detections"]),
                str(status["objects"]),
                " ".join(eye["cells"]) or "-",
                f"{_bytes_out(status) / 1000:.0f}",
                status["digest"][:8],
            )
        self._live.update(table, refresh=True)

    def close(self) -> None:
        """Leave the last picture on the screen."""
        self._live.stop()
        if not self._console.is_terminal:
            self._console.line()  # Which Live leaves out there.


def _bytes_out(status: dict[str, Any]) -> int:
    return sum(value for name, value in status["transport"].items() if "bytes" in name and name.endswith("out"))
