"""Confirmed or candidate: what sightings that were not sure are worth together.

A sighting names what score would make its author sure (`need_milli`; 0: it is). Its *certainty* is how far it has come
on the way from the prior to there, in log-odds, which is the same scale for every model: 1000 thousandths is sure.

Rules this file keeps:

- Who is sure confirms, as ever. Of those who are not, no single author confirms anything, whatever it says and however
  often: it is one witness, and worth 999 at most.
- Witnesses are correlated: n of them are worth sum / (1 + (n - 1) correlation), at 0.97 ten looks 1.03. Between looks
  of one model, and of looks on different days, the correlation is what the authors' bundles have measured, of those
  that count together the highest; the setting where a bundle says nothing. Between models it is the setting.
- Of all choices of witnesses that are as unlike as that the one that is worth most counts: so nobody's word takes
  anything away from another's, nor an author's second word from its first; together they are never worth more than
  independent ones would be, nor less than one.
- All is integers and a function of the set of words: no order shows, and every node comes to the same.

Source: variance of a sum of equally correlated terms; the correlations are measured (docs/performance/models.md).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import stamp_ms
from swarmd_protocols.state.crdt.facts import BESIDE_MAX, Sighting
from swarmd_protocols.state.crdt.unsure import NOT_SAID, Alike
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import Entry, figures_in
from swarmd_protocols.state.observations import LocalDetection

SURE_MILLI = 1000
"""Thousandths of the way at which an author is sure."""
_UNSURE_MAX_MILLI = 999
"""The most that a candidate's word is worth: alone it is never enough."""
_HALF_MILLI = 500
"""Certainty from which an author counts as one who has seen the thing (`confirm_observers`)."""
_KINDS_MAX = 3
"""Models that count together: a fourth at 0.95 would add 4 thousandths."""
_CHOICES_MAX = 2 * _KINDS_MAX * (_KINDS_MAX - 1) + 1
"""Words that can be among the best of so many models: each that is taken stands in the way of at most `_KINDS_MAX`
words of its author and as many of its model."""
_OTHER_MODEL_MILLI = 52
"""By so much a register's look by another model must be surer than the one that it holds. What a witness loses by no
longer being of another model is at most 2000 x (1 / 1.95 - 1 / 2) = 26, of which a surer look makes up half."""


class Witness(NamedTuple):
    """One author's word on a thing."""

    origin: NodeId
    certainty_milli: int
    """0 to 1000."""
    model: bytes
    first_ms: int = 0
    """Swarm time at which its author has first seen the thing."""
    last_ms: int = 0
    """And last."""
    alike: Alike = NOT_SAID
    """See `Sighting.alike`."""


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


class Said(NamedTuple):
    """What a register says after another look."""

    score_milli: int
    need_milli: int
    alike: Alike
    is_surer: bool
    """The look is the one that counts: its model is named."""


def said_after(row: Sighting, look: LocalDetection, config: DedupConfig) -> Said:
    """What a register says after another look: it never becomes less sure, nor any less worth to others.

    Args:
        row: As it was.
        look: The detection.
        config: What was not said of correlations.
    """
    score = max(row.score_milli, look.score_milli)
    if not row.need_milli or look.score_milli >= look.need_milli:
        return Said(score, 0, NOT_SAID, look.score_milli >= row.score_milli)
    is_other = row.model != look.model_digest[:8]
    before = certainty_milli(row.score_milli, row.need_milli, config.prior_milli)
    after = certainty_milli(look.score_milli, look.need_milli, config.prior_milli)
    if (after, look.score_milli) < (before + is_other * _OTHER_MODEL_MILLI, row.score_milli):
        return Said(row.score_milli, row.need_milli, row.alike, False)
    alike = look.alike_milli
    if is_other or alike != row.alike:
        (looks, days), (other_looks, other_days) = _known(alike, config), _known(row.alike, config)
        alike = (min(looks, other_looks), min(days, other_days))
    return Said(look.score_milli, look.need_milli, alike, True)


def merged(a: Sighting, b: Sighting, config: DedupConfig) -> Sighting:
    """Two rows of one register as one: everything only gains.

    Args:
        a: One.
        b: The other.
        config: See `certainty_milli`.
    """
    better = a if (a.positioned, -_trace(a), a.last) >= (b.positioned, -_trace(b), b.last) else b
    surer = max(a, b, key=lambda row: (certainty_milli(row.score_milli, row.need_milli, config.prior_milli), row))
    return better._replace(
        score_milli=surer.score_milli if surer.need_milli else max(a.score_milli, b.score_milli),
        need_milli=surer.need_milli,
        alike=surer.alike,
        first=min(a.first, b.first),
        last=max(a.last, b.last),
        reports=max(a.reports, b.reports),
        beside=tuple(sorted({*a.beside, *b.beside})[:BESIDE_MAX]),
        thumb=(a if a.last >= b.last else b).thumb or a.thumb or b.thumb,
    )


def _trace(row: Sighting) -> int:
    return row.covariance_cm2[0] + row.covariance_cm2[2]


