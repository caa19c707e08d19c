"""The verb `events`: what happened, read from the file of events."""

from collections.abc import Mapping
from typing import Any

from swarmd.api.daemon import Operations
from swarmd.api.verbs import number_argument, text_argument
from swarmd.errors import DaemonError
from swarmd.events.kinds import KINDS
from swarmd.events.store import FOUND_MAX, Query


async def find_events(daemon: Operations, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answer one request.

    Args:
        daemon: Whose history.
        arguments: `since_ms` and `until_ms` (UTC, milliseconds since 1970), `kinds`, `origin`, `limit`; all optional.

    Raises:
        DaemonError: An argument is wrong.
    """
    kinds = arguments.get("kinds", [])
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise DaemonError("argument 'kinds' must be a list of texts")
    unknown = sorted(set(kinds) - KINDS.keys())
    if unknown:
        raise DaemonError(f"no kind {unknown[0][:40]!r} of event; there are {', '.join(KINDS)}")
    limit = int(number_argument(arguments, "limit", 1_000))
    if not 0 < limit <= FOUND_MAX:
        raise DaemonError(f"argument 'limit' must lie between 1 and {FOUND_MAX}")
    query = Query(
        since_ms=int(number_argument(arguments, "since_ms", 0)),
        until_ms=int(number_argument(arguments, "until_ms", 1e15)),
        kinds=tuple(kinds),
        origin=text_argument(arguments, "origin", "", most=64),
        limit=limit,
    )
    return {"events": [record.row() for record in await daemon.past.find(query)]}
