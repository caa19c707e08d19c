"""`[learning]`: what members' labels teach the head of the model on all."""

from dataclasses import dataclass

from swarmd.config.option import option


@dataclass(frozen=True, slots=True)
class LearningSection:
    """Learning in the swarm: what people labelled on one device teaches the head of the model on all."""

    enabled: bool = option(
        False,
        "Take part: train on labels where there are any, tell signed changes and merge them. No model is changed: what "
        "comes out is a candidate for a release (`swarmd learning export`).",
    )
    model: str = option("", "The bundle whose head learns; empty: the one that the eye runs, else `eye.model`.")
    labels: str = option(
        "", "Folder of training sets (`swarmd frames import --out FOLDER/NAME`); empty: no sets, only reviews."
    )
    reviews: bool = option(
        True, "What operators confirm, relabel or reject is a label too, where `eye.keep_frames` shows the thing."
    )
    rounds: int = option(15, "Rounds of a session; the same on all members.", low=1, high=32)
    share: float = option(
        0.05, "Share of the head's weights that is told in a round; the same on all members.", low=0.001, high=1.0
    )
    round_s: float = option(300.0, "Least length of a round; the slowest decide.", low=1.0, high=86_400.0)
    kib_s: int = option(
        4, "What is told and given, KiB a second over any ten seconds; 0: as fast as links carry.", low=0, high=1024
    )
    noise: float = option(
        0.0,
        "Deviation of the noise on each weight, in lengths of `clip_length`; `swarmd learning status` says what ε it "
        "is worth. 0: none.",
        low=0.0,
        high=1000.0,
    )
    clip_length: float = option(
        1.0, "Where there is noise, a change is clipped to this length first.", low=0.001, high=1000.0
    )
    battery_min: float = option(0.4, "Below this share of the charge nothing is trained.", low=0.0, high=1.0)
    temperature_max_c: float = option(75.0, "Above this temperature nothing is trained.", low=0, high=150)
