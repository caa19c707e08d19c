"""The question of `fleet objects` asked of the gateways themselves, as of this moment: Zenoh's queryables.

Every swarm's gateways that were heard last are asked at once, each by a question that is sealed for it with the
region's key; what they answer passes the swarm's gate as what they publish does, and is laid over what the region has.
Nothing is written down: the region's process is not needed, and is told nothing. A site that does not answer in time is
named stale. Needs a Zenoh path (MQTT has no queryables) and the extra `zenoh`.
"""

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from swarmd.config.bridges import MqttConfig
from swarmd.errors import DaemonError
from swarmd.federation.pipes import apart, is_zenoh
from swarmd.federation.rows import ObjectQuery, ObjectsAnswer, SiteAnswer
from swarmd.federation.settings import RegionConfig, read_pins, read_seed
from swarmd.federation.store import Store, gateways_of, word_of
from swarmd.federation.uplink import Place
from swarmd.federation.uplink_zenoh import FRAME_LEAST_BYTES, ZenohAddress, import_zenoh, read_address, settings_of
from swarmd_protocols.crypto import Crypto, NaClCrypto
from swarmd_protocols.federation.gate import Gate, Pin
from swarmd_protocols.federation.objects import Derived
from swarmd_protocols.federation.wire import ASK_ROWS_MAX, FRAME_MAX_BYTES, SALT_BYTES, Ask, SiteRow, Way
from swarmd_protocols.ids import NodeId

WAIT_S = 0.6
"""Seconds for all answers, the connection included: with starting and reading the file, a question takes a second."""
AGAIN_S = 0.2
"""Who has not answered by then is asked again, and then after twice as long each time: a router that has just been
connected knows nobody yet. A question that was answered is answered no second time."""
ASKED_MAX = 2
"""Gateways of a swarm that are asked: each knows all that its swarm shows."""
WAITING_MAX_BYTES = 32 << 20
"""Frames of answers that wait to be read, all routers together, each router's within an equal part; more are dropped,
and their site counts as one that has not answered. Forty of the largest honest answers."""


class Question(NamedTuple):
    """One gateway's."""

    gate: Gate
    gateway: NodeId
    life: int
    number: int
    place: str
    frame: bytes


