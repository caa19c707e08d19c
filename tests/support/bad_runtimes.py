"""Runtimes that fail the way native code fails. Each wraps LiteRT and turns bad after a number of frames.

The file that SWARMD_TEST_ONCE names makes a fault happen once only: the next life of the eye is well.
"""

import atexit
import contextlib
import ctypes
import os
import time
from pathlib import Path

import numpy as np

from swarmd_models.backends.base import Announce, Array, Artefact
from swarmd_models.backends.litert import LiteRtBackend

GOOD_FRAMES = 25


class _Bad(LiteRtBackend):
    kind = "bad"
    """Not LiteRT's: what a start tries with that one's own (several views in one run) are no frames."""
    frames = 0

    @classmethod
    def load(cls, artefact: Artefact, threads: int, announce: Announce) -> "LiteRtBackend":
        good = LiteRtBackend.load(artefact, threads, announce)
        assert good._interpreter is not None
        return cls(good._interpreter, good.runtime)

    def infer(self) -> None:
        self.frames += 1
        once = Path(os.environ["SWARMD_TEST_ONCE"])
        if self.frames > GOOD_FRAMES and not once.exists():
            once.touch()
            self.fail()
        super().infer()

    def fail(self) -> None:
        raise NotImplementedError


class Hangs(_Bad):
    """One frame takes for ever; the other threads run on."""

    def fail(self) -> None:
        time.sleep(3600)


class NeverLoads(LiteRtBackend):
    """Loading it takes for ever, once; the other threads run on."""

    @classmethod
    def load(cls, artefact: Artefact, threads: int, announce: Announce) -> "LiteRtBackend":
        once = Path(os.environ["SWARMD_TEST_ONCE"])
        if not once.exists():
            once.touch()
            time.sleep(3600)
        return LiteRtBackend.load(artefact, threads, announce)


class HangsWithTheLock(_Bad):
    """Native code that never gives the interpreter's lock back."""

    def fail(self) -> None:
        ctypes.PyDLL(None).sleep(3600)


class Crashes(_Bad):
    """A null pointer is followed."""

    def fail(self) -> None:
        ctypes.string_at(0)


class RunsOutOfMemory(_Bad):
    """An allocation fails."""

    def fail(self) -> None:
        raise MemoryError("no memory for the delegate's arena")


class FailsAndHangsAtExit(_Bad):
    """An error, and native threads that never let the interpreter end."""

    def fail(self) -> None:
        atexit.register(time.sleep, 3600)
        raise MemoryError("no memory for the delegate's arena")


class AnswersNan(_Bad):
    """Every answer holds a NaN."""

    def infer(self) -> None:
        LiteRtBackend.infer(self)

    def output_views(self) -> list[Array]:
        return [np.full(view.shape, np.nan, np.float32) for view in super().output_views()]


class BuildsFirst(_Bad):
    """Takes a while to prepare, and says how far it is."""

    @classmethod
    def load(cls, artefact: Artefact, threads: int, announce: Announce) -> "LiteRtBackend":
        for percent in range(0, 101, 20):
            announce(f"building_engine: {percent} %")
            time.sleep(0.3)
        return super().load(artefact, threads, announce)

    def infer(self) -> None:
        LiteRtBackend.infer(self)


class OneAfterTheOther(_Bad):
    """Every life of the eye ends by the next fault that the file SWARMD_TEST_ONCE names, one a line."""

    nan = False

    def infer(self) -> None:
        self.frames += 1
        if self.frames > GOOD_FRAMES and not self.nan:
            path = Path(os.environ["SWARMD_TEST_ONCE"])
            fault, _, rest = path.read_text().partition("\n")
            path.write_text(rest)
            if fault == "AnswersNan":
                self.nan = True
            elif fault:
                FAULTS[fault].fail(self)  # type: ignore[arg-type]
        LiteRtBackend.infer(self)

    def output_views(self) -> list[Array]:
        views = super().output_views()
        return [np.full(view.shape, np.nan, np.float32) for view in views] if self.nan else views


FAULTS = {found.__name__: found for found in (Hangs, HangsWithTheLock, Crashes, RunsOutOfMemory)}


class Slow(_Bad):
    """Takes as many seconds more as the file SWARMD_TEST_ONCE says, while there is one."""

    def infer(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            time.sleep(float(Path(os.environ["SWARMD_TEST_ONCE"]).read_text()))
        LiteRtBackend.infer(self)
