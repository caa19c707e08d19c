"""A model in parts, some of which run on other devices: the models of `lending.split`, walked.

```
 tensor ─▶ part here ─▶ what lies at a cut ─▶ part at a lender ─▶ … ─▶ outputs
 picture ─ fitted here ┘                                               └ read here: detections
```

Which parts run where, and what becomes of one that brings nothing, is decided by `swarmd_protocols.offload.shards`
from measured times; which lender runs a lent part, by the dispatcher, from their offers. What lies at a cut travels as
any request does, packed (`coding.py`), from worker to worker where there is a lane, and is the whole's to the bit: a
part computes what the whole does. What comes back counts only with the names, types and shapes that the file says, and
with finite numbers; a lender that answers otherwise is held to have answered wrong, and another is asked.

Between two lent parts of which this device has neither, the tensor goes on by itself: the first lender keeps it, and
says where under its signature; the second fetches it there (`outbox.py`), in half of the time that is left. Where it
does not arrive, this device fetches it, or has it computed again from what it still holds, and for a while all tensors
come here first, as those always do of a device that has the part itself and could hold them against its own.
"""

import asyncio
import math
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from swarmd.worker.answers import JSON, LENDER_HEADER, PARTS_HEADER, binary, json_answer, late
from swarmd.worker.batcher import LOW, Batcher
from swarmd.worker.borrowing import NobodyError, judge_copies
from swarmd.worker.elsewhere import TIMEOUT_MAX_MS, UNITS_MAX, Elsewhere, Errand, Far, Found, Own, json_length
from swarmd.worker.http_server import Answer, Call
from swarmd.worker.leaving import FEATURES, FRAMES
from swarmd.worker.lent import INFER, KEY_BYTES, PASSED_ON
from swarmd.worker.oip import (
    DATATYPES,
    OipError,
    Question,
    Wanted,
    port_row,
    read_answer,
    read_question,
    write_answer,
    write_question,
)
from swarmd.worker.residency import SUFFIX, NotResidentError, Residency, Resident
from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ModelError
from swarmd_models.service import DETECT, GRAPH, Port, Run, Tensors
from swarmd_models.toml_reader import parse_toml
from swarmd_protocols.offload.shards import CHAIN_MAX, Part, Parts, Shards, Step, Walk

SPLITS_MAX = 16
"""Of one file: as many bundles as may be served."""
_TENSORS_MAX = 8
"""At one position; only the last has more than one."""
_DIGEST_CHARS = 64
_HEAD_BYTES = 4096
"""What stands beside the tensors of a question, at most."""
_SIZE_MAX_BYTES = 64 << 20
"""At a position: what the lane carries."""


class _Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    datatype: str
    shape: list[int]