@dataclass
class Told:
    """What one swarm's gateways have answered."""

    as_of_ms: int | None = None
    """Swarm time of a whole answer; None where there is none."""
    objects: dict[bytes, tuple[NodeId, Derived]] = field(default_factory=dict)
    came: dict[int, set[int]] = field(default_factory=dict)
    """Question to the numbers of the rows that came."""
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Question to (number, swarm time) of the row that ends its answer."""


def questions(
    pins: Sequence[Pin], store: Store, seed: bytes, crypto: Crypto, query: ObjectQuery, prefix: str, life: int
) -> list[Question]:
    """What to ask, of the gateways that were heard last and whose certificates hold.

    Args:
        pins: The region's swarms.
        store: What it has.
        seed: Its key.
        crypto: The library.
        query: What is asked; its `swarm` chooses.
        prefix: Of all places.
        life: Milliseconds since 1970, above that of every question before.
    """
    ask = Ask(query.label[:64], max(0, query.since_ms), max(0, query.until_ms), min(query.limit, ASK_ROWS_MAX))
    found: list[Question] = []
    for pin in pins:
        if query.swarm not in ("", pin.key.hex(), pin.name, pin.swarm):
            continue
        heard = gateways_of(store, pin.key.hex())
        if not heard:
            continue
        gate = Gate(pin, seed, crypto, store.trust(pin.key.hex()), clock_ms=lambda: life)
        asked = 0
        for gateway in heard:
            held = gate.trust.certified(gateway)
            if held is None or not gate.is_gateway(held.public_key):
                continue
            number = len(found)
            frame = gate.pair(held.public_key).seal(Way.ASK, pin.key, life, number, os.urandom(SALT_BYTES), ask)
            found.append(Question(gate, gateway, life, number, Place(pin.key, Way.ASK, gateway).path(prefix), frame))
            asked += 1
            if asked == ASKED_MAX:
                break
    return found


def take(told: dict[bytes, Told], question: Question, frame: bytes) -> None:
    """Take one frame of an answer in; bytes from anybody."""
    heard = question.gate.told(frame, question.life, question.number)
    if heard is None or heard.gateway != question.gateway:
        return
    of = told.setdefault(question.gate.key, Told())
    came = of.came.setdefault(question.number, set())
    came.update(row.seq for row in heard.up.rows)
    for seq, row in heard.taken:
        if isinstance(row, SiteRow):
            of.last[question.number] = (seq, row.as_of_ms)
        elif isinstance(row, Derived):
            held = of.objects.get(row.object_id)
            if held is None or (held[1].stamp, held[1].digest) < (row.stamp, row.digest):
                of.objects[row.object_id] = (heard.gateway, row)
    last, as_of_ms = of.last.get(question.number, (-1, 0))
    if len(came) == last + 1:
        of.as_of_ms = max(as_of_ms, of.as_of_ms or 0)


def laid_over(
    answer: ObjectsAnswer, told: Mapping[bytes, Told], pins: Sequence[Pin], store: Store, query: ObjectQuery
) -> ObjectsAnswer:
    """The region's answer with what gateways have answered laid over it; who has not is stale."""
    rows: dict[tuple[str, str], Mapping[str, Any]] = {
        (str(row["swarm"]), str(row["object"])): row for row in answer.objects
    }
    for pin in pins:
        swarm = pin.key.hex()
        of = told.get(pin.key, Told())
        for gateway, found in of.objects.values():
            key = (swarm, found.object_id.hex())
            held = rows.get(key)
            word = (found.stamp, found.digest.hex())
            if held is not None and (held["stamp"], held["digest"]) > word:
                continue
            rows.pop(key, None)
            row = word_of(store, swarm, found, gateway, pin.confirm_observers, answer.asked_ms)
            if _is_asked(row, query):
                rows[key] = {**row, "name": pin.name}
            for part in found.merged:
                other = rows.get((swarm, part.hex()))
                if other is not None and other["stamp"] <= found.stamp:
                    del rows[swarm, part.hex()]
    objects = sorted(rows.values(), key=lambda row: (-row["last_ms"], row["swarm"], row["object"]))
    shown = tuple(dict(row) for row in objects[: query.limit])
    sites = tuple(_site(site, told.get(bytes.fromhex(site.key)), shown) for site in answer.sites)
    most = min(query.limit, ASK_ROWS_MAX)
    has_more = any(of.as_of_ms is None and len(of.objects) >= most for of in told.values())
    return ObjectsAnswer(answer.asked_ms, sites, shown, answer.is_cut or has_more or len(objects) > query.limit)


def _site(site: SiteAnswer, told: Told | None, shown: Iterable[Mapping[str, object]]) -> SiteAnswer:
    count = sum(row["swarm"] == site.key for row in shown)
    if told is None or (told.as_of_ms is None and not told.objects):
        return msgspec.structs.replace(site, stale=True, objects=count)
    # Without its last row an answer is not whole: what the region knew is as old as it was.
    as_of = site.as_of_ms if told.as_of_ms is None else told.as_of_ms
    return msgspec.structs.replace(site, as_of_ms=as_of, stale=False, objects=count)


def _is_asked(row: Mapping[str, Any], query: ObjectQuery) -> bool:
    if row["tier"] == "candidate" or row["review"] == "rejected":
        return False
    is_late = bool(query.until_ms) and row["last_ms"] >= query.until_ms
    is_other = (query.label and row["label"] != query.label) or (query.tier and row["tier"] != query.tier)
    return not (is_late or is_other or row["last_ms"] < query.since_ms)


