"""The verbs `review_subject` and `review`: what a statement about an object has to name, and one that was signed."""

from collections.abc import Mapping
from typing import Any

from swarmd.api.daemon import Operations
from swarmd.api.reviewing import subject_row
from swarmd.api.verbs import Verbs, text_argument
from swarmd.errors import DaemonError
from swarmd_protocols.state.crdt.reviews import STATEMENT_MAX_BYTES, open_review
from swarmd_protocols.state.observations import SayReview


def register_reviews(daemon: Operations, verbs: Verbs) -> None:
    """Add both to the registry."""
    verbs.add("review_subject", lambda arguments: _subject(daemon, arguments))
    verbs.add("review", lambda arguments: _review(daemon, arguments), changes=True)


def _subject(daemon: Operations, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a review of an object has to name: the operator's machine makes the statement of it, and signs it."""
    name = text_argument(arguments, "object", most=64)
    subject = daemon.in_parts.review_subject(name)
    if subject is None:
        raise DaemonError(f"no object {name!r} is shown here; `swarmd objects` lists those that are")
    return subject_row(subject)


def _review(daemon: Operations, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take what an operator has signed; it holds whoever hands it over."""
    try:
        statement = bytes.fromhex(text_argument(arguments, "statement", most=2 * STATEMENT_MAX_BYTES))
    except ValueError as error:
        raise DaemonError("statement: write it as hexadecimal digits") from error
    daemon.ask("state", SayReview(statement))
    return {"digest": open_review(statement).digest.hex()}
