"""A picture that the own model is unsure about is asked of better ones: the plans of `lending.plan`, walked.

```
 own detections ─▶ one walk an object ── all sure ──────────────────────────────▶ they are the answer
                     │ some in doubt, and there is time
                     └─▶ the next step's bundle, for the whole picture ─▶ fused, object by object
```

Each object has its own walk (`swarmd_protocols.offload.cascade`): what is sure stays as it is, and only what is in
doubt is changed by what another model says. A picture in which the own model sees nothing counts as one object with
the score `missing`; so does an object for a model that does not see it. An object that only the asked model sees has
that model's word. A step that brings no answer leaves what was known, and what was known is answered in time.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from swarmd.worker.answers import JSON, LENDER_HEADER, PARTS_HEADER, binary
from swarmd.worker.elsewhere import Errand, Found, Own
from swarmd.worker.http_server import Answer
from swarmd.worker.leaving import CROPS, FRAMES, redacted
from swarmd.worker.oip import OipError, read_answer, write_answer, write_question
from swarmd_models.backends.base import Array
from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ModelError
from swarmd_models.service import Tensors
from swarmd_models.toml_reader import parse_toml
from swarmd_protocols.offload.cascade import STEPS_MAX, Plan, Step, Walk

PLANS_MAX = 16
"""Of one file: as many bundles as may be served."""
OBJECTS_MAX = 300
"""Of one answer that are looked at; the surest ones."""
_RESERVE = 0.1
"""Of the time left that a step may not use: what is known then is still answered in time."""
_SAME_IOU = 0.5
"""From which two boxes with one label are one object."""
_DIGEST_CHARS = 64


class _Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    low: float = 0.0
    high: float = 1.0
    keep: float = 0.0
    weight: float = 1.0
    offset: float = 0.0
    least_ms: int = 0


class _Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    own: str
    step: list[_Step]
    weight: float = 1.0
    offset: float = 0.0
    missing: float = 0.05
    report: float = 0.5


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    plan: list[_Plan]


@dataclass(frozen=True, slots=True)
class Asking:
    """A plan, and what is the walker's."""

    plan: Plan
    missing: float
    """Score of what a model does not see."""
    report: float
    """Fused confidence from which an object is in the answer."""


class PlanError(Exception):
    """A file of plans cannot be used; the message names it, what is wrong and the remedy."""


def read_plans(path: str) -> dict[str, Asking]:
    """The plans of a file, by the digest of the bundle that they begin with; raises `PlanError`."""
    try:
        file = msgspec.convert(parse_toml(Path(path).read_text("utf-8")), _File, strict=False)
        if len(file.plan) > PLANS_MAX:
            raise ValueError(f"{len(file.plan)} plans; at most {PLANS_MAX}")
        found = {_digest(one.own): _asking(one) for one in file.plan}
        if len(found) != len(file.plan):
            raise ValueError("two plans begin with the same bundle")
    except (OSError, ValueError, ModelError) as error:  # What msgspec and `parse_toml` raise are `ValueError`s.
        reason = error.strerror if isinstance(error, OSError) else error
        raise PlanError(f"lending.plan {path}: {reason} (docs/inference-api.md shows a plan)") from error
    return found


def _asking(one: _Plan) -> Asking:
    if not 1 <= len(one.step) <= STEPS_MAX:
        raise ValueError(f"a plan has 1 to {STEPS_MAX} [[plan.step]]; this one of {one.own} has {len(one.step)}")
    for share, name in ((one.missing, "missing"), (one.report, "report")):
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"{name} is {share}; a score lies within 0 and 1")
    for step in one.step:
        numbers = (step.low, step.high, step.keep, step.weight, step.offset, one.weight, one.offset)
        if not (0.0 <= step.low <= step.high <= 1.0 and np.isfinite(numbers).all() and 0 <= step.least_ms <= 60_000):
            raise ValueError(f"the step {step.model}: 0 <= low <= high <= 1 and 0 <= least_ms <= 60000 are wanted")
    steps = tuple(
        Step(
            bytes.fromhex(_digest(step.model)), step.low, step.high, step.keep, step.weight, step.offset,
            step.least_ms * 1_000_000,
        )
        for step in one.step
    )  # fmt: skip
    own = Step(bytes.fromhex(_digest(one.own)), weight=one.weight, offset=one.offset)
    return Asking(Plan(own, steps), one.missing, one.report)


def _digest(model: str) -> str:
    """Of a bundle as a plan names it: by 64 hexadecimal digits, or as `eye.model` does."""
    if len(model) == _DIGEST_CHARS and set(model) <= set("0123456789abcdef"):
        return model
    return load_bundle(model).digest