def witnesses_of(
    members: Iterable[Entry], joined: Callable[[Entry], Iterable[NodeId]], config: DedupConfig
) -> list[Witness]:
    """What is said of an object.

    A join says that its author has seen what a sighting describes: it is as sure as that one, and no witness of its own
    where that one is a candidate.

    Args:
        members: Sightings of the object.
        joined: Who has joined a sighting.
        config: Prior and policy.
    """
    words = []
    for member in members:
        first, last, reports, score, _ = figures_in(member.packed)
        sure = certainty_milli(score, member.need_milli, config.prior_milli)
        if not reports and not config.judge_confirms:
            sure = min(sure, _UNSURE_MAX_MILLI)
        words.append(Witness(member.origin, sure, member.model, stamp_ms(first), stamp_ms(last), member.alike))
        if not member.is_unsure:
            words += [Witness(author, SURE_MILLI, b"") for author in joined(member)]
    return words


def evidence_milli(words: Sequence[Witness], config: DedupConfig) -> int:
    """What they are worth together; `SURE_MILLI` and no more where it is enough."""
    best = max((word.certainty_milli for word in words), default=0)
    if best < SURE_MILLI:
        best = max(best, _looks(words, config), _models(words, config), _days(words, config))
    return min(SURE_MILLI, best)


def is_confirmed(words: Sequence[Witness], config: DedupConfig, observers: int) -> bool:
    """Whether so many authors are sure; or as many, at least two, have seen it and are sure together.

    Args:
        words: What is said of the object.
        config: Correlations.
        observers: At least 1 (`DedupConfig.confirm_observers`).
    """
    if len({word.origin for word in words if word.certainty_milli >= SURE_MILLI}) >= observers:
        return True
    seen = len({word.origin for word in words if word.certainty_milli >= _HALF_MILLI})
    return seen >= max(2, observers) and evidence_milli(words, config) >= SURE_MILLI


def _known(alike: Alike, config: DedupConfig) -> Alike:
    """Correlations of one model's looks, of a pass and of two days; the settings where none is said."""
    looks = alike[0] or config.look_correlation_milli
    return looks, min(looks, alike[1] or config.day_correlation_milli)


def _worth(total: int, count: int, correlation_milli: int) -> int:
    return 1000 * total // (1000 + (count - 1) * correlation_milli)


def _looks(words: Sequence[Witness], config: DedupConfig) -> int:
    """The best choice of authors, whatever their models and days."""
    best = 0
    for limit, left in _up_to(words, 0, config):
        of_author: dict[NodeId, int] = {}
        for word in left:
            of_author[word.origin] = max(word.certainty_milli, of_author.get(word.origin, 0))
        total = 0
        for count, certainty in enumerate(sorted(of_author.values(), reverse=True), 1):
            total += certainty
            best = max(best, _worth(total, count, limit))
    return best


def _models(words: Sequence[Witness], config: DedupConfig) -> int:
    """The best choice of authors of which no two say what one model said."""
    ranked = sorted(words, key=lambda word: -word.certainty_milli)
    if len({word.model for word in ranked}) < 2:
        return 0
    taken = Counter[bytes]()  # A node's id is longer than a model's digest.
    left = []
    for word in ranked:
        held = (taken[word.origin], taken[word.model])
        if max(held) < _KINDS_MAX and not taken[word.origin + word.model]:
            left.append(word)
            taken.update((word.origin, word.model, word.origin + word.model))
        if len(left) == _CHOICES_MAX:
            break
    best = 0
    for count in range(2, _KINDS_MAX + 1):
        for chosen in combinations(left, count):
            if len({word.origin for word in chosen}) == count == len({word.model for word in chosen}):
                total = sum(word.certainty_milli for word in chosen)
                best = max(best, _worth(total, count, config.model_correlation_milli))
    return best


def _days(words: Sequence[Witness], config: DedupConfig) -> int:
    """The best two authors of whom one has seen the thing so long after the other that the light was another."""
    gap_ms = config.other_day_ms
    if not words or max(word.last_ms for word in words) - min(word.first_ms for word in words) < gap_ms:
        return 0
    best = 0
    for limit, left in _up_to(words, 1, config):
        late = sorted(left, key=lambda word: -word.last_ms)
        at, one, other = 0, (0, NodeId(b"")), (0, NodeId(b""))
        for word in sorted(left, key=lambda word: -word.first_ms):
            while at < len(late) and late[at].last_ms - word.first_ms >= gap_ms:
                found = (late[at].certainty_milli, late[at].origin)
                if found[1] == one[1]:
                    one = max(one, found)
                elif found > one:
                    one, other = found, one
                else:
                    other = max(other, found)
                at += 1
            partner = other if one[1] == word.origin else one
            if partner[1]:
                best = max(best, _worth(word.certainty_milli + partner[0], 2, limit))
    return best


def _up_to(words: Sequence[Witness], which: int, config: DedupConfig) -> Iterator[tuple[int, list[Witness]]]:
    """Each correlation that is said (0: of looks, 1: of days), and the words that say no higher one."""
    said = [(_known(word.alike, config)[which], word) for word in words]
    for limit in sorted({correlation for correlation, _ in said}):
        yield limit, [word for correlation, word in said if correlation <= limit]
