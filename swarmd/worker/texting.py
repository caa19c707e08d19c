"""Texts of language models, a few tokens at a time, from this device or from others, and texts that go on later.

```
 prompt ─▶ tokens ─▶ │ a few more ─▶ text to the program │ … until the end, or as many as were wanted
                     └ here, or at a lender; each time with all tokens so far
```

A model holds no state (`swarmd_models.texts`): the tokens are all that a text needs to go on, and they are here. So a
lender keeps nothing, one that dies costs the few tokens that it was asked for, and another goes on with the same words:
a token depends on those before it and the seed alone. All of a text comes from bundles of one digest. Each ask is a
request as any other: queued behind what is more urgent, under tickets, signed, held against the own model.

A program that wants to go on later is given the state, sealed with a key that only this device's brain and worker have:
nothing of it stays here, nobody else can read or change it, and after its time it opens no more.

Source:
    Triton's extension "generate" of the Open Inference Protocol: `text_input` in, `text_output` out, server-sent events
    (WHATWG HTML, 9.2) from `generate_stream`.
"""

import asyncio
import base64
import binascii
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np

from swarmd.worker.answers import json_answer, late
from swarmd.worker.batcher import HIGH, LOW, NORMAL, Batcher
from swarmd.worker.borrowing import NobodyError, may_leave, wants_quickest
from swarmd.worker.elsewhere import TIMEOUT_MAX_MS, Elsewhere, Errand, Found, Own
from swarmd.worker.http_server import Answer, Call
from swarmd.worker.lent import INFER, METADATA
from swarmd.worker.oip import MAX_JSON_BYTES, OipError, Question, Wanted, read_answer, write_question
from swarmd.worker.residency import NotResidentError, Residency, Resident, bare
from swarmd_models.errors import ArtefactError, FrameError
from swarmd_models.service import TEXT, Run, Tensors
from swarmd_models.texts import TEXT_MAX_CHARS, TextRule, Vocabulary

GENERATE, GENERATE_STREAM = "generate", "generate_stream"
EVENTS = ("Content-Type", "text/event-stream")
CHUNK_TOKENS = 4
"""Asked for at once, at most: others wait for no more than that, and a way to a lender is paid once for all. One at
first and after a failure, twice as many each time: a lender refuses several that take it longer than a turn."""
TOKENS_MAX = 1_024
"""Of one answer."""
SESSION_MAX_S = 3_600
_FAILURES_MAX = 6
"""In a row, before a text is given up."""
_PAUSE_S = 0.05
"""Before an ask is repeated; twice as long each time."""
_KNOWN_MAX = 4
"""Vocabularies of models that are not here, kept."""
_WORDS_MAX = 65_536
_PIECE_MAX_CHARS = 128
"""Of one piece of a vocabulary that a lender tells, as many as the longest of GPT-2's: at each place of a prompt each
length is tried, and one piece of 16,384 would hold the worker up for minutes."""
_WINDOW_MAX = 8_192
_KEY_BYTES = 32
_PRIORITIES = {0: NORMAL, 1: HIGH, 2: NORMAL, 3: LOW}
_DIGEST_CHARS = 64
_WANTED = (Wanted("tokens", True), Wanted("margins", True))

_Count = Annotated[int, msgspec.Meta(ge=1, le=TOKENS_MAX)]


class _Wishes(msgspec.Struct, frozen=True):
    max_tokens: _Count = 128
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=10.0)] = 0.0
    seed: Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)] = 0
    priority: Annotated[int, msgspec.Meta(ge=0, le=3)] = 0
    timeout: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)] = 0
    """Microseconds, of the whole text."""
    session: Annotated[str, msgspec.Meta(max_length=1 << 18)] = ""
    session_ttl_s: Annotated[int, msgspec.Meta(ge=0, le=SESSION_MAX_S)] = 0
    """For how long the text may go on; 0: it may not."""


class _Asked(msgspec.Struct, frozen=True):
    text_input: Annotated[str, msgspec.Meta(max_length=TEXT_MAX_CHARS)] = ""
    id: Annotated[str, msgspec.Meta(max_length=256)] = ""
    parameters: _Wishes = _Wishes()


