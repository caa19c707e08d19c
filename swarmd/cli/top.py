"""`swarmd top`: the swarm in a terminal, drawn again every few seconds; for a slow link or a bare machine."""

import argparse
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from swarmd.cli.common import add_control
from swarmd.cli.members import link_of

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from swarmd.api.remote import Remote

EVENTS_SHOWN = 6
"""Newest events below the table."""
EVENTS_S = 3600
"""Seconds back in which they are looked for."""
_NAME_MAX, _TEXT_MAX = 30, 140
_STATES = ("failed", "suspect", "degraded", "alive", "away", "left")
"""The gravest first."""
_COLOURS = {"alive": "green", "degraded": "yellow", "suspect": "yellow", "failed": "red"}
Row = Mapping[str, Any]


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


SORTS: dict[str, Callable[[Row], Any]] = {
    "name": lambda row: row["name"],
    "state": lambda row: _STATES.index(row["state"]) if row["state"] in _STATES else len(_STATES),
    "rtt": lambda row: -_or(row["rtt_ms"], -1.0),
    "loss": lambda row: -row["loss"],
    "battery": lambda row: _or((row.get("position") or {}).get("battery"), 2.0),
    "age": lambda row: -_or((row.get("position") or {}).get("age_s"), -1.0),
}
"""Name to key; equal ones by name."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("top", help="the swarm in a terminal, drawn again every few seconds")
    parser.add_argument(
        "--interval", type=float, default=2.0, metavar="S", help="seconds between two looks (%(default)s)"
    )
    parser.add_argument("--sort", choices=tuple(SORTS), default="name", help="order of the members (%(default)s)")
    parser.add_argument("--find", default="", metavar="TEXT", help="only members with these letters")
    parser.add_argument("--once", action="store_true", help="print it once and end")
    add_control(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, draw, wait."""
    from rich.console import Console
    from rich.live import Live

    from swarmd.errors import DaemonError

    if args.interval < 0.2:
        raise DaemonError("--interval is at least 0.2 seconds")
    console = Console()
    with Watched(args.control) as watched:
        if args.once or not console.is_terminal:
            console.print(screen(watched.look(), args.sort, args.find, console.height))
            return 0
        with Live(console=console, screen=True, auto_refresh=False) as live:
            seen = watched.look()
            while True:
                live.update(screen(seen, args.sort, args.find, console.height, watched.away), refresh=True)
                time.sleep(args.interval)
                seen = watched.look_or_wait(seen)


