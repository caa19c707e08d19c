"""What a bundle with `decoder = "series"` says about its windows: the table `[series]`."""

from dataclasses import dataclass

from swarmd_models.toml_reader import TomlReader

CLASSIFY, REGRESS = "classify", "regress"
SAMPLES, SPECTRUM, SPECTROGRAM = "samples", "spectrum", "spectrogram"
_WINDOW_MAX = 1 << 20
"""Samples: two minutes at 8 kHz."""
_FRAME_MAX, _BANDS_MAX = 1 << 14, 512
"""Of a spectrum: its bands' table is 32 MiB at most."""


@dataclass(frozen=True, slots=True)
class SeriesRule:
    """How a series becomes a net's input, and what comes out."""

    task: str = CLASSIFY
    """"classify": the outputs are logits of the labels; "regress": they are numbers, one a label."""
    rate_hz: float = 1.0
    """Samples a second."""
    window: int = 1
    """Samples that the net judges at once."""
    hop: int = 1
    """Samples between the beginnings of two windows."""
    channels: int = 1
    features: str = SAMPLES
    """"samples" as they are; "spectrum": mean and deviation over the window of the logarithm of the power in bands;
    "spectrogram": that of each frame."""
    frame: int = 2
    """Samples of one Fourier transform; frames overlap by half."""
    bands: int = 1
    low_hz: float = 20.0
    high_hz: float = 4000.0
    """What the bands lie between, equally wide on a logarithmic scale."""
    level: str = "none"
    """"mean": of each frame's bands the mean is taken away, so that loudness says nothing; "none": it stays."""
    sharpness: float = 1.0
    """Logits are multiplied with it, so that scores are probabilities on held-out data."""
    unit: str = ""
    """Of the numbers of a "regress"."""

    @property
    def features_count(self) -> int:
        """Numbers of one window."""
        if self.features == SAMPLES:
            return self.window * self.channels
        rows = 2 if self.features == SPECTRUM else (self.window - self.frame) // (self.frame // 2) + 1
        return rows * self.bands * self.channels


def read_series_rule(table: TomlReader, is_wanted: bool) -> SeriesRule:
    """The table; where it is wanted, what decides about the windows must be said."""
    if not is_wanted:
        return SeriesRule()
    for key in ("rate_hz", "window"):
        if not table.has(key):
            table.problem(f"{key} is missing; a series has samples a second, and a window of so many")
    window = table.integer("window", 1, 1, _WINDOW_MAX)
    rate_hz = table.number("rate_hz", 1.0, 1e-6, 1e7)
    features = table.choice("features", (SAMPLES, SPECTRUM, SPECTROGRAM), SAMPLES)
    frame = table.integer("frame", max(2, min(window, 1024)), 2, _FRAME_MAX)
    high_hz = table.number("high_hz", rate_hz / 2, 1e-9, 1e7)
    low_hz = table.number("low_hz", min(20.0, high_hz / 200), 1e-9, 1e7)
    if features != SAMPLES and frame > window:
        table.problem(f"frame is {frame}; it must fit into the window of {window}")
    if features != SAMPLES and not low_hz < high_hz <= rate_hz / 2:
        table.problem(f"low_hz and high_hz are {low_hz:g} and {high_hz:g}; 0 < low_hz < high_hz <= {rate_hz / 2:g}")
    return SeriesRule(
        table.choice("task", (CLASSIFY, REGRESS), CLASSIFY),
        rate_hz,
        window,
        table.integer("hop", window, 1, _WINDOW_MAX),
        table.integer("channels", 1, 1, 64),
        features,
        frame,
        table.integer("bands", 64, 1, _BANDS_MAX),
        low_hz,
        high_hz,
        table.choice("level", ("none", "mean"), "none"),
        table.number("sharpness", 1.0, 1e-3, 1e3),
        table.text("unit", ""),
    )
