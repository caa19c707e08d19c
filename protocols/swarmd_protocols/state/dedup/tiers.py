"""Confirmed or candidate: what sightings that were not sure are worth together.

A sighting names what score would make its author sure (`need_milli`; 0: it is). Its *certainty* is how far it has come
on the way from the prior to there, in log-odds, which is the same scale for every model: 1000 thousandths is sure.

Rules this file keeps:

- Who is sure confirms, as ever. Of those who are not, no single author confirms anything, whatever it says and however
  often: its best sighting of a thing is one witness, and worth 999 at most.
- Witnesses are correlated. n of one model are worth sum / (1 + (n - 1) correlation): at 0.97, ten looks are 1.03. What
  the models come to is joined in the same way, by the correlation between models.
- The best of all choices of witnesses counts, so that nobody's word takes anything away from the others'.
- All is integers and a function of the set of witnesses: no order shows, and every node comes to the same.

Source: variance of a sum of equally correlated terms; the correlations are measured (docs/performance/models.md).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.facts import Sighting
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import Entry, figures_in
from swarmd_protocols.state.observations import LocalDetection

SURE_MILLI = 1000
"""Thousandths of the way at which an author is sure."""
_UNSURE_MAX_MILLI = 999
"""The most that a candidate's word is worth: alone it is never enough."""
_HALF_MILLI = 500
"""Certainty from which an author counts as one who has seen the thing (`confirm_observers`)."""


class Witness(NamedTuple):
    """One author's best word on a thing."""

    origin: NodeId
    certainty_milli: int
    """0 to 1000."""
    model: bytes


_LOGITS = [round(1000 * math.log((2 * at + 1) / (2001 - 2 * at))) for at in range(1001)]
"""Log-odds of a score in thousandths, in thousandths of a nat; half a thousandth is kept off both ends."""


def certainty_milli(score_milli: int, need_milli: int, prior_milli: int) -> int:
    """How far a score has come from the prior to what would make its author sure.

    >>> certainty_milli(970, 0, 20), certainty_milli(500, 980, 20), certainty_milli(10, 980, 20)
    (1000, 500, 0)
    """
    if score_milli >= need_milli:
        return SURE_MILLI
    floor = _LOGITS[prior_milli]
    way = _LOGITS[need_milli] - floor
    if way <= 0:
        return 0
    return max(0, min(_UNSURE_MAX_MILLI, 1000 * (_LOGITS[score_milli] - floor) // way))


def gives_way(detection: LocalDetection, held: int, config: DedupConfig) -> bool:
    """Whether a new candidate is left out: of the things that a node reports half are kept for what it is sure of."""
    return detection.score_milli < detection.need_milli and 2 * held >= config.sightings_max


def need_after(row: Sighting, score_milli: int, need_milli: int) -> int:
    """What a register still needs after another look: nothing once any look was sure, else what the best look needs."""
    if not row.need_milli or score_milli >= need_milli:
        return 0
    return need_milli if score_milli >= row.score_milli else row.need_milli


def best_words(words: Iterable[Witness]) -> dict[NodeId, Witness]:
    """Of each author its best word."""
    best: dict[NodeId, Witness] = {}
    for word in words:
        held = best.get(word.origin)
        if held is None or word[1:] > held[1:]:
            best[word.origin] = word
    return best


def witnesses_of(
    members: Iterable[Entry], joined: Callable[[Entry], Iterable[NodeId]], prior_milli: int
) -> dict[NodeId, Witness]:
    """Of each author its best word on an object.

    A join says that its author has seen what a sighting describes: it is as sure as that one, and no witness of its own
    where that one is a candidate.

    Args:
        members: Sightings of the object.
        joined: Who has joined a sighting.
        prior_milli: See `DedupConfig`.
    """
    words = []
    for member in members:
        sure = certainty_milli(figures_in(member.packed)[3], member.need_milli, prior_milli)
        words.append(Witness(member.origin, sure, member.model))
        if not member.is_unsure:
            words += [Witness(author, SURE_MILLI, b"") for author in joined(member)]
    return best_words(words)


def evidence_milli(witnesses: Mapping[NodeId, Witness], config: DedupConfig) -> int:
    """What they are worth together; `SURE_MILLI` and no more where it is enough."""
    of_models: dict[bytes, list[int]] = {}
    for _, certainty, model in witnesses.values():
        of_models.setdefault(model, []).append(certainty)
    joined = [_joined(values, config.look_correlation_milli) for values in of_models.values()]
    return min(SURE_MILLI, _joined(joined, config.model_correlation_milli))


def _joined(values: list[int], correlation_milli: int) -> int:
    """The best sum of correlated values: of the k greatest, sum / (1 + (k - 1) correlation)."""
    best = total = 0
    for count, value in enumerate(sorted(values, reverse=True)):
        total += value
        best = max(best, 1000 * total // (1000 + count * correlation_milli))
    return best


def is_confirmed(witnesses: Mapping[NodeId, Witness], config: DedupConfig, observers: int) -> bool:
    """Whether so many authors are sure; or as many, at least two, have seen it and are sure together.

    Args:
        witnesses: Of each author its best word.
        config: Correlations.
        observers: At least 1 (`DedupConfig.confirm_observers`).
    """
    if sum(one.certainty_milli >= SURE_MILLI for one in witnesses.values()) >= observers:
        return True
    seen = sum(one.certainty_milli >= _HALF_MILLI for one in witnesses.values())
    return seen >= max(2, observers) and evidence_milli(witnesses, config) >= SURE_MILLI
