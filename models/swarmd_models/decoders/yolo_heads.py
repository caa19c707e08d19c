"""Which head of the YOLO family a tensor is: told by how many boxes it has, how many numbers a box, and the labels.

A head without anchors answers once for every cell of its grids, one with anchors three times: at 640 x 640 and the
strides 8, 16, 32 that is 8,400 or 25,200 boxes. Every way to read the shape that fits the number of labels is a
reading; where none or several are left the model is refused, and the sentence names them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from swarmd_models.backends.base import TensorSpec
from swarmd_models.errors import ArtefactError

NAMES = {
    "v8": "YOLOv8 or 11",
    "v5": "YOLOv5 or 7 with anchors",
    "v6": "YOLOv6, or YOLOX exported with decoding",
    "yolox": "YOLOX as its grid answers",
    "obb": "oriented boxes",
    "pose": "a pose head",
    "end2end": "a head with NMS inside",
}
_GRIDS = ((8, 16, 32), (4, 8, 16, 32), (8, 16, 32, 64), (16, 32))
"""Strides that the family is trained at: the usual ones, with a finer grid (p2), a coarser one (p6), the tiny ones."""
_ANCHORS = 3
"""Of a cell, in YOLOv3, v5 and v7."""
MAX_FINAL_BOXES = 1000
"""Rows of a head with NMS inside; exporters write 100 or 300."""
_FINAL_NUMBERS = 6
"""Of such a row: left, top, right, bottom, score, class."""
MAX_SCORE_STEP = 1 / 20
"""Of a quantised output: a coarser step than this cannot carry scores from 0 to 1."""


@dataclass(frozen=True, slots=True)
class YoloHead:
    """One reading of a tensor."""

    kind: str
    """One of the bundle's `HEADS`, not "auto"."""
    output: int
    """Which of the model's outputs it is."""
    rows_are_boxes: bool
    boxes: int
    classes: int
    masks: int = 0
    """Numbers of a box that belong to a mask; they are not read."""
    strides: tuple[int, ...] = ()

    @property
    def first_class(self) -> int:
        """Where in a box's numbers the classes begin."""
        return 5 if self.kind in ("v5", "v6", "yolox") else 4

    def __str__(self) -> str:
        """For people."""
        masks = ", with masks, of which only the boxes are used" if self.masks else ""
        of_classes = f", {self.classes} classes" if self.classes else ""
        return f"{NAMES[self.kind]} ({self.boxes:,} boxes{of_classes}{masks})"


def read_head(
    outputs: Sequence[TensorSpec],
    labels: int,
    size: tuple[int, int],
    kinds: Sequence[str] = (),
    strides: Sequence[int] = (),
) -> YoloHead:
    """The only reading of the outputs as a YOLO head.

    Args:
        outputs: Of the model.
        labels: Their number; >= 0.
        size: Width and height of the input, pixels.
        kinds: Of the bundle's `HEADS`, what the bundle or the file says it is; empty: nothing is said.
        strides: Of the grids, where they are not the family's.

    Raises:
        ArtefactError: No reading fits, or several do; the sentence names them and says what would help.
    """
    output, masks = _tensors(outputs, size)
    spec = outputs[output]
    readings = _readings(spec.shape, output, masks, labels, size, kinds, strides)
    if kinds:
        readings = [one for one in readings if one.kind in kinds]
    fitting = [one for one in readings if one.kind == "end2end" or one.classes == labels]
    if len(fitting) == 1:
        _check_steps(spec, fitting[0])
        return fitting[0]
    if fitting:
        raise ArtefactError(_several(spec, labels, readings, fitting))
    raise ArtefactError(_none(spec, labels, size, kinds, readings))


def is_like_yolo(outputs: Sequence[TensorSpec], size: tuple[int, int]) -> bool:
    """Whether a model could be of this family at all, so that `read_head` has the better word for what is wrong."""
    try:
        output, masks = _tensors(outputs, size)
    except ArtefactError:
        return False
    _, a, b = outputs[output].shape
    return bool(_grids_of(a, size, ()) or _grids_of(b, size, ()) or masks or _is_final(a, b, size))


