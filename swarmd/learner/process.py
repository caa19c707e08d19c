"""The child: one task, one answer, the end. It is ended by its brain at any time, and holds nothing that is missed."""

import contextlib
import os
import sys
from pathlib import Path

from swarmd.eye.gate import EyeGate
from swarmd.learner import words
from swarmd.worker.runner import run_only_when_idle

NICE = 5
"""Where no eye is beside: behind the brain and the worker, and still a share of a busy machine."""
_OOM_SCORE = "800"
"""Of 1,000: where memory ends, the kernel ends the learner first, and neither the eye nor the brain."""


def main() -> int:
    """Do the task on standard input; the exit status."""
    task = words.decode_to_learner(sys.stdin.buffer.read())
    _make_way(task.common.is_idle)
    # Whatever a library prints goes to standard error: the brain reads one answer, and nothing else.
    out = os.dup(1)
    os.dup2(2, 1)
    data = words.encode(_answer(task))
    with os.fdopen(out, "wb") as file:
        file.write(data + b"\n")
    return 0


def _answer(task: words.ToLearner) -> words.FromLearner:
    from swarmd.learner.teaching import describe, sweep, teach
    from swarmd_models.errors import ModelError

    try:
        if isinstance(task, words.Describe):
            return describe(task.model)
        gate = EyeGate(task.common.gate_fd) if task.common.gate_fd >= 0 else None
        Path(task.cache).mkdir(parents=True, exist_ok=True)
        sweep(Path(task.cache))
        return teach(task, gate)
    except (ModelError, OSError, MemoryError) as error:
        return words.Failed(str(error)[: words.PROBLEM_CHARS] or type(error).__name__)


def _make_way(is_idle: bool) -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(_OOM_SCORE)
    if is_idle:
        run_only_when_idle()
    else:
        with contextlib.suppress(OSError):
            os.nice(NICE)
