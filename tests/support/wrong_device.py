"""A runtime with devices of which one computes something else: what golden vectors are for."""

from typing import ClassVar

from swarmd_models.backends.base import Announce, Array, Artefact
from swarmd_models.backends.litert import LiteRtBackend
from swarmd_models.errors import BackendError

NAME = "tests.support.wrong_device:WrongDevice"


class WrongDevice(LiteRtBackend):
    """LiteRT; on "npu" every answer is a little off, on "gone" it cannot be loaded."""

    closed: ClassVar[list[str]] = []
    device = ""

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        return ("npu", "gone", "fpga")

    @classmethod
    def load(cls, artefact: Artefact, threads: int, announce: Announce) -> "WrongDevice":
        if artefact.device == "gone":
            raise BackendError("gone was taken out")
        made = super().load(Artefact(artefact.name, artefact.tflite, artefact.onnx), threads, announce)
        assert isinstance(made, WrongDevice)
        made.device = artefact.device
        return made

    def output_views(self) -> list[Array]:
        views = super().output_views()
        return [view // 2 for view in views] if self.device == "npu" else views

    def close(self) -> None:
        self.closed.append(self.device)
        super().close()