class _State(msgspec.Struct, frozen=True, array_like=True):
    digest: str
    name: str
    tokens: list[int]
    until_ns: int


_Piece = Annotated[str, msgspec.Meta(max_length=_PIECE_MAX_CHARS)]


class _Rule(msgspec.Struct, frozen=True):
    labels: Annotated[list[_Piece], msgspec.Meta(min_length=1, max_length=_WORDS_MAX)]
    window: Annotated[int, msgspec.Meta(ge=2, le=_WINDOW_MAX)]
    end: str
    after: Annotated[str, msgspec.Meta(max_length=4_096)] = ""


class _Described(msgspec.Struct, frozen=True):
    parameters: _Rule


_ASKED = msgspec.json.Decoder(_Asked)
_STATES = msgspec.msgpack.Decoder(_State)
_DESCRIBED = msgspec.json.Decoder(_Described)


class Device(Protocol):
    """What texts need of the worker (`InferenceApi`)."""

    residency: Residency
    batcher: Batcher
    elsewhere: Elsewhere | None

    async def run_steps(
        self, resident: Resident, lane: str, run: Run, size_bytes: int, priority: int, deadline_ns: int
    ) -> Tensors:
        """Have a model that is here do something; raises `OipError`."""
        ...


@dataclass(slots=True)
class _Told:
    """What a lender says of a model that is not here: nothing proves it."""

    rule: _Rule
    by: str
    is_borne_out: bool = False
    """Another lender's tokens were of this vocabulary."""


@dataclass(frozen=True, slots=True)
class _Model:
    """A language model, here or elsewhere."""

    name: str
    digest: str
    words: Vocabulary
    window: int
    rule: TextRule
    resident: Resident | None
    told: _Told | None = None


@dataclass(slots=True)
class _Text:
    """One text that is being made."""

    model: _Model
    asked: _Asked
    tokens: list[int]
    until_ns: int
    is_here: bool
    """This device's model comes first; else whoever is quickest, or a lender."""
    may_leave: bool
    made: int = 0
    chunk: int = 1
    """Tokens to be asked for next."""
    lenders: list[str] = field(default_factory=list)
    """Who made the tokens, each change of hands once; "": this device."""

    @property
    def is_through(self) -> bool:
        has_ended = bool(self.made) and self.tokens[-1] == self.model.words.end
        return has_ended or self.made >= self.asked.parameters.max_tokens


class Sealer:
    """States of texts, as programs of this device keep them."""

    def __init__(self, key: bytes) -> None:
        """`key`: 32 bytes of the brain's; empty: one of this process alone."""
        self._key = key or os.urandom(_KEY_BYTES)

    def seal(self, state: _State) -> str:
        """As a program is given it."""
        from nacl.secret import SecretBox

        sealed = SecretBox(self._key).encrypt(msgspec.msgpack.encode(state))
        return base64.urlsafe_b64encode(bytes(sealed)).decode()

    def open(self, text: str) -> _State:
        """What was sealed here, within its time; raises `OipError` (400, or 404 after it)."""
        from nacl.exceptions import CryptoError
        from nacl.secret import SecretBox

        try:
            state = _STATES.decode(SecretBox(self._key).decrypt(base64.urlsafe_b64decode(text.encode())))
        except (CryptoError, ValueError, TypeError, binascii.Error) as error:
            raise OipError(400, "the session was not sealed by this device since its daemon began") from error
        if time.monotonic_ns() >= state.until_ns:
            raise OipError(404, "the session is over; begin a new one")
        return state


