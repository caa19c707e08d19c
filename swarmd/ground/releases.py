"""The board of releases: what a daemon knows of them, as rows; and orders about them that officers sign elsewhere.

Rules this file keeps: no key comes here, and nothing here is told to the swarm. What is asked for is written as a
statement without signatures; that it was signed and handed in shows on the board as anybody's would.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from swarmd.api.daemon import Operations
from swarmd.errors import DaemonError
from swarmd.events.record import TEXT_MAX_CHARS
from swarmd.ground.facts import said
from swarmd.ground.picture import Picture
from swarmd.ground.rows import Mark, Prepared, Release, Signed, Vote

LOOK_S = 2.0
"""Seconds between two looks: a trial takes minutes, and a look at a fleet of 200 some milliseconds."""
_BAD = ("halted", "revoked", "forked")


class ReleaseFeed:
    """One daemon's releases, into a picture.

    Args:
        daemon: Which.
        picture: What they are written into.
        on_mark: Told of points for the timeline.
    """

    def __init__(self, daemon: Operations, picture: Picture, on_mark: Callable[[Mark], None]) -> None:
        self._daemon = daemon
        self._picture = picture
        self._mark = on_mark
        self._states: dict[str, tuple[str, float | None]] = {}
        """Release to its state and when it came to be."""
        self._verdicts: dict[str, tuple[str, float | None]] = {}
        """Vote to its verdict and when it was heard."""
        self._has_read = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Read the board once."""
        try:
            board: Mapping[str, Any] = self._daemon.command("model_board", {}, "the ground view")
        except DaemonError:
            return  # A daemon without releases has no board.
        now_s = time.time()
        releases = [self._release(row, now_s) for row in board.get("releases", ())]
        self._put("release", releases, self._states, now_s)
        votes = [self._vote(row, now_s) for row in board.get("votes", ())]
        self._put("vote", votes, self._verdicts, now_s)
        self._has_read = True

    async def prepare(self, arguments: Mapping[str, object]) -> Prepared:
        """An order about a release, for officers to sign.

        Raises:
            DaemonError: It would do nothing, or an argument is missing.
        """
        told: Mapping[str, Any] = self._daemon.command("model_prepare", arguments, "the ground view")
        name = told["name"]
        copies = " ".join(f"{name}.{number}" for number in range(1, told["need"] + 1)) if told["need"] > 1 else name
        commands = [f"swarmd keys inspect {name}", f"swarmd keys sign {name} --key KEY"]
        if told["need"] > 1:
            commands[1:] = [f"cp {name} {name}.1    # a copy for each of {told['need']} officers, .2 for the next",
                            f"swarmd keys sign {name}.1 --key KEY"]  # fmt: skip
        commands.append(f"swarmd keys submit {copies} --fleet FLEET --control SOCKET")
        return Prepared(**told, commands=commands)

    def _put(
        self, kind: str, rows: Iterable[Release | Vote], held: dict[str, tuple[str, float | None]], now_s: float
    ) -> None:
        gone = dict.fromkeys(self._picture.names(kind))
        for row in rows:
            gone.pop(row.id, None)
            self._picture.put(kind, row, now_s)
        for name in gone:
            self._picture.drop(kind, name, now_s)
            held.pop(name, None)

    def _release(self, row: Mapping[str, Any], now_s: float) -> Release:
        name, state = f"{row['model']} {row['digest'][:16]}", str(row["state"])
        was = self._states.get(name)
        if was is None or was[0] != state:
            self._states[name] = (state, now_s if self._has_read else None)
            if self._has_read:
                level = "warning" if state in _BAD else "info"
                before = f"{was[0]} → " if was is not None else ""
                self._mark(Mark(now_s, "events", level, f"{row['model']} {row['version']} {before}{state}"))
        statements = [Signed(**{**one, "reason": said(one["reason"], TEXT_MAX_CHARS)}) for one in row["statements"]]
        have, chunks = row["chunks"]
        rest = {key: value for key, value in row.items() if key not in ("statements", "chunks")}
        return Release(
            id=name, since_s=self._states[name][1], statements=statements, chunks=(have, chunks), **rest
        )  # fmt: skip

    def _vote(self, row: Mapping[str, Any], now_s: float) -> Vote:
        release = f"{row['model']} {row['release'][:16]}"
        name, verdict = f"{release} {row['node']}", str(row["verdict"])
        was = self._verdicts.get(name)
        if was is None or was[0] != verdict:
            self._verdicts[name] = (verdict, now_s if self._has_read and verdict != "NONE" else None)
            if self._has_read and verdict == "FAIL":
                text = said(f"{row['name']} FAIL {row['model']}: {row['reason']}", TEXT_MAX_CHARS)
                self._mark(Mark(now_s, "events", "warning", text))
        rest = {key: value for key, value in row.items() if key not in ("model", "release", "name", "reason")}
        return Vote(
            id=name, release=release, name=said(row["name"]), reason=said(row["reason"], TEXT_MAX_CHARS),
            heard_s=self._verdicts[name][1], **rest,
        )  # fmt: skip