def _tensors(outputs: Sequence[TensorSpec], size: tuple[int, int]) -> tuple[int, int]:
    """Index of the boxes' output, and the numbers of a box that belong to masks."""
    boxes = [index for index, spec in enumerate(outputs) if len(spec.shape) == 3 and spec.shape[0] == 1]
    if len(outputs) == 1 and boxes:
        return boxes[0], 0
    if len(outputs) == 2 and len(boxes) == 1:
        shape = outputs[1 - boxes[0]].shape
        quarter = (size[1] // 4, size[0] // 4)
        if len(shape) == 4 and quarter in (shape[1:3], shape[2:4]):
            return boxes[0], shape[3] if shape[1:3] == quarter else shape[1]
    said = ", ".join(str(spec.shape) for spec in outputs)
    raise ArtefactError(f"a YOLO head has one output, or a second one of masks; this model has {len(outputs)} ({said})")


def _cells(strides: Sequence[int], size: tuple[int, int]) -> int:
    return sum(-(-size[0] // s) * -(-size[1] // s) for s in strides)


def _grids_of(boxes: int, size: tuple[int, int], own: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Boxes a cell (1 or 3) to strides, for every grid that has this many boxes."""
    found: dict[int, tuple[int, ...]] = {}
    for strides in (tuple(own), *_GRIDS) if own else _GRIDS:
        cells = _cells(strides, size)
        for each in (1, _ANCHORS):
            if boxes == each * cells:
                found.setdefault(each, strides)
    return found


def _is_final(a: int, b: int, size: tuple[int, int]) -> bool:
    is_grid = _grids_of(a, size, ()) or _grids_of(b, size, ())
    return a <= MAX_FINAL_BOXES and b >= _FINAL_NUMBERS and not is_grid


def _readings(
    shape: tuple[int, ...],
    output: int,
    masks: int,
    labels: int,
    size: tuple[int, int],
    kinds: Sequence[str],
    own: Sequence[int],
) -> list[YoloHead]:
    _, a, b = shape
    found: list[YoloHead] = []
    for boxes, numbers, rows in ((a, b, True), (b, a, False)):
        for each, strides in _grids_of(boxes, size, own).items():
            for kind, before in _kinds(each, masks, "pose" in kinds):
                classes = labels if kind == "pose" else numbers - before - masks
                after = numbers - 4 - labels
                if classes >= 1 and (kind != "pose" or (after > 0 and (after % 3 == 0 or after % 2 == 0))):
                    found.append(YoloHead(kind, output, rows, boxes, classes, masks, strides))
    more = b - _FINAL_NUMBERS - masks
    is_pose = "pose" in kinds and more > 0 and (more % 3 == 0 or more % 2 == 0)
    if _is_final(a, b, size) and (more == 0 or is_pose or tuple(kinds) == ("end2end",)):
        found.append(YoloHead("end2end", output, True, a, 0, masks))
    return found


def _kinds(each: int, masks: int, may_be_pose: bool) -> list[tuple[str, int]]:
    """Kinds of head with so many boxes a cell, and the numbers of a box that are no classes."""
    if each == _ANCHORS:
        return [("v5", 5)]
    if masks:
        return [("v8", 4)]
    pose = [("pose", 4)] if may_be_pose else []
    return [("v8", 4), ("v6", 5), ("yolox", 5), ("obb", 5), *pose]


def _check_steps(spec: TensorSpec, head: YoloHead) -> None:
    if spec.is_quantised and spec.scale > MAX_SCORE_STEP:
        raise ArtefactError(
            f"output {spec.name} carries boxes in pixels and scores from 0 to 1 on one scale of steps of "
            f"{spec.scale:.3g}: no score is left in it. Export with boxes as fractions of the input, with float "
            f"outputs, or with boxes and scores apart (read as {head})"
        )


def _several(spec: TensorSpec, labels: int, readings: Sequence[YoloHead], fitting: Sequence[YoloHead]) -> str:
    names = [f"{one.kind} ({NAMES[one.kind]})" for one in fitting]
    others = dict.fromkeys(f"{NAMES[one.kind]} with {one.classes} classes" for one in readings if one not in fitting)
    more = f"; it would also be {', '.join(others)}, were the labels of another number" if others else ""
    return (
        f"output {spec.name} {spec.shape} with {labels} labels can be read as {', as '.join(names)}{more}. Say which "
        "in a bundle: head = … under [decode]"
    )


def _none(
    spec: TensorSpec, labels: int, size: tuple[int, int], kinds: Sequence[str], readings: Sequence[YoloHead]
) -> str:
    told = dict.fromkeys(f"{one.classes} classes as {NAMES[one.kind]}" for one in readings if one.classes != labels)
    said = f" ({', '.join(NAMES[kind] for kind in kinds)}, by what is said of it)" if kinds else ""
    if told:
        return (
            f"output {spec.name} {spec.shape} tells {', or '.join(told)}{said}; there are {labels} labels. Check the "
            "labels, one for each class"
        )
    usual = ", ".join(f"{each * _cells(_GRIDS[0], size):,}" for each in (1, _ANCHORS))
    return (
        f"output {spec.name} {spec.shape} fits no YOLO head{said}: at {size[0]}x{size[1]} one has {usual} boxes (or "
        "those of other strides), or ends in rows of 6 numbers after its own NMS, with 4 (v8, 11) or 5 (v5) numbers "
        f"beside one for each of the {labels} labels. RT-DETR and others have no decoder here; check the labels"
    )
