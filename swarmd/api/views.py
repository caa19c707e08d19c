"""What the read verbs answer: the node's views as JSON-ready mappings."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from swarmd.api.daemon import TRUST_KEY, InParts, NodePosition
from swarmd.api.parts import Pairs
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import EPOCH_2020_NS, stamp_ms
from swarmd_protocols.state.observations import CellView, DetectionView, ObjectView, ReviewView
from swarmd_protocols.summary import MemberView

Row = dict[str, Any]
TOLD_MAX_BYTES = 512
"""Bytes of what a member tells of its trust: four times what swarmd writes."""
SUMS_A_PART = 512
"""Sums of one part of a long answer."""


def member_row(member: MemberView) -> Row:
    """One member."""
    return {
        "name": member.name,
        "node": member.node.hex(),
        "address": member.address,
        "state": member.state.value,
        "incarnation": member.incarnation,
        "rtt_ms": None if member.rtt_ns is None else round(member.rtt_ns / 1e6, 3),
        "loss": round(member.loss, 4),
        "quality": member.quality,
        "links": list(member.links),
        "version": member.version,
        "capability": member.capability,
        "meta": {key: value.decode("utf-8", "replace") for key, value in member.meta.items()},
    }


def unheard_s(member: MemberView, now_ns: int) -> float | None:
    """How long nobody has heard a member of a mesh, seconds; None where somebody does, or the view is none."""
    since_ns = member.unheard_since_ns
    return None if since_ns is None else round(max(0, now_ns - since_ns) / 1e9, 1)


def trust_row(member: MemberView) -> Row:
    """What one member tells of the trust that it holds; None for each thing that it does not tell, or tells wrongly."""
    try:
        told = json.loads(member.meta.get(TRUST_KEY, b"{}")[:TOLD_MAX_BYTES])
    except (ValueError, RecursionError):
        told = {}
    told = told if isinstance(told, dict) else {}
    root, group_key, certificate = (told.get(name) for name in ("root", "group_key", "certificate"))
    return {
        "name": member.name,
        "node": member.node.hex(),
        "state": member.state.value,
        "root": root if _is_count(root) else None,
        "group_key": group_key if _is_count(group_key) else None,
        "certificate": certificate[:16] if isinstance(certificate, str) else None,
    }


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def position_row(position: NodePosition | None, now_ns: int) -> Mapping[str, Any] | None:
    """A position as `swarmd members --json` shows it, with its age."""
    if position is None:
        return None
    return {
        "latitude_deg": position.latitude_deg,
        "longitude_deg": position.longitude_deg,
        "height_agl_m": position.height_agl_m,
        "yaw_deg": None if position.yaw_rad is None else round(math.degrees(position.yaw_rad), 2),
        "sigma_m": position.position_sigma_m,
        "battery": None if position.battery_milli is None else position.battery_milli / 1000,
        "age_s": round(max(0, now_ns - position.captured_ns) / 1e9, 2),
    }


def detection_row(view: DetectionView, names: Mapping[NodeId, str]) -> Row:
    """One node's detection."""
    return {
        "node": names.get(view.origin, view.origin.hex()),
        "label": view.label,
        "score": view.score_milli / 1000,
        "east_m": _metres(view.east_cm),
        "north_m": _metres(view.north_cm),
        "covariance_m2": _square_metres(view.covariance_cm2),
        "asset": view.asset,
        "first_seen_s": unix_s(view.first_hlc),
        "last_seen_s": unix_s(view.last_hlc),
        "candidate": view.is_candidate,
    }


def object_row(view: ObjectView, names: Mapping[NodeId, str]) -> Row:
    """One object of the deduplicated picture."""
    return {
        "id": view.object_id,
        "label": view.label,
        "score": view.score_milli / 1000,
        "east_m": _metres(view.east_cm),
        "north_m": _metres(view.north_cm),
        "covariance_m2": _square_metres(view.covariance_cm2),
        "asset": view.asset,
        "observers": [names.get(node, node.hex()) for node in view.observers],
        "confirmed": view.confirmed,
        "tier": view.tier,
        "evidence": view.evidence_milli / 1000,
        "review": view.review,
        "detected": view.detected,
        "reviews": [review_row(said) for said in view.reviews],
        "reports": view.reports,
        "first_seen_s": unix_s(view.first_hlc),
        "last_seen_s": unix_s(view.last_hlc),
    }


def review_row(said: ReviewView) -> Row:
    """What one operator says of an object."""
    return {
        "operator": said.operator,
        "key": said.key,
        "verdict": said.verdict,
        "text": said.text,
        "seen": said.seen,
        "made_s": said.made_ms / 1000,
        "revision": said.revision,
        "digest": said.digest.hex(),
    }


def review_words(row: Mapping[str, Any]) -> str:
    """A row of `review_row` in words: alice (1f2e3d4c): relabel crack.

    >>> review_words({"operator": "alice", "key": "1f2e3d4c", "verdict": "relabel", "text": "crack"})
    'alice (1f2e3d4c): relabel crack'
    """
    return f"{row['operator']} ({row['key']}): {row['verdict']} {row['text']}".rstrip()


def cell_row(view: CellView, names: Mapping[NodeId, str]) -> Row:
    """One cell of the survey area."""
    return {
        "id": view.cell_id,
        "east_m": view.centre_east_cm / 100,
        "north_m": view.centre_north_cm / 100,
        "state": view.state,
        "holder": "" if view.holder is None else names.get(view.holder, view.holder.hex()),
        "done_by": [names.get(node, node.hex()) for node in view.done_by],
    }


def unix_s(stamp: int) -> float:
    """Seconds since 1970 of a swarm-time stamp, to the millisecond."""
    return round(stamp_ms(stamp) / 1000 + EPOCH_2020_NS / 1e9, 3)


def csv_text(rows: Iterable[Row]) -> str:
    """Rows as CSV; lists are joined with a space."""
    import csv
    import io

    table = list(rows)
    out = io.StringIO()
    if table:
        writer = csv.DictWriter(out, fieldnames=list(table[0]), lineterminator="\n")
        writer.writeheader()
        for row in table:
            writer.writerow({key: _cell(value) for key, value in row.items()})
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, list):
        value = " ".join(review_words(part) if isinstance(part, Mapping) else str(part) for part in value)
    # A spreadsheet must not take a label from another node for a formula.
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def _metres(value_cm: int | None) -> float | None:
    return None if value_cm is None else value_cm / 100


def _square_metres(covariance_cm2: tuple[int, int, int] | None) -> list[float] | None:
    return None if covariance_cm2 is None else [value / 10_000 for value in covariance_cm2]


def counters_answer(daemon: InParts) -> Mapping[str, Any]:
    """The swarm's counters by name of counter and of node, and their sums, in parts."""
    sums: dict[str, int] = {}

    def by_node() -> Iterator[Mapping[str, Any]]:
        names = daemon.names()
        for part in daemon.counters():
            sums.update((counter, sum(by.values())) for counter, by in part.items())
            yield {
                counter: {names.get(node, node.hex()): value for node, value in by.items()}
                for counter, by in part.items()
            }

    def summed() -> Iterator[Mapping[str, int]]:
        counters = list(sums.items())
        for at in range(0, len(counters), SUMS_A_PART):
            yield dict(counters[at : at + SUMS_A_PART])

    return {"by_node": Pairs(by_node()), "sums": Pairs(summed())}
