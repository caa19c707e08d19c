"""Rules shared by everything that speaks ROS messages, with and without DDS: covariance, levels, cell states."""

from swarmd_protocols.effects import MemberState
from swarmd_protocols.state.observations import ObjectView

FRAME = "map"
EARTH = "earth"
"""Source: REP 105."""
DIAGNOSTIC_LEVELS = {
    MemberState.ALIVE: 0,
    MemberState.SUSPECT: 1,
    MemberState.DEGRADED: 1,
    MemberState.AWAY: 1,
    MemberState.UNREACHABLE: 1,
    MemberState.LEFT: 3,
    MemberState.FAILED: 2,
}
EVENT_LEVELS = {"info": 0, "warning": 1, "error": 2}
CELL_STATES = {"open": 0, "claimed": 1, "done": 2}


def review_statuses(view: ObjectView) -> list[tuple[int, str, str, str, list[tuple[str, str]]]]:
    """What operators say of an object, as the parts of a diagnostic_msgs/DiagnosticStatus: level, name (the object),
    message, hardware id (the operator's key), values."""
    return [
        (
            1 if view.review == "disputed" else 0,
            f"object/{view.object_id}",
            f"{said.operator}: {said.verdict} {said.text}".rstrip(),
            said.key,
            [
                ("review", view.review),
                ("verdict", said.verdict),
                ("text", said.text),
                ("operator", said.operator),
                ("seen", said.seen),
                ("made_s", f"{said.made_ms / 1000:.3f}"),
                ("digest", said.digest.hex()),
            ],
        )
        for said in view.reviews
    ]


def covariance36(covariance_cm2: tuple[int, int, int] | None) -> list[float]:
    """A 2 x 2 covariance in the east-north plane as the 6 x 6 of ROS; the height is unknown (1e6 square metres)."""
    values = [0.0] * 36
    east, cross, north = covariance_cm2 or (10**10, 0, 10**10)
    values[0], values[1], values[6], values[7] = east / 1e4, cross / 1e4, cross / 1e4, north / 1e4
    values[14] = 1e6
    return values
