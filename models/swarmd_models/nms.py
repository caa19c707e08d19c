"""Non-maximum suppression: of boxes that overlap, the best stays."""

from swarmd_models.decoders.base import Candidates
from swarmd_models.opencv import cv2


def suppress(candidates: Candidates, iou_threshold: float, limit: int, class_agnostic: bool) -> list[int]:
    """Indices of the boxes that stay, the best first.

    Args:
        candidates: Boxes with scores and classes.
        iou_threshold: Boxes that overlap more than this with a better one go.
        limit: At most this many stay.
        class_agnostic: Boxes of different classes suppress each other too.
    """
    scores = candidates.scores.tolist()
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    if candidates.is_final or len(order) <= 1:
        return order[:limit]
    # Python lists pass OpenCV's binding at half the cost of arrays.
    boxes = candidates.xywh.tolist()
    if class_agnostic:
        kept = cv2.dnn.NMSBoxes(boxes, scores, 0.0, iou_threshold)
    else:
        kept = cv2.dnn.NMSBoxesBatched(boxes, scores, candidates.classes.tolist(), 0.0, iou_threshold)
    chosen = {int(index) for index in kept}
    return [index for index in order if index in chosen][:limit]