class Watched:
    """One daemon, which may end and come back while it is looked at."""

    def __init__(self, control: "Path | Remote | None") -> None:
        """Reach it; raises `ControlError` where nobody answers."""
        from swarmd.api.control import ControlClient

        self._client = ControlClient(control)
        self._away_s: float | None = None
        self.away = ""
        """For people: since when nobody answers, and why; "": it does."""

    def look(self) -> dict[str, Any]:
        """What it knows; raises `DaemonError`."""
        return look(self._client.call)

    def look_or_wait(self, before: dict[str, Any]) -> dict[str, Any]:
        """What it knows; where nobody answers, what it knew before, and another connection is tried.

        Args:
            before: What was seen last.
        """
        from swarmd.errors import ControlError

        try:
            seen = self.look()
        except ControlError:
            try:
                seen = self._look_anew()  # It has restarted, or hung up on who was silent for long.
            except ControlError as error:
                now_s = time.monotonic()
                self._away_s = now_s if self._away_s is None else self._away_s
                self.away = f"nobody answers since {now_s - self._away_s:.0f} s, below is what was: {error}"
                return before
        self._away_s, self.away = None, ""
        return seen

    def _look_anew(self) -> dict[str, Any]:
        from swarmd.api.control import ControlClient

        self._client.close()
        self._client = ControlClient(self._client.path)
        return self.look()

    def __enter__(self) -> "Watched":
        """Use as a context."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        self._client.close()


def look(call: Callable[..., Row]) -> dict[str, Any]:
    """What one daemon knows; four questions, so that a slow link carries no list of objects.

    Args:
        call: Asks a control verb.
    """
    since_ms = (time.time() - EVENTS_S) * 1000
    return {
        "status": call("status"),
        "members": call("members")["members"],
        "cells": call("cells")["cells"],
        "events": call("events", since_ms=since_ms, limit=EVENTS_SHOWN)["events"],
    }


def screen(seen: Mapping[str, Any], sort: str, find: str, height: int, away: str = "") -> "RenderableType":
    """One picture.

    Args:
        seen: What `look` found.
        sort: One of `SORTS`.
        find: Only members with these letters; "": all.
        height: Lines of the terminal.
        away: Why the picture is an old one; "": it is not.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    status, members, cells = seen["status"], seen["members"], seen["cells"]
    alive = sum(row["state"] in ("alive", "degraded") for row in members)
    done = sum(cell["state"] == "done" for cell in cells)
    head = [
        Text.assemble((" swarmd top ", "reverse"), f" {_short(status['swarm'])} as seen by {_short(status['node'])}")
    ]
    head[0].append(f"   {alive}/{len(members)} heard   {status['objects']} objects")
    head[0].append(f"   {done}/{len(cells)} cells done" if cells else "")
    head += [Text(_short(f" {away}", _TEXT_MAX), style="bold red")] if away else []
    lost = [row for row in members if row["state"] in ("failed", "unreachable")]
    if lost:
        what = f"CUT? {len(lost)} members are" if len(lost) > 1 else f"{_short(lost[0]['name'])} is"
        head.append(Text(f" {what} not heard; you see the side of {_short(status['node'])}", style="bold red"))
    for alert in status["alerts"][:3]:
        colour = "red" if alert["level"] == "error" else "yellow"
        head.append(Text(_short(f" {alert['code']}: {alert['text']}. {alert['remedy']}", _TEXT_MAX), style=colour))

    working = {cell["holder"]: cell["id"] for cell in cells if cell["state"] == "claimed"}
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for name in ("name", "state", "link"):
        table.add_column(name, no_wrap=True)
    for name in ("rtt ms", "loss", "battery", "told", "cell"):
        table.add_column(name, justify="right", no_wrap=True)
    members = [{**row, "quality": link_of(row, bool(status.get("mesh")))} for row in members]
    found = [row for row in members if find.lower() in f"{row['name']} {row['state']} {row['quality']}".lower()]
    found.sort(key=lambda row: (SORTS[sort](row), row["name"]))
    events = [
        Text(_short(_event(row), _TEXT_MAX), style=_colour(row), no_wrap=True, overflow="ellipsis")
        for row in reversed(seen["events"])
    ]
    room = max(3, height - len(head) - len(events) - 4)
    for row in found[:room]:
        table.add_row(*_cells(row, working.get(row["name"], "")))
    hidden = len(found) - room
    more = [Text(f"… {hidden} more; --find TEXT shows some", style="dim")] if hidden > 0 else []
    if members and not found:
        more = [Text(f"no member's name, state or link has {_short(find)!r}", style="dim")]
    return Group(*head, table, *more, Text(""), *events)


def _cells(row: Row, cell: str) -> "list[Any]":
    from rich.text import Text

    position = row.get("position") or {}
    battery, age_s = position.get("battery"), position.get("age_s")
    return [
        Text(_short(row["name"])),
        Text(row["state"], style=_COLOURS.get(row["state"], "dim")),
        Text(row["quality"], style="" if row["quality"] in ("good", "self", "relayed") else "yellow"),
        Text("" if row["rtt_ms"] is None else f"{row['rtt_ms']:.1f}"),
        Text(f"{100 * row['loss']:.0f}%"),
        Text("" if battery is None else f"{100 * battery:.0f}%", style="red" if _or(battery, 1.0) < 0.25 else ""),
        Text("" if age_s is None else f"{age_s:.0f} s", style="yellow" if _or(age_s, 0.0) > 15 else ""),
        Text(_short(cell)),
    ]


def _event(row: Row) -> str:
    subject = "" if row["subject"] == row["origin"] else f" {row['subject']}"
    why = " · ".join(part for part in (row["reason"], row["evidence"]) if part not in ("", row["kind"]))
    return f" {row['time'][11:19]}  {row['origin']}: {row['kind']}{subject}{f' · {why}' if why else ''}"


def _colour(row: Row) -> str:
    return {"error": "red", "warning": "yellow"}.get(row["level"], "dim")


def _short(text: str, most: int = _NAME_MAX) -> str:
    from swarmd.events.record import clean

    return clean(text, most)
