"""What stands unsolved at this node: asked of the running daemon; whether it is out, else, read from its journal."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swarmd.api.control import ControlClient, socket_folders
from swarmd.errors import DaemonError
from swarmd.identity.remedies import out_code
from swarmd.sqlite_files import check_version
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.trust.identity import Identity, open_trust
from swarmd_protocols.trust.trust import TRUST_JOURNAL

_ANSWER_S = 2.0
"""Seconds that the daemon is given: its loop turns many times in one."""


def running_alerts(control: str, name: str) -> list[dict[str, str]] | None:
    """The alerts that stand at the running daemon; None where none runs, or it is somebody else's.

    Args:
        control: The configured control socket; "" for the usual places.
        name: The node's name.
    """
    for path in _places(control, name):
        status = _asked(path, "status")
        if status is not None and status.get("node") == name:
            alerts: list[dict[str, str]] = status.get("alerts", [])
            return alerts
    return None


def not_reaching(control: str, name: str) -> list[str]:
    """Members that hear the running daemon and say that it does not hear them, by name.

    Args:
        control: The configured control socket; "" for the usual places.
        name: The node's name.
    """
    for path in _places(control, name):
        rows = (_asked(path, "members") or {}).get("members", [])
        if any(row["name"] == name and row["quality"] == "self" for row in rows):
            said = {link for row in rows for link in row["links"]}
            others = sorted(row["name"] for row in rows if row["name"] != name)
            return [other for other in others if f"{other} hears {name}, {name} does not hear {other}" in said]
    return []


def remembered_problem(identity: Identity, state: Path) -> tuple[str, str]:
    """Why the swarm does not hear this node, by what its journal holds, and the alert's code; "" where it does."""
    path = state / "journal.sqlite"
    if not path.is_file():
        return "", ""
    try:
        with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True) as journal:
            check_version(journal)
            high = TRUST_JOURNAL[:-1] + bytes([TRUST_JOURNAL[-1] + 1])
            rows = journal.execute("SELECT key, value FROM records WHERE key >= ? AND key < ?", (TRUST_JOURNAL, high))
            records = dict(rows.fetchall())
    except sqlite3.Error:
        return (
            "",
            "",
        )  # The check of the state's folder, and the daemon's own start, speak of a damaged or later one.
    why_out = open_trust(identity, records, NaClCrypto()).why_out(identity.node)
    return f"the swarm does not hear this node: it is {why_out}" if why_out else "", out_code(why_out)


def _places(control: str, name: str) -> list[Path]:
    return [Path(control)] if control else [folder / f"{name}.sock" for folder in _folders()]


def _folders() -> Iterator[Path]:
    yield Path("/run/swarmd")
    yield from socket_folders()


def _asked(path: Path, verb: str) -> dict[str, Any] | None:
    try:
        if not path.is_socket():
            return None
        with ControlClient(path, _ANSWER_S) as client:
            return client.call(verb)
    except (DaemonError, OSError):
        return None