class Texting:
    """Makes texts for programs of this device."""

    def __init__(self, device: Device, deadline_ms: int, key: bytes = b"") -> None:
        """Put the parts together.

        Args:
            device: What runs here, and who runs the rest.
            deadline_ms: Of one ask, a few tokens.
            key: What states are sealed with (`Sealer`).
        """
        self._device = device
        self._deadline_ms = deadline_ms
        self._sealer = Sealer(key)
        self._known: dict[str, _Told] = {}
        """Of models that are not here, by digest."""
        self.counters: Counter[str] = Counter()
        """texts, text_tokens; text_lent: asks that a lender answered; text_moved: texts that went on at another device;
        text_asked_again; text_given_up."""

    async def handle(self, call: Call, name: str, version: str, verb: str) -> Answer:
        """Answer `generate` or `generate_stream`; raises `OipError`."""
        if call.method != "POST":
            raise OipError(405, f"POST {verb}")
        if len(call.body) > MAX_JSON_BYTES:
            raise OipError(413, f"the request has {len(call.body)} bytes; at most {MAX_JSON_BYTES}")
        try:
            asked = _ASKED.decode(call.body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise OipError(400, f"the body is no request for a text: {error}") from error
        if call.is_extra and _PRIORITIES[asked.parameters.priority] != HIGH:
            raise OipError(503, "too many programs wait for an answer; ask again in a moment, or with priority 1")
        text = await self._begin(call, bare(name), version, asked)
        rows = self._rows(text)
        first = await anext(rows)  # What cannot begin has a status of its own.
        if verb == GENERATE_STREAM:
            return Answer(200, headers=(EVENTS,), stream=_events(first, rows))
        pieces = [first["text_output"]]
        async for row in rows:
            pieces.append(row["text_output"])
            first = row
        return json_answer({**first, "text_output": "".join(pieces)})

    # --- What is asked ------------------------------------------------------------------------------------------

    async def _begin(self, call: Call, name: str, version: str, asked: _Asked) -> _Text:
        wishes = asked.parameters
        most_ns = TIMEOUT_MAX_MS * 1_000_000
        until_ns = time.monotonic_ns() + min(wishes.timeout * 1_000 or most_ns, most_ns)
        state = self._sealer.open(wishes.session) if wishes.session else None
        if state is not None:
            if name != state.name or version not in ("", state.digest):
                raise OipError(400, f"the session is of {state.name}, version {state.digest}")
            version = state.digest
        leaves = self._device.elsewhere is not None and may_leave(call)
        model = await self._model(name, version, leaves, until_ns)
        try:
            more = model.words.tokens_of(asked.text_input + model.rule.after if asked.text_input else "")
        except FrameError as error:
            raise OipError(400, str(error)) from error
        if len(more) >= model.window:
            raise OipError(400, f"the text has {len(more)} tokens; the model sees {model.window}, its answer included")
        tokens = (state.tokens if state is not None else []) + more
        if not tokens:
            raise OipError(400, "text_input is empty")
        return _Text(model, asked, tokens, until_ns, not (leaves and wants_quickest(call)), leaves)

    async def _model(self, name: str, version: str, leaves: bool, until_ns: int) -> _Model:
        try:
            resident, _ = self._device.residency.find(name, version)
        except NotResidentError as error:
            if not leaves:
                raise OipError(404, str(error)) from error
            if len(version) != _DIGEST_CHARS or not set(version) <= set("0123456789abcdef"):
                raise OipError(404, f"{name[:80]!r} is not served here; to borrow it name its digest") from error
            told = self._known.get(version) or await self._describe(version, until_ns)
            rule = told.rule
            words = _vocabulary(rule.labels, rule.end)
            return _Model(name, version, words, rule.window, TextRule(rule.end, rule.after), None, told)
        made = resident.service.text
        if made is None:
            raise OipError(400, f"{name[:80]} is no language model; ask it by `infer`")
        return _Model(name, resident.digest, made.words, made.window, resident.service.bundle.text, resident)

    async def _describe(self, digest: str, until_ns: int) -> _Told:
        """The vocabulary of a model that only others have."""
        elsewhere = self._device.elsewhere
        assert elsewhere is not None
        # A first connection over a lossy radio takes longer than a few tokens may, and nothing else can be done first.
        errand = Errand(digest, METADATA, TEXT, None, b"", 1, _left_ms(until_ns, TIMEOUT_MAX_MS))
        rules: list[_Rule] = []

        def is_sound(found: Found) -> bool:
            try:
                rules.append(_DESCRIBED.decode(found.body[: found.json_bytes]).parameters)
                _vocabulary(rules[-1].labels, rules[-1].end)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OipError):
                return False
            return True

        found = await elsewhere.ask(errand, None, is_sound)
        while len(self._known) >= _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        told = self._known[digest] = _Told(rules[-1], found.lender)
        return told

    # --- What is made -------------------------------------------------------------------------------------------

    async def _rows(self, text: _Text) -> AsyncIterator[dict[str, Any]]:
        """Pieces of the answer; the last has no text and says how it ended. Raises `OipError`."""
        model, residency = text.model, self._device.residency
        if model.resident is not None:
            residency.acquire(model.resident)
        self.counters["texts"] += 1
        try:
            while not text.is_through:
                more = await self._more(text)
                text.tokens += more
                text.made += len(more)
                self.counters["text_tokens"] += len(more)
                # The end alone is no text: an answer without text is the last.
                if piece := model.words.text_of(more):
                    yield self._row(text, piece, {})
            has_ended = text.tokens[-1] == model.words.end
            told: dict[str, Any] = {"finish_reason": "stop" if has_ended else "length", "tokens": text.made}
            ttl_s = text.asked.parameters.session_ttl_s
            if ttl_s:
                kept = [token for token in text.tokens if token != model.words.end][-model.window :]
                until_ns = time.monotonic_ns() + ttl_s * 1_000_000_000
                told["session"] = self._sealer.seal(_State(model.digest, model.name, kept, until_ns))
            yield self._row(text, "", {**told, "triton_final_response": True})
        except OipError:
            self.counters["text_given_up"] += 1
            raise
        finally:
            if model.resident is not None:
                residency.release(model.resident)

    def _row(self, text: _Text, piece: str, told: Mapping[str, Any]) -> dict[str, Any]:
        by = {"lender": text.lenders[-1]} if text.lenders[-1] else {}
        return {
            "model_name": f"{text.model.name}.text", "model_version": text.model.digest, "id": text.asked.id,
            "text_output": piece, "parameters": {**told, **by},
        }  # fmt: skip

    async def _more(self, text: _Text) -> list[int]:
        """The next tokens, at least one; raises `OipError` where nobody has made any in time."""
        pause_s = _PAUSE_S
        for turn in range(_FAILURES_MAX):
            try:
                # A lender that was slow once is taken to be for ten seconds: each failure doubles the time of a turn.
                found, lender = await self._ask(text, self._deadline_ms << turn)
            except OipError as error:
                # What does not fit, fits nobody. What has not begun is refused at once where nobody offers it, or this
                # device alone is busy, so that the program may choose; a lender that has not answered in one turn may
                # in the next, as over a lossy radio.
                left_s = (text.until_ns - time.monotonic_ns()) / 1e9
                may_begin = bool(text.made) or (isinstance(error, NobodyError) and error.may_retry)
                is_final = error.status not in (503, 504) or not may_begin or left_s <= pause_s
                if is_final or turn == _FAILURES_MAX - 1:
                    raise
                self.counters["text_asked_again"] += 1
                text.chunk = 1
                await asyncio.sleep(pause_s)
                pause_s *= 2
                continue
            if not text.lenders or text.lenders[-1] != lender:
                self.counters["text_moved"] += bool(text.lenders)
                text.lenders.append(lender)
            self.counters["text_lent"] += bool(lender)
            text.chunk = min(2 * text.chunk, CHUNK_TOKENS)
            return found
        raise AssertionError

    async def _ask(self, text: _Text, turn_ms: int) -> tuple[list[int], str]:
        """The next tokens and who made them, a lender in `turn_ms`, or "" for this device."""
        wishes, model = text.asked.parameters, text.model
        steps = min(text.chunk, wishes.max_tokens - text.made)
        inputs: Tensors = {
            "tokens": np.array(text.tokens[-model.window :], np.int32),
            "steps": np.array([steps], np.int32),
            "seed": np.array([wishes.seed * TOKENS_MAX + text.made], np.int64),
            "temperature": np.array([wishes.temperature], np.float32),
        }
        left_ms = _left_ms(text.until_ns, TIMEOUT_MAX_MS)
        is_busy = False
        if model.resident is not None and text.is_here:
            run = model.resident.service.steps(TEXT, inputs)
            priority, size_bytes = _PRIORITIES[wishes.priority], sum(one.nbytes for one in inputs.values())
            try:
                outputs = await self._device.run_steps(
                    model.resident, TEXT, run, size_bytes, priority, text.until_ns
                )  # fmt: skip
            except OipError as error:
                if error.status != 503 or not text.may_leave:
                    raise
                is_busy = True
            else:
                return outputs["tokens"].tolist(), ""
        return await self._there(text, inputs, steps, min(left_ms, turn_ms), is_busy)

    async def _there(
        self, text: _Text, inputs: Tensors, steps: int, left_ms: int, is_busy: bool
    ) -> tuple[list[int], str]:
        elsewhere, model, made = self._device.elsewhere, text.model, list[int]()
        assert elsewhere is not None
        own = None
        if model.resident is not None:
            own = Own(model.resident, TEXT, Question("", inputs, _WANTED, 0, 0), steps, is_busy)

        told = model.told

        def is_sound(found: Found) -> bool:
            made[:] = _tokens_of(found, steps, len(model.words.pieces), model.words.end)
            if made and told is not None:
                told.is_borne_out |= found.lender != told.by
            # Where one lender's tokens are none of a vocabulary that another alone has told, either may have lied.
            is_open = told is not None and not told.is_borne_out and found.lender != told.by
            return bool(made) or (is_open and bool(_numbers_of(found, steps)))

        body, json_bytes = write_question(inputs, left_ms * 1000)
        errand = Errand(
            model.digest, INFER, TEXT, json_bytes, body, steps, left_ms,
            is_patient=not text.made,  # Later there is something better to do: to ask for less.
        )  # fmt: skip
        try:
            found = await elsewhere.ask(errand, own, is_sound)
        except OipError as error:
            if error.status == 400:  # It does not fit what was told of the model: whoever is asked next may say more.
                self._known.pop(model.digest, None)
            raise
        if not found.lender:
            made[:] = _tokens_of(found, steps, len(model.words.pieces), model.words.end)
        if not made:
            self._known.pop(model.digest, None)
            raise OipError(502, "two lenders say different things of the model's words; ask again")
        return made, found.lender


