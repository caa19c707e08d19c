"""Decoders by the name that bundles use."""

from collections.abc import Callable, Sequence

from swarmd_models.backends.base import TensorSpec
from swarmd_models.bundle import Bundle
from swarmd_models.decoders.anchor_free import AnchorFreeDecoder
from swarmd_models.decoders.base import Candidates, Decoder
from swarmd_models.decoders.classifier import ClassifierDecoder
from swarmd_models.decoders.ssd import SsdDecoder
from swarmd_models.decoders.yolo import YoloDecoder

__all__ = ["Candidates", "Decoder", "make_decoder"]

_DECODERS: dict[str, Callable[[Bundle, Sequence[TensorSpec], int, int], Decoder]] = {
    "anchor_free": AnchorFreeDecoder,
    "classifier": ClassifierDecoder,
    "ssd": SsdDecoder,
    "yolo": YoloDecoder,
}


def make_decoder(bundle: Bundle, outputs: Sequence[TensorSpec], width: int, height: int) -> Decoder:
    """The decoder that a bundle names, checked against the outputs; raises `ArtefactError`."""
    return _DECODERS[bundle.decoder](bundle, outputs, width, height)
