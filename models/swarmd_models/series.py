"""Series: a net that judges windows of a sound, a vibration or a log, one after the other.

A window of samples becomes the net's input as the bundle's table `[series]` says; what comes out is, a window, how
likely each label is (`classify`) or a number for each label (`regress`). The net sees one window at a time and holds no
state, so any device with the bundle goes on where another has left off.

```
 samples (n, channels) ─▶ windows ─▶ samples | spectrum | spectrogram ─▶ net ─▶ softmax | as they are
```
"""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from swarmd_models.backends.base import Array, Backend
from swarmd_models.errors import ArtefactError, BackendError, FrameError
from swarmd_models.series_rule import CLASSIFY, SAMPLES, SPECTRUM, SeriesRule

WINDOWS_MAX = 64
"""Of one request: what is longer is asked for in pieces."""
_FLOOR = 1e-10
"""Added to a band's power, of samples within one: digital silence has a logarithm too."""

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


class Bands:
    """Powers in bands of a spectrum, as decibels over ten: a frame's logarithms of the mean power in each band."""

    def __init__(self, rule: SeriesRule) -> None:
        """Bands of equal width on a logarithmic scale, each of one line of the spectrum at least."""
        lines = np.fft.rfftfreq(rule.frame, 1.0 / rule.rate_hz)
        edges = np.geomspace(rule.low_hz, rule.high_hz, rule.bands + 1)
        first = np.searchsorted(lines, edges[:-1])
        last = np.maximum(np.searchsorted(lines, edges[1:]), first + 1)
        self._mix = np.zeros((len(lines), rule.bands))
        for band, (begin, end) in enumerate(zip(first, last, strict=True)):
            begin = min(begin, len(lines) - 1)
            self._mix[begin:end, band] = 1.0 / len(lines[begin:end])
        self._shape = np.hanning(rule.frame)
        self._norm = float((self._shape**2).sum())
        self._frame = rule.frame
        self._is_levelled = rule.level == "mean"

    def of(self, window: F64) -> F64:
        """Shape (samples,) to (frames, bands); frames overlap by half."""
        starts = range(0, len(window) - self._frame + 1, self._frame // 2)
        frames = np.stack([window[at : at + self._frame] for at in starts]) * self._shape
        power = np.abs(np.fft.rfft(frames, axis=1)) ** 2 / self._norm
        found: F64 = np.log10(power @ self._mix + _FLOOR)
        return found - found.mean(axis=1, keepdims=True) if self._is_levelled else found


class SeriesNet:
    """A net for windows of a series, in a runtime."""

    def __init__(self, backend: Backend, labels: tuple[str, ...], rule: SeriesRule) -> None:
        """Take a loaded model.

        Raises:
            ArtefactError: Its input holds another number of values than the rule makes, or its output has not one for
                each label, or it has more than one input or output.
        """
        self.rule = rule
        self._backend = backend
        self._labels = np.array(labels, object)
        self._bands = Bands(rule) if rule.features != SAMPLES else None
        if len(backend.inputs) != 1 or len(backend.outputs) != 1:
            raise ArtefactError(
                f"a series model takes one tensor and gives one; this one has {len(backend.inputs)} and "
                f"{len(backend.outputs)}"
            )
        taken, given = backend.inputs[0], backend.outputs[0]
        there, wanted = int(np.prod(taken.shape)), rule.features_count
        if there != wanted or taken.dtype != np.float32:
            raise ArtefactError(
                f"the net takes {there} numbers of {taken.dtype.name}, and [series] makes {wanted} of float32 of a "
                f"window ({rule.features} of {rule.window} samples)"
            )
        if int(np.prod(given.shape)) != len(labels) or given.dtype != np.float32:
            raise ArtefactError(
                f"the net gives {given.dtype.name} {given.shape}, and there are {len(labels)} labels; float32, one "
                "for each, is wanted"
            )

    def features(self, window: F32) -> F32:
        """The net's input of a window.

        Args:
            window: Shape (`rule.window`, `rule.channels`), float32, in the units that the bundle was made with.

        Returns:
            Shape (`rule.features_count`,), float32: samples in the order channel by channel; of a spectrum mean and
            deviation of each band, of a spectrogram frame by frame, channel by channel.
        """
        return features_of(window, self.rule, self._bands)

    def run(self, samples: Array) -> Iterator[Mapping[str, Array] | None]:
        """Judge every window of a series: None, then `at_s`, and `scores` and `labels` or `values`.

        Args:
            samples: Shape (n, `rule.channels`), float32.

        Raises:
            FrameError: It is shorter than a window, longer than `WINDOWS_MAX` of them, or holds what is no number.
            BackendError: The runtime failed, or gave numbers that are none.
        """
        starts = windows_of(len(samples), self.rule)
        if not np.isfinite(samples).all():
            raise FrameError("the series holds what is no number; leave such samples out, or put the last one there")
        rows = [self._judge(samples[at : at + self.rule.window]) for at in starts]
        yield None
        yield self._told(starts, np.stack(rows))

    def _judge(self, window: F32) -> F64:
        view = self._backend.input_view()
        view[...] = self.features(window).reshape(view.shape)
        del view  # No view may outlive `infer`.
        self._backend.infer()
        said: F64 = np.array(self._backend.output_views()[0], np.float64).ravel()
        if not np.isfinite(said).all():
            raise BackendError("the model gave numbers that are none")
        return said

    def _told(self, starts: list[int], rows: F64) -> Mapping[str, Array]:
        at_s = (np.array(starts) / self.rule.rate_hz).astype(np.float32)
        if self.rule.task != CLASSIFY:
            return {"at_s": at_s, "values": rows.astype(np.float32)}
        scores = softmax(rows * self.rule.sharpness)
        return {"at_s": at_s, "scores": scores.astype(np.float32), "labels": self._labels[scores.argmax(axis=1)]}


def windows_of(count: int, rule: SeriesRule) -> list[int]:
    """Where the windows of a series of so many samples begin; raises `FrameError` for none and for too many."""
    if count < rule.window:
        raise FrameError(f"the series has {count} samples; the model looks at {rule.window} at once")
    starts = list(range(0, count - rule.window + 1, rule.hop))
    if len(starts) > WINDOWS_MAX:
        raise FrameError(
            f"the series has {len(starts)} windows; ask for {WINDOWS_MAX} at once, "
            f"{(WINDOWS_MAX - 1) * rule.hop + rule.window} samples"
        )
    return starts


def features_of(window: F32, rule: SeriesRule, bands: Bands | None = None) -> F32:
    """What a net is given of a window; see `SeriesNet.features`.

    Args:
        window: Shape (`rule.window`, `rule.channels`).
        rule: How.
        bands: Of the rule, where they were made before.
    """
    if rule.features == SAMPLES:
        return np.ascontiguousarray(window.T, np.float32).ravel()
    made = bands or Bands(rule)
    found = []
    for channel in window.T.astype(np.float64):
        frames = made.of(channel)
        found.append(np.concatenate([frames.mean(0), frames.std(0)]) if rule.features == SPECTRUM else frames.ravel())
    return np.concatenate(found).astype(np.float32)


def softmax(rows: F64) -> F64:
    """Each row's odds as shares of one."""
    grown = np.exp(rows - rows.max(axis=1, keepdims=True))
    shares: F64 = grown / grown.sum(axis=1, keepdims=True)
    return shares


def resampled(samples: F32, from_hz: float, to_hz: float) -> F32:
    """A series at another rate, its spectrum cut where the lower of both ends.

    Args:
        samples: Shape (n, channels).
        from_hz: Its rate.
        to_hz: The wanted one.

    >>> resampled(np.ones((8, 1), np.float32), 8.0, 4.0).round(6).ravel().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    count = round(len(samples) * to_hz / from_hz)
    if from_hz == to_hz or not len(samples) or count < 1:
        return samples
    lines = np.fft.rfft(samples.astype(np.float64), axis=0)
    kept = lines[: count // 2 + 1]
    if count > len(samples):
        kept = np.concatenate([lines, np.zeros((count // 2 + 1 - len(lines), samples.shape[1]))])
    return (np.fft.irfft(kept, count, axis=0) * (count / len(samples))).astype(np.float32)
