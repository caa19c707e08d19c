"""Commands from the broker: which are run, how often, and where their replies may go.

A broker's clients are not members: the broker says who may publish below `cmd/`, and nothing proves who did. So a
command can do no more than ask, and what it costs is bounded here:

- A reply goes below `<reply prefix>/<client>` only, and `<client>` is what the asker is known by. By default the prefix
  is the swarm's own `<base>/<swarm>/reply`, where nothing else lives: no command topic, nothing retained, no other
  program's topics. A command that wants its reply anywhere else is not run.
- Replies are never retained and never larger than `REPLY_MAX_BYTES`.
- Each client has a token bucket for each verb, each verb has one for all clients together (names can be invented), and
  all commands share a budget of work and one of reply bytes. What is over is counted and gets no answer: an answer
  would be traffic too.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from swarmd.bridges.mqtt.topics import COMMAND_VERBS
from swarmd.errors import DaemonError
from swarmd.rates import TokenBucket, TokenBuckets

REPLY_MAX_BYTES = 256 * 1024
"""Bytes of one reply: an object takes some 400, so this holds 600 of them; the retained topics hold them all."""
CLIENT_PER_S = 2.0
"""Commands a second of one client and verb: twice what a page that is refreshed each second asks for."""
CLIENT_BURST = 10
"""Commands of one client and verb at once: a person who presses a button again and again."""
VERB_PER_S = 4.0
"""Commands a second of one verb by all clients: two busy ones, or forty that ask each ten seconds."""
VERB_BURST = 40
"""Commands of one verb by all clients at once: four clients that begin at the same time."""
EVENT_PER_S = 1.0
"""User events a second by all clients: each goes to every member, so it is dearer than a question."""
EVENT_BURST = 10
"""User events by all clients at once."""
WORK_SHARE = 0.05
"""Part of a core that all commands together may take, whatever the size of the picture that they ask for."""
WORK_BURST_NS = 250_000_000
"""Nanoseconds of work at once: a dozen answers about 1,000 objects on a small board."""
REPLY_BYTES_PER_S = 256 * 1024
"""Bytes of replies a second, all verbs and clients: a largest reply each second."""
REPLY_BYTES_BURST = 1024 * 1024
"""Bytes of replies at once: four largest."""
CLIENTS_MAX = 256
"""Pairs of client and verb whose buckets are remembered; with more, `VERB_PER_S` is what still holds."""
_LEVELS_MAX = 3
"""Topic levels below the prefix: the client, and two for its own use."""
_TOPIC_MAX = 256
"""Characters of a response topic; longer ones serve nobody and would be kept in the buffer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a command."""

    outcome: str
    """`commands`, `commands_refused` or `commands_limited`: a counter."""
    reply: bytes | None
    """What to publish to the response topic; None: nothing."""


def client_of(response_topic: str, prefix: str) -> str | None:
    """Who asks, by where the reply shall go; None where no reply may go.

    Args:
        response_topic: As the command brought it, not empty.
        prefix: Topic levels in front of the client's, without a slash at the end.

    >>> client_of("swarm/v1/farm/reply/desk-1", "swarm/v1/farm/reply")
    'desk-1'
    >>> client_of("swarm/v1/farm/cmd/all/objects", "swarm/v1/farm/reply") is None
    True
    """
    if len(response_topic) > _TOPIC_MAX or not response_topic.startswith(prefix + "/"):
        return None
    if any(character in "+#" or ord(character) < 32 for character in response_topic):
        return None
    levels = response_topic[len(prefix) + 1 :].split("/")
    return levels[0] if all(levels) and len(levels) <= _LEVELS_MAX else None


class Commands:
    """Admits, runs and answers the commands of one broker."""

    def __init__(
        self,
        run: Callable[[str, Mapping[str, object]], Mapping[str, object]],
        reply_prefix: str,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Start with full buckets.

        Args:
            run: Runs one verb; raises `DaemonError`.
            reply_prefix: Where replies may go (`client_of`).
            clock_ns: Monotonic clock.
        """
        self._run = run
        self._prefix = reply_prefix
        self._clock_ns = clock_ns
        self._clients = TokenBuckets(CLIENT_PER_S, CLIENT_BURST, CLIENTS_MAX)
        self._verbs = {verb: TokenBucket(VERB_PER_S, VERB_BURST) for verb in (*COMMAND_VERBS, "")}
        self._verbs["event"] = TokenBucket(EVENT_PER_S, EVENT_BURST)
        self._work = TokenBucket(WORK_SHARE * 1e9, WORK_BURST_NS)
        self._reply_bytes = TokenBucket(REPLY_BYTES_PER_S, REPLY_BYTES_BURST)

    def answer(self, verb: str, payload: bytes, response_topic: str) -> Answer:
        """One command; whatever the bytes are, the outcome is one of three.

        Args:
            verb: Last level of the command's topic.
            payload: JSON object, or empty.
            response_topic: "" where no reply is wanted.
        """
        client = client_of(response_topic, self._prefix) if response_topic else ""
        if client is None:
            return Answer("commands_refused", None)
        began_ns = self._clock_ns()
        known = verb if verb in COMMAND_VERBS else ""
        # The client's own bucket first: what it is denied there takes nothing from the others.
        if not self._clients.take((client, known), began_ns) or not self._verbs[known].take(began_ns):
            return Answer("commands_limited", None)
        if not self._work.take(began_ns, 0.0):
            return Answer("commands_limited", None)
        outcome, reply = self._reply(verb, payload)
        now_ns = self._clock_ns()
        self._work.spend(now_ns, now_ns - began_ns)
        if not response_topic:
            return Answer(outcome, None)
        return (
            Answer(outcome, reply) if self._reply_bytes.take(now_ns, len(reply)) else Answer("commands_limited", None)
        )

    def _reply(self, verb: str, payload: bytes) -> tuple[str, bytes]:
        try:
            reply = _encoded({"ok": True, "result": self._run_verb(verb, payload)})
        except (DaemonError, ValueError, RecursionError) as error:
            return "commands_refused", _encoded({"ok": False, "error": str(error)})
        if len(reply) <= REPLY_MAX_BYTES:
            return "commands", reply
        text = f"the answer has {len(reply)} bytes, more than {REPLY_MAX_BYTES}; read the retained topics"
        return "commands_refused", _encoded({"ok": False, "error": text})

    def _run_verb(self, verb: str, payload: bytes) -> Mapping[str, object]:
        if verb not in COMMAND_VERBS:
            raise DaemonError(f"unknown verb {verb[:40]!r}; known: {', '.join(COMMAND_VERBS)}")
        arguments = msgspec.json.decode(payload) if payload.strip() else {}
        if not isinstance(arguments, dict):
            raise DaemonError("the payload must be a JSON object, or empty")
        return self._run(verb, arguments)


def _encoded(reply: Mapping[str, object]) -> bytes:
    return json.dumps(reply, default=str).encode()