@dataclass(slots=True)
class Seen:
    """One object of a picture."""

    box: Array
    label: str
    walk: Walk


@dataclass(slots=True)
class Scene:
    """What is known of one picture."""

    asking: Asking
    objects: list[Seen] = field(default_factory=list)
    empty: Walk | None = None
    """Of a picture in which nothing has been seen."""
    parts: list[str] = field(default_factory=list)
    """Digests of the bundles whose answers are in it."""
    _due: set[bytes] = field(default_factory=set)
    """Whom some object wants to be asked, and who has not been."""

    def begin(self, digest: str, outputs: Tensors | None) -> None:
        """The own model has looked; None: it had no time."""
        if outputs is None:
            self.empty = Walk(self.asking.plan)
            return
        self.parts.append(digest)
        for box, label, score in _rows(outputs):
            self.objects.append(Seen(box, label, walk := Walk(self.asking.plan)))
            walk.add(bytes.fromhex(digest), score)
        if not self.objects:
            self.empty = Walk(self.asking.plan)
            self.empty.add(bytes.fromhex(digest), self.asking.missing)

    def wanted(self, left_ns: int) -> bytes | None:
        """Whom to ask next; None: nobody."""
        walks = [one.walk for one in self.objects] + ([] if self.empty is None else [self.empty])
        self._due |= {step.digest for walk in walks if (step := walk.next_step(left_ns)) is not None}
        order = [step.digest for step in self.asking.plan.steps]
        digest = min(self._due, key=order.index, default=None)
        self._due.discard(digest or b"")
        return digest

    def join(self, digest: bytes, outputs: Tensors) -> None:
        """Another model has looked."""
        self.parts.append(digest.hex())
        known = self.objects[:]
        boxes = np.array([one.box for one in known], np.float64).reshape(-1, 4)
        labels = np.array([one.label for one in known], object)
        is_free = np.ones(len(known), bool)
        for box, label, score in _rows(outputs):
            ious = np.where(is_free & (labels == label), _ious(boxes, box), 0.0)
            match = int(np.argmax(ious)) if len(known) else -1
            if match >= 0 and ious[match] >= _SAME_IOU:
                is_free[match] = False
                if known[match].walk.add(digest, score):
                    known[match].box = box
            else:
                self._learn(digest, box, label, score)
        for at in np.flatnonzero(is_free):
            known[at].walk.add(digest, self.asking.missing)
        if self.empty is not None:
            self.empty.add(digest, self.asking.missing)

    def outputs(self, labels: tuple[str, ...]) -> dict[str, Array]:
        """As the lane gives them; `labels` are the own bundle's."""
        told = [one for one in self.objects if one.walk.confidence >= self.asking.report]
        told.sort(key=lambda one: -one.walk.confidence)
        return {
            "boxes": np.array([one.box for one in told], np.float32).reshape(-1, 4),
            "scores": np.array([one.walk.confidence for one in told], np.float32),
            "classes": np.array([labels.index(one.label) if one.label in labels else -1 for one in told], np.int32),
            "labels": np.array([one.label for one in told], object),
        }

    def _learn(self, digest: bytes, box: Array, label: str, score: float) -> None:
        walk = Walk(self.asking.plan)
        while (step := walk.next_step(1 << 62)) is not None and step.digest != digest:
            pass
        walk.add(digest, score)
        self.objects.append(Seen(box, label, walk))


