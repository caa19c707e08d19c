"""One label for the whole frame, given as one detection that covers it."""

from collections.abc import Sequence

import numpy as np

from swarmd_models.backends.base import Array, TensorSpec
from swarmd_models.bundle import Bundle
from swarmd_models.decoders.base import Candidates, check_finite, empty, real
from swarmd_models.errors import ArtefactError


class ClassifierDecoder:
    """Decodes one vector of class scores, probabilities or logits."""

    def __init__(self, bundle: Bundle, outputs: Sequence[TensorSpec], width: int, height: int) -> None:
        """Check the vector against the labels; raises `ArtefactError` when their numbers differ."""
        if len(outputs) != 1:
            raise ArtefactError(f"a classifier has one output; this model has {len(outputs)}")
        self._spec = outputs[0]
        classes = int(np.prod(self._spec.shape))
        if classes != len(bundle.labels):
            raise ArtefactError(f"the model tells {classes} classes apart; there are {len(bundle.labels)} labels")
        self._is_probability = bundle.decode.scores == "probabilities" or (
            bundle.decode.scores == "auto" and _looks_like_probability(self._spec)
        )
        self._decides_by_sum = bundle.decode.scores == "auto" and not self._spec.is_quantised
        self._thresholds = [bundle.decode.threshold_of(name) for name in bundle.labels]

    def decode(self, views: Sequence[Array]) -> Candidates:
        """The best class, if it reaches its threshold."""
        check_finite(views[0], "the output")
        values = real(views[0].ravel(), self._spec)
        index = int(values.argmax())
        if self._is_probability or (self._decides_by_sum and values.min() >= 0 and abs(values.sum() - 1) < 1e-2):
            score = min(max(float(values[index]), 0.0), 1.0)
        else:
            score = float(1.0 / np.exp(values - values[index]).sum())
        if score < self._thresholds[index]:
            return empty(is_final=True)
        box = np.zeros((1, 4), np.float32)
        return Candidates(box, np.asarray([score], np.float32), np.asarray([index]), True, True)


def _looks_like_probability(spec: TensorSpec) -> bool:
    """Softmax outputs are quantised to 1/256 with the zero point at the bottom of the range."""
    return spec.is_quantised and abs(spec.scale - 1 / 256) < 1e-6 and spec.zero_point in (0, -128)