def _numbers_of(found: Found, steps: int) -> list[int]:
    """The tokens of an answer that has its form, of whatever vocabulary; none: it has not."""
    try:
        tokens = read_answer(found.body, found.json_bytes).get("tokens")
    except OipError:
        return []
    if tokens is None or tokens.dtype != np.int32 or tokens.ndim != 1 or len(tokens) > steps:
        return []
    made: list[int] = tokens.tolist()
    return made


def _tokens_of(found: Found, steps: int, words: int, end: int) -> list[int]:
    """What an answer goes on with: as many tokens as were asked for, or fewer with the end last; none: it is no use."""
    made = _numbers_of(found, steps)
    is_whole = len(made) == steps or (0 < len(made) < steps and made[-1] == end)
    return made if is_whole and all(0 <= token < words for token in made) and end not in made[:-1] else []


def _vocabulary(labels: list[str], end: str) -> Vocabulary:
    try:
        return Vocabulary(labels, end)
    except ArtefactError as error:
        raise OipError(502, str(error)) from error


def _left_ms(until_ns: int, most_ms: int) -> int:
    left_ms = (until_ns - time.monotonic_ns()) // 1_000_000
    if left_ms < 1:
        raise late()
    return min(left_ms, most_ms)


async def _events(first: dict[str, Any], rows: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Server-sent events; what goes wrong on the way is the last of them."""
    yield event_of(first)
    try:
        async for row in rows:
            yield event_of(row)
    except OipError as error:
        yield event_of({"error": str(error), "status": error.status})
    finally:
        close = getattr(rows, "aclose", None)
        if close is not None:
            await close()


def event_of(row: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(row) + b"\n\n"


def row_of(event: bytes) -> dict[str, Any]:
    """What one says."""
    row: dict[str, Any] = msgspec.json.decode(event[len(b"data: ") :])
    return row
