"""What a frame costs in memory, by stage: bytes that are written into standing buffers, and bytes newly allocated.

From the camera to the net's input a picture is written twice, both times into buffers that are made once: resized into
the letterbox canvas, and quantised from there into the input tensor itself. Nothing else of its size may be made, and
`tests/unit/test_eye_bench_infer.py` holds the stages to it.
"""

import tracemalloc
from collections.abc import Callable
from typing import Any

from swarmd_models.detector import Detector
from swarmd_models.types import Image

STAGES = ("preprocess", "infer", "decode", "second")
"""Those that handle pictures and tensors."""


def by_stage(detector: Detector, frame: Image) -> dict[str, dict[str, int]]:
    """Bytes of one frame, once everything is warm.

    Args:
        detector: Loaded; it is left as it was.
        frame: Shown twice, measured the second time.

    Returns:
        For each stage `allocated`: the most that Python and NumPy (OpenCV's pictures too) held at one time above what
        was there at the stage's start; what runtimes allocate inside is not seen. For `preprocess` also `written`: the
        canvas and the input tensor.
    """
    seen = dict.fromkeys(STAGES, 0)
    preprocessor, decoder = detector._preprocessor, detector._candidates
    places: list[tuple[Any, str, str]] = [
        (preprocessor, "fill", "preprocess"),
        (detector.backend, "infer", "infer"),
        (decoder, "decode", "decode"),
    ]
    if detector.second is not None:
        places.append((detector.second, "judge", "second"))
    detector.detect(frame)
    for owner, name, stage in places:
        setattr(owner, name, _watched(getattr(owner, name), stage, seen))
    tracemalloc.start()
    try:
        detector.detect(frame)
    finally:
        tracemalloc.stop()
        for owner, name, _ in places:
            delattr(owner, name)
    answer = {stage: {"allocated": seen[stage]} for stage in STAGES if stage != "second" or detector.second is not None}
    tensor = detector.backend.input_view()
    answer["preprocess"]["written"] = int(preprocessor.canvas.nbytes + tensor.nbytes)
    return answer


def _watched(work: Callable[..., Any], stage: str, seen: dict[str, int]) -> Callable[..., Any]:
    def watched(*arguments: Any) -> Any:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        answer = work(*arguments)
        seen[stage] = max(seen[stage], tracemalloc.get_traced_memory()[1] - before)
        return answer

    return watched