def ask_gateways(
    folder: Path,
    config: RegionConfig,
    store: Store,
    query: ObjectQuery,
    answer: ObjectsAnswer,
    wait_s: float = WAIT_S,
    crypto: Crypto | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> ObjectsAnswer:
    """Ask, and lay what is answered over the region's answer; blocks for `wait_s` at the most.

    Args:
        folder: The region's, with its key.
        config: Its configuration.
        store: Its memory.
        query: What is asked.
        answer: What the region has.
        wait_s: Seconds for all answers.
        crypto: The library; None: NaCl.
        say: Told of each router that was not reached, for people.

    Raises:
        DaemonError: There is no Zenoh path, or eclipse-zenoh is not installed.
    """
    paths = [path for path in apart(config.paths) if is_zenoh(path)]
    if not paths:
        raise DaemonError(
            f"gateways are asked over Zenoh, and {folder / 'region.toml'} names no zenoh:// path in paths; "
            "leave --live out, add one, or give --path zenoh://HOST:7447"
        )
    import_zenoh()
    pins = read_pins(folder, config)
    life = round(time.time() * 1000)
    asked = questions(pins, store, read_seed(folder), crypto or NaClCrypto(), query, config.prefix, life)
    files = MqttConfig(ca_file=config.ca_file, cert_file=config.cert_file, key_file=config.key_file)
    scatter = Scatter(asked, wait_s, len(paths))
    for router, path in enumerate(paths):
        # No daemon threads: what ends with the interpreter inside the library takes the whole process with it.
        threading.Thread(target=scatter.ask, args=(router, read_address(path), config.prefix, files)).start()
    told: dict[bytes, Told] = {}
    for question, frame in scatter.frames():
        take(told, question, frame)
        if all(_is_whole(told.get(one.gate.key)) for one in asked):
            break
    scatter.end()
    is_answered = all(_is_whole(told.get(one.gate.key)) for one in asked)
    for path in paths:
        # Where everybody has answered, a router that is not reached yet is not looked for either.
        if not is_answered and read_address(path) not in scatter.reached:
            say(f"no router was reached at {path} within {wait_s} s")
    return laid_over(answer, told, pins, store, query)


def _is_whole(told: Told | None) -> bool:
    return told is not None and told.as_of_ms is not None


class Scatter:
    """Questions out and frames back over so many routers; each is asked by a thread of its own.

    Args:
        questions: What is asked.
        wait_s: Seconds for all of it.
        routers: How many there are.
    """

    def __init__(self, questions: Sequence[Question], wait_s: float, routers: int = 1) -> None:
        self._questions = questions
        self._deadline_s = time.monotonic() + wait_s
        self._frames: queue.SimpleQueue[tuple[int, Question, bytes]] = queue.SimpleQueue()
        self._waiting = [0] * routers
        """Bytes that wait of each router."""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.reached: list[ZenohAddress] = []
        """Routers to which a connection stood."""

    def frames(self) -> Iterable[tuple[Question, bytes]]:
        """Frames as they come, until the time is over."""
        while (left_s := self._deadline_s - time.monotonic()) > 0 and self._questions:
            try:
                router, question, frame = self._frames.get(timeout=left_s)
            except queue.Empty:
                return
            with self._lock:
                self._waiting[router] -= len(frame) + FRAME_LEAST_BYTES
            yield question, frame

    def take(self, router: int, question: Question, payload: Any) -> None:
        """A frame that has come by a router, in a thread of Zenoh's: bytes from anybody."""
        size = len(payload)
        with self._lock:
            held = self._waiting[router] + size + FRAME_LEAST_BYTES
            if size > FRAME_MAX_BYTES or held > WAITING_MAX_BYTES // len(self._waiting):
                return
            self._waiting[router] = held
        self._frames.put((router, question, bytes(payload)))

    def end(self) -> None:
        """Nothing more is wanted; connections close by themselves."""
        self._over.set()

    def ask(self, router: int, address: ZenohAddress, prefix: str, files: MqttConfig) -> None:
        """Ask by one router; in a thread. A router that cannot be reached is one that brings no answer."""
        zenoh = import_zenoh()
        config = zenoh.Config()
        # Who routes for itself listens already: there this is a client of it.
        reached = ZenohAddress(address.connect or address.listen, (), address.tls)
        try:
            left_ms = max(50, round(1_000 * (self._deadline_s - time.monotonic())))
            soon = {"connect/timeout_ms": left_ms, "transport/unicast/open_timeout": left_ms}
            for key, value in {**settings_of(reached, prefix, files), **soon}.items():
                config.insert_json5(key, json.dumps(value))
            session = zenoh.open(config)
        except (zenoh.ZError, DaemonError):
            return
        self.reached.append(address)
        with session:
            wait_s = AGAIN_S
            while (left_s := self._deadline_s - time.monotonic()) > 0:
                for question in self._questions:
                    self._put(router, session, question)
                if self._over.wait(min(wait_s, left_s)):
                    break
                wait_s *= 2

    def _put(self, router: int, session: Any, question: Question) -> None:
        zenoh = import_zenoh()

        def hear(reply: Any) -> None:
            sample = reply.ok
            if sample is not None:
                self.take(router, question, sample.payload)

        left_s = max(0.05, self._deadline_s - time.monotonic())
        session.get(
            question.place,
            hear,
            payload=question.frame,
            timeout=left_s,
            # All frames of an answer bear one key: none of them replaces another.
            consolidation=zenoh.ConsolidationMode.NONE,
        )