class Cascading:
    """Walks plans for programs of this device."""

    def __init__(
        self,
        plans: Mapping[str, Asking],
        run: Callable[[Own, int, int], Awaitable[Tensors]],
        ask: Callable[[Errand], Awaitable[Found]],
        leave: str = FRAMES,
    ) -> None:
        """Put the parts together.

        Args:
            plans: By the digest of the bundle that they begin with.
            run: Has the own model answer, at a priority, by a moment of the monotonic clock; raises `OipError`.
            ask: Has another device answer; raises `OipError`.
            leave: What of a picture may leave at most: one of `leaving.LEVELS`.
        """
        self._leave = leave
        self._plans = plans
        self._run = run
        self._ask = ask
        self.counters: Counter[str] = Counter()
        """cascade_sure, and steps by what came of them: cascade_asked, cascade_unheard."""

    async def answer(self, name: str, own: Own, errand: Errand, priority: int) -> Answer:
        """What goes back to the program; raises `OipError` as `look` does."""
        began_ns = time.monotonic_ns()
        outputs, parts, lenders = await self.look(own, errand, priority)
        took_us = (time.monotonic_ns() - began_ns) // 1000
        head = {"model_name": name, "model_version": own.resident.digest, "id": own.question.id}
        pieces, json_bytes = write_answer(
            {**head, "parameters": {"parts": ",".join(parts), "took_us": took_us}}, outputs, own.question.wanted
        )
        headers = [(PARTS_HEADER, ",".join(parts)), *([(LENDER_HEADER, ",".join(lenders))] if lenders else [])]
        return Answer(200, pieces, (*((JSON,) if json_bytes is None else binary(json_bytes)), *headers))

    def asks(self) -> list[str]:
        """Digests of all bundles that its plans may ask others for."""
        return sorted({step.digest.hex() for one in self._plans.values() for step in one.plan.steps})

    async def look(self, own: Own, errand: Errand, priority: int) -> tuple[dict[str, Array], list[str], list[str]]:
        """What is known of a picture at last, the bundles that have said so, and the devices that were asked.

        Raises:
            OipError: There is no plan (400), or nobody has answered (503, 504).
        """
        asking = self._plans.get(own.resident.digest)
        if asking is None:
            name = own.resident.service.bundle.name
            raise OipError(400, f"no plan of lending.plan begins with {name}, whose digest is {own.resident.digest}")
        until_ns = time.monotonic_ns() + errand.left_ms * 1_000_000
        scene, lenders, is_sure = Scene(asking), list[str](), True
        try:
            scene.begin(own.resident.digest, await self._run(own, priority, until_ns))
        except OipError as error:
            if error.status != 503:
                raise
            scene.begin(own.resident.digest, None)
        while (digest := scene.wanted(left_ns := until_ns - time.monotonic_ns())) is not None:
            is_sure = False
            left_ms = int(left_ns * (1.0 - _RESERVE)) // 1_000_000
            try:
                errand = self._as_allowed(errand, own, scene)
                found = await self._ask(replace(errand, digest=digest.hex(), left_ms=left_ms))
                outputs = _judged(read_answer(found.body, found.json_bytes))
            except OipError:
                self.counters["cascade_unheard"] += 1
                continue
            self.counters["cascade_asked"] += 1
            scene.join(digest, outputs)
            if found.lender and found.lender not in lenders:
                lenders.append(found.lender)
        if not scene.parts:
            raise OipError(503, "neither this device nor another has had time for the picture")
        self.counters["cascade_sure"] += is_sure
        return scene.outputs(own.resident.service.bundle.labels), scene.parts, lenders

    def _as_allowed(self, errand: Errand, own: Own, scene: Scene) -> Errand:
        """The picture as it may leave; raises `OipError` (403) where there is nothing in it that may."""
        if self._leave == FRAMES or errand.lets_out == CROPS:
            return errand
        if not scene.objects:
            raise OipError(403, "nothing is seen in the picture, and lending.leave lets no whole one leave")
        image = redacted(own.question.inputs["image"], np.array([one.box for one in scene.objects]))
        body, json_bytes = write_question({"image": image}, 0)
        return replace(errand, body=body, json_bytes=json_bytes, lets_out=CROPS)


def _judged(outputs: dict[str, Array]) -> dict[str, Array]:
    """An answer of another device's that can be fused; raises `OipError` (502)."""
    boxes, scores, labels = (outputs.get(name, np.zeros(0)) for name in ("boxes", "scores", "labels"))
    fits: Any = (
        boxes.ndim == 2 and boxes.shape[1] == 4 and len(boxes) == len(scores) == len(labels)
        and boxes.dtype.kind == scores.dtype.kind == "f" and scores.ndim == labels.ndim == 1
        and np.isfinite(boxes).all() and np.isfinite(scores).all() and labels.dtype.hasobject
    )  # fmt: skip
    if not fits:
        raise OipError(502, "the lender's answer holds no detections")
    return outputs


def _rows(outputs: Tensors) -> list[tuple[Array, str, float]]:
    """Box, label and score of each object, the surest first."""
    scores = outputs["scores"].astype(np.float64)
    order = np.argsort(-scores, kind="stable")[:OBJECTS_MAX]
    return [(outputs["boxes"][at], _text(outputs["labels"][at]), float(np.clip(scores[at], 0, 1))) for at in order]


def _text(label: Any) -> str:
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)


def _ious(boxes: Array, box: Array) -> Array:
    """Of each box with one: one call for all, since a lender may name 300 and each is held against each."""
    box = box.astype(np.float64)
    sides = np.minimum(boxes[:, 2:], box[2:]) - np.maximum(boxes[:, :2], box[:2])
    common = np.prod(np.clip(sides, 0.0, None), axis=1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) + np.prod(box[2:] - box[:2])
    shares: Array = common / np.maximum(areas - common, 1e-9)
    return shares
