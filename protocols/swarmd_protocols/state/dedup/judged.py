"""Another judge's word on a candidate: what it says after it was asked again, and that it may say otherwise later.

Rules this file keeps:

- A verdict is a row of its author about one object, with no reports of its own (`reports` is 0): that is how everybody
  tells it from a sighting. It stands where the look stands that was judged, and is as old as that look.
- It may fall as well as rise: of an author's verdicts on a thing the newest counts, by the author's own order. With the
  score 0 it is withdrawn, and worth nothing.
- The model that has seen the thing is no other judge of it: who has seen it itself says another model's verdict, beside
  its own row, and is still one author: where authors are counted it counts once.
- A verdict is worth 999 at most, whatever it claims, and counts like another model's word; with `judge_confirms` one
  that reaches what it needs confirms. No place and no count comes from a verdict.
"""

from collections.abc import Sequence

from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.facts import LATTICE, TRACK, Sighting
from swarmd_protocols.state.crdt.unsure import NOT_SAID
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import Entry
from swarmd_protocols.state.dedup.tiers import certainty_milli
from swarmd_protocols.state.observations import Judged

JUDGED_MAX = 4_096
"""Things on which a node holds verdicts: a quarter of what it may report; they go with the things."""
_MS = 1 << 16
"""A millisecond in stamps: a verdict begins after what it is about, so that it never leads an object that has both."""
_ASIDE = 1 << 40
"""Lattice points by which the name of a verdict on a thing that its author has seen stands apart from that of its
sighting: beyond all places on earth, so that it is no other sighting's name and nobody's neighbour."""


def withdrawn(members: Sequence[Entry], node: NodeId, row: Sighting) -> list[Sighting]:
    """Other verdicts of this node on the thing, taken back: two that it judged have turned out to be one."""
    found = [member.row for member in members if member.origin == node and member.is_verdict]
    return [
        other._replace(score_milli=0, need_milli=other.need_milli or 1000)
        for other in found
        if other.key != row.key and other.score_milli
    ]


def verdict_on(members: Sequence[Entry], node: NodeId, said: Judged, config: DedupConfig) -> Sighting:
    """The row that says it.

    Args:
        members: Of the object.
        node: Who has judged.
        said: What it says.
        config: See `certainty_milli`.

    Raises:
        StateError: There is nothing to judge, or this node is no other judge.
    """
    if not 0 <= said.score_milli <= 1000 or not 0 < said.need_milli <= 1000:
        raise StateError(
            f"a verdict of {said.score_milli} thousandths where {said.need_milli} are needed: the score is 0 to 1000, "
            "what is needed 1 to 1000"
        )
    if not 0 <= min(said.alike_milli) <= max(said.alike_milli) <= 1000 or len(said.model_digest) < 8:
        raise StateError("correlations are 0 to 1000 thousandths, and a model's digest has 8 bytes")
    seen = [member for member in members if not member.is_verdict]
    if not seen:
        raise StateError("nobody sees it any more")
    own = next((member for member in members if member.origin == node and member.is_verdict), None)
    eyes = [member for member in seen if member.origin == node]
    is_same = any(member.model == said.model_digest[:8] for member in eyes)
    if eyes and (is_same if said.score_milli else own is None):
        raise StateError(
            "this node has seen it itself: by this model, or without a verdict, it is no other judge of it"
        )
    rows = [member.row for member in seen]
    judged = max(
        rows, key=lambda row: (certainty_milli(row.score_milli, row.need_milli, config.prior_milli), row.last, row.key)
    )
    if judged.kind == TRACK:
        raise StateError("it moves or has no place: only its own track is the same thing")
    first = max(judged.last, judged.first + _MS)
    label, kind, place = judged.key if own is None else own.key
    if own is None and eyes:
        if not judged.positioned:
            raise StateError("it has no place by which two words of one node could be told apart")
        x, y = (judged.east_cm, judged.north_cm) if isinstance(place, str) else place
        kind, place = LATTICE, (x + _ASIDE, y)
    return judged._replace(
        label=label,
        kind=kind,
        place=place,
        score_milli=said.score_milli,
        first=first,
        last=first,
        reports=0,
        model=said.model_digest[:8],
        beside=(),
        thumb=b"",
        features=b"",
        need_milli=said.need_milli if said.need_milli > said.score_milli else 0,
        alike=said.alike_milli if said.need_milli > said.score_milli else NOT_SAID,
    )
