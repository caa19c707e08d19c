"""Rules shared by everything that speaks ROS messages, with and without DDS: covariance, levels, cell states."""

from swarmd_protocols.effects import MemberState

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


def covariance36(covariance_cm2: tuple[int, int, int] | None) -> list[float]:
    """A 2 x 2 covariance in the east-north plane as the 6 x 6 of ROS; the height is unknown (1e6 square metres)."""
    values = [0.0] * 36
    east, cross, north = covariance_cm2 or (10**10, 0, 10**10)
    values[0], values[1], values[6], values[7] = east / 1e4, cross / 1e4, cross / 1e4, north / 1e4
    values[14] = 1e6
    return values