class _At(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bytes: int
    tensors: list[_Tensor]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    begin: int
    end: int


class _Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    model: str
    at: list[_At]
    part: list[_Part]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    split: list[_Split]


@dataclass(frozen=True, slots=True)
class Split:
    """One model in parts.

    Attributes:
        name: As programs ask for it.
        digest: Of the whole.
        ports: Tensors at each position; the first are the graph's inputs, the last its outputs.
        parts: Which there are.
    """

    name: str
    digest: str
    ports: tuple[tuple[Port, ...], ...]
    parts: Parts


class NoNumberError(OipError):
    """What came out is of the right form, and no number."""


class SplitError(Exception):
    """A file of models in parts cannot be used; the message names it, what is wrong and the remedy."""


def read_splits(path: str) -> dict[str, Split]:
    """The models of a file, by the digest of the whole; raises `SplitError`."""
    try:
        file = msgspec.convert(parse_toml(Path(path).read_text("utf-8")), _File, strict=False)
        if len(file.split) > SPLITS_MAX:
            raise ValueError(f"{len(file.split)} models; at most {SPLITS_MAX}")
        splits = [_split(one, Path(path).parent) for one in file.split]
        found = {one.digest: one for one in splits}
        if len(found) != len(splits) or len({one.name for one in splits}) != len(splits):
            raise ValueError("two models have the same name or digest")
    except (OSError, ValueError, ModelError) as error:  # What msgspec and `parse_toml` raise are `ValueError`s.
        reason = error.strerror if isinstance(error, OSError) else error
        raise SplitError(f"lending.split {path}: {reason} (`swarmd bundle cut` writes one)") from error
    return found


def _split(one: _Split, folder: Path) -> Split:
    if not 2 <= len(one.at) <= CHAIN_MAX + 1:
        raise ValueError(
            f"{one.name} has {len(one.at)} [[split.at]]; input, cuts and outputs make 2 to {CHAIN_MAX + 1}"
        )
    for at in one.at:
        if not (1 <= len(at.tensors) <= _TENSORS_MAX and 0 <= at.bytes <= _SIZE_MAX_BYTES):
            raise ValueError(f"{one.name}: a position has 1 to {_TENSORS_MAX} tensors of {_SIZE_MAX_BYTES >> 20} MiB")
        for tensor in at.tensors:
            is_known = tensor.datatype in DATATYPES and tensor.datatype != "BYTES"
            if not is_known or not 0 < len(tensor.shape) <= 7 or not all(0 < n < 1 << 20 for n in tensor.shape):
                raise ValueError(f"{one.name}: the tensor {tensor.name} is {tensor.datatype} {tensor.shape}")
    if any(len(at.tensors) != 1 for at in one.at[:-1]):
        raise ValueError(f"{one.name}: the input and each cut are one tensor")
    ports = tuple(
        tuple(Port(tensor.name, (-1, *tensor.shape), DATATYPES[tensor.datatype]) for tensor in at.tensors)
        for at in one.at
    )
    parts = tuple(Part(bytes.fromhex(_digest(part.model, folder)), part.begin, part.end) for part in one.part)
    return Split(one.name, _digest(one.model, folder), ports, Parts(tuple(at.bytes for at in one.at), parts))


def _digest(model: str, folder: Path) -> str:
    """Of a bundle that is named by its digest, by its name in the zoo, or by a path from the file."""
    if len(model) == _DIGEST_CHARS and set(model) <= set("0123456789abcdef"):
        return model
    return load_bundle(model if model.startswith("zoo:") else folder / model).digest


class Device(Protocol):
    """What walks need of the worker (`InferenceApi`)."""

    residency: Residency
    batcher: Batcher
    elsewhere: Elsewhere | None

    async def run_steps(
        self, resident: Resident, lane: str, run: Run, size_bytes: int, priority: int, deadline_ns: int
    ) -> Tensors:
        """Have a model that is here do something; raises `OipError`."""
        ...


class Splitting:
    """Walks models in parts for programs of this device."""

    def __init__(self, splits: Mapping[str, Split], device: Device, deadline_ms: int) -> None:
        """Put the parts together.

        Args:
            splits: By the digest of the whole.
            device: What runs here and who runs the rest.
            deadline_ms: Of requests that name none.
        """
        self._splits = splits
        self._device = device
        self._deadline_ms = deadline_ms
        self._shards = {digest: Shards(split.parts) for digest, split in splits.items()}
        self.counters: Counter[str] = Counter()
        """Parts by what became of them: split_own, split_lent, split_failed; walks: split_walks, split_unanswered;
        tensors: split_handed (they went from lender to lender), split_unhanded (they did not arrive so), split_brought
        (of these, fetched here); split_bytes: of lent parts, what went out from here and came in."""

    async def handle(
        self, call: Call, name: str, version: str, rest: list[str], priorities: Mapping[int, int]
    ) -> Answer:
        """Answer a program that lets a model run in parts; raises `OipError`."""
        split = self._find(name.removesuffix(SUFFIX), version)
        is_picture = name.endswith(SUFFIX)
        whole = self._whole(split, DETECT) if is_picture else None
        inputs = split.ports[0] if whole is None else whole.service.inputs(DETECT)
        outputs = split.ports[-1] if whole is None else whole.service.outputs(DETECT)
        match call.method, rest:
            case "GET" | "HEAD", []:
                row = {"name": name, "versions": [split.digest], "platform": "swarmd_split"}
                return json_answer(
                    row | {"inputs": list(map(port_row, inputs)), "outputs": list(map(port_row, outputs))}
                )
            case "POST", ["infer"]:
                pass
            case _:
                raise OipError(405, "GET a model's metadata, or POST `infer`, where it runs in parts")
        question = read_question(call.body, json_length(call), inputs, outputs)
        judge_copies(call, question.copies)
        left_ms = min(TIMEOUT_MAX_MS, question.timeout_us // 1000) or self._deadline_ms
        began_ns = time.monotonic_ns()
        walker = _Walker(self, split, began_ns + left_ms * 1_000_000, priorities[question.priority])
        self.counters["split_walks"] += 1
        try:
            found = await (
                walker.go(question.inputs) if whole is None else walker.look(whole, question.inputs["image"])
            )
        except OipError:
            self.counters["split_unanswered"] += 1
            raise
        return _answer(name, split, question, found, walker, (time.monotonic_ns() - began_ns) // 1000)

    def _find(self, name: str, version: str) -> Split:
        for split in self._splits.values():
            if version in (split.digest, "") and (name == split.name or version):
                return split
        known = ", ".join(split.name for split in self._splits.values())
        raise OipError(404, f"no model {name[:80]!r} of this version is in lending.split; there are {known or 'none'}")

    def _whole(self, split: Split, lane: str) -> Resident:
        """The whole as it is served here: who reads a picture needs what the bundle says about it."""
        try:
            whole = self._device.residency.by_digest(split.digest, lane)
        except NotResidentError as error:
            raise OipError(
                404, f"pictures are read by the whole bundle {split.name}, which is not served here; send its tensors"
            ) from error
        if not _fits(whole, split, 0, split.parts.end):
            raise OipError(
                400, f"{split.name} runs here in {whole.service.backend.kind}, whose tensors are not those of its "
                "parts; set inference.backends to the runtime of the parts, such as onnx"
            )  # fmt: skip
        return whole


class _Walker:
    """One request."""

    def __init__(self, splitting: Splitting, split: Split, until_ns: int, priority: int) -> None:
        self._all = splitting
        self._split = split
        self._until_ns = until_ns
        self._priority = priority
        self.parts: list[str] = []
        """Digests of the parts that have answered."""
        self.lenders: list[str] = []
        self._is_lent = False
        """What is held came of a lender's part."""

    async def look(self, whole: Resident, image: Any) -> Tensors:
        """A picture, fitted and read here; raises `OipError`."""
        service, run = whole.service, self._all._device.run_steps
        fitted = await run(whole, "fit", service.fit(image), image.nbytes, self._priority, self._until_ns)
        outputs = await self.go(fitted)
        return await run(whole, "read", service.read(image, outputs), image.nbytes, self._priority, self._until_ns)

    async def go(self, held: Tensors) -> Tensors:
        """The outputs; raises `OipError` where no way has brought them in time."""
        (first,) = held.values()
        units = len(first)
        if units > UNITS_MAX:
            raise OipError(400, f"the request has {units} items; at most {UNITS_MAX} in one")
        shards = self._all._shards[self._split.digest]
        walk, far, held_at = Walk(shards, self._until_ns), None, 0
        while (step := walk.next_step(self._own_ns(units), time.monotonic_ns())) is not None:
            try:
                if far is not None and step.is_own:
                    held, far, held_at = await self._bring(far, step.part.begin, units), None, step.part.begin
                if step.is_own:
                    held = await self._here(step, held)
                else:
                    found = await self._there(shards, step, units, far or held, walk)
                    held, far = (held, found) if isinstance(found, Far) else (found, None)
            except OipError as error:
                # A part that nobody offers says nothing of the way on which what is held would have gone there.
                if far is not None and not (isinstance(error, NobodyError) and not error.may_retry):
                    held, held_at = await self._recover(shards, walk, far, (held, held_at), units)
                    far = None
                    continue
                if error.status == 400:
                    raise
                self._all.counters["split_failed"] += 1
                walk.on_failed(step, time.monotonic_ns())
                continue
            walk.on_done(step)
            held_at = held_at if far is not None else step.part.end
            self.parts.append(step.part.digest.hex())
        if walk.is_through and far is None:
            return held
        if time.monotonic_ns() >= self._until_ns:
            raise late()
        raise OipError(503, f"no device has run {self._split.name} from position {walk.position} on")

    def _own_ns(self, units: int) -> dict[bytes, int]:
        """What the parts that are here take, behind what waits."""
        batcher = self._all._device.batcher
        return {
            part.digest: batcher.unit_ns(part.digest.hex()) * units + batcher.own_ns
            for part in self._split.parts.parts if self._resident(part) is not None
        }  # fmt: skip

    def _resident(self, part: Part) -> Resident | None:
        try:
            found = self._all._device.residency.by_digest(part.digest.hex(), GRAPH)
        except NotResidentError:
            return None
        return found if _fits(found, self._split, part.begin, part.end) else None

    async def _here(self, step: Step, held: Tensors) -> Tensors:
        resident = self._resident(step.part)
        if resident is None:
            raise OipError(503, "the part has just gone")
        size_bytes = sum(array.nbytes for array in held.values())
        run = resident.service.steps(GRAPH, held)
        found = await self._all._device.run_steps(resident, GRAPH, run, size_bytes, self._priority, step.until_ns)
        self._all.counters["split_own"] += 1
        return found

    async def _there(self, shards: Shards, step: Step, units: int, held: Tensors | Far, walk: Walk) -> Tensors | Far:
        """What a lender makes of what is held, here or at another lender; it may keep it for the next."""
        counters, part = self._all.counters, step.part
        began_ns = time.monotonic_ns()
        left_ms = (step.until_ns - began_ns) // 1_000_000
        far = held if isinstance(held, Far) else None
        body, json_bytes = b"", 0
        if isinstance(held, Far):
            left_ms //= 2  # The rest is for the other way.
        else:
            body, json_bytes = write_question(held, left_ms * 1000)
        if left_ms < 1:
            raise late()
        resident, own = self._resident(part), None
        if resident is not None and not isinstance(held, Far):
            wanted = tuple(Wanted(port.name, True) for port in self._split.ports[part.end])
            own = Own(resident, GRAPH, Question("", held, wanted, 0, 0), units, False)
        may_keep = step.goes_on and resident is None and shards.may_hand_on(began_ns) and self._has_none(part.end)
        outputs: dict[str, Any] = {}

        def is_sound(found: Found) -> bool | None:
            if found.far is not None:
                return 0 < found.far.kept.size_bytes <= _most_bytes(self._split.ports[part.end], units)
            try:
                outputs.update(_judged(read_answer(found.body, found.json_bytes), self._split.ports[part.end], units))
            except NoNumberError:
                # Of numbers that another lender made: either may be at fault.
                return None if self._is_lent or far is not None else False
            except OipError:
                return False
            return True

        errand = Errand(
            part.digest.hex(), INFER, GRAPH, json_bytes, body, units, left_ms,
            # A lane that nobody reaches is not tried twice.
            by_lane=not walk.failures, is_patient=not (step.has_own_rest or far),
            keep_key=secrets.token_bytes(KEY_BYTES) if may_keep else b"",
            keep_bytes=_most_bytes(self._split.ports[part.end], units), far=far,
            lets_out=FEATURES if part.begin else FRAMES, priority=min(self._priority, LOW),
        )  # fmt: skip
        elsewhere = self._all._device.elsewhere
        assert elsewhere is not None
        try:
            found = await elsewhere.ask(errand, own, is_sound)
        except NobodyError:
            raise
        except OipError as error:
            # Also where a lender says that the request does not fit: it came from a part, and another may take it.
            if may_keep and error.status in PASSED_ON:
                shards.note_unhanded(time.monotonic_ns())  # An older lender knows no request to keep anything.
            raise OipError(503, str(error)) from error
        if not found.lender:
            outputs.update(_judged(read_answer(found.body, found.json_bytes), self._split.ports[part.end], units))
        took_ns, now_ns = time.monotonic_ns() - began_ns, time.monotonic_ns()
        if found.lender:
            ran_ns = _ran_ns(found) if found.far is None else found.far.kept.took_us * 1000
            if far is None:
                shards.note_lent(part, len(body) + len(found.body), took_ns, ran_ns, now_ns)
            else:
                shards.note_handed(part, ran_ns)
            if found.lender not in self.lenders:
                self.lenders.append(found.lender)
        counters["split_bytes"] += len(body) + len(found.body)
        counters["split_handed"] += far is not None
        if far is None:
            shards.note_size(part.begin, len(body))
        shards.note_size(part.end, len(found.body) if found.far is None else found.far.kept.size_bytes)
        counters["split_lent" if found.lender else "split_own"] += 1
        self._is_lent |= bool(found.lender) and found.far is None
        return outputs if found.far is None else found.far

    def _has_none(self, position: int) -> bool:
        """Whether no part that goes on from a position is here."""
        return not any(part.begin == position and self._resident(part) for part in self._split.parts.parts)

    async def _bring(self, far: Far, position: int, units: int) -> Tensors:
        """What a lender keeps, here; raises `OipError`."""
        elsewhere = self._all._device.elsewhere
        assert elsewhere is not None
        ports = self._split.ports[position]
        body = await elsewhere.bring(far)
        self._all.counters["split_brought"] += 1
        self._all.counters["split_bytes"] += len(body)
        try:
            found = _judged(dict(read_question(body, far.kept.json_bytes, ports, ports).inputs), ports, units)
            self._is_lent = True
            return found
        except OipError:
            elsewhere.judge(far.number, False)
            raise

    async def _recover(
        self, shards: Shards, walk: Walk, far: Far, held: tuple[Tensors, int], units: int
    ) -> tuple[Tensors, int]:
        """What is held after a tensor did not arrive at the next lender, and at which position."""
        self._all.counters["split_unhanded"] += 1
        shards.note_unhanded(time.monotonic_ns())
        try:
            left_ns = walk.deadline_ns - time.monotonic_ns()
            async with asyncio.timeout(left_ns / 2e9):
                return await self._bring(far, walk.position, units), walk.position
        except (OipError, TimeoutError):
            shards.note_unhanded(time.monotonic_ns())  # From now on: the wait may have been longer than the first bar.
            walk.on_lost(held[1])
            del self.parts[len(walk.done) :]
            return held


def _most_bytes(ports: Sequence[Port], units: int) -> int:
    """Of a question with these tensors: the next lender's ticket pays for what a place says, true or not."""
    return _HEAD_BYTES + units * sum(math.prod(port.shape[1:]) * port.dtype.itemsize for port in ports)


def _fits(resident: Resident, split: Split, begin: int, end: int) -> bool:
    """Whether a bundle here takes and gives what the file says lies at two positions."""
    service = resident.service
    return _are(service.inputs(GRAPH), split.ports[begin]) and _are(service.outputs(GRAPH), split.ports[end])


def _are(ports: Sequence[Port], wanted: Sequence[Port]) -> bool:
    return [(one.name, one.shape, one.dtype) for one in ports] == [(one.name, one.shape, one.dtype) for one in wanted]


def _judged(outputs: dict[str, Any], ports: Sequence[Port], units: int) -> dict[str, Any]:
    """What a lender gave, in the ports' order; raises `OipError` (502) where it is something else."""
    for port in ports:
        array = outputs.get(port.name)
        if array is None or array.dtype != port.dtype or array.shape != (units, *port.shape[1:]):
            raise OipError(502, f"the lender's answer holds no {port.name} of the wanted type and shape")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise NoNumberError(502, f"the lender's {port.name} holds what is no number")
    if len(outputs) != len(ports):
        raise OipError(502, "the lender's answer holds tensors that nobody wants")
    return {port.name: outputs[port.name] for port in ports}


class _Told(msgspec.Struct):
    parameters: dict[str, Any] = {}


_TOLD = msgspec.json.Decoder(_Told)


def _ran_ns(found: Found) -> int:
    """What the lender says that it took; 0 where it does not say."""
    try:
        took_us = _TOLD.decode(found.body[: found.json_bytes]).parameters.get("took_us", 0)
    except msgspec.MsgspecError:
        return 0
    return took_us * 1000 if type(took_us) is int and 0 <= took_us < 1 << 40 else 0


def _answer(name: str, split: Split, question: Question, found: Tensors, walker: _Walker, took_us: int) -> Answer:
    parts = ",".join(walker.parts)
    head = {"model_name": name, "model_version": split.digest, "id": question.id}
    pieces, json_bytes = write_answer(
        {**head, "parameters": {"parts": parts, "took_us": took_us}}, found, question.wanted
    )
    headers = [(PARTS_HEADER, parts), *([(LENDER_HEADER, ",".join(walker.lenders))] if walker.lenders else [])]
    return Answer(200, pieces, (*((JSON,) if json_bytes is None else binary(json_bytes)), *headers))
