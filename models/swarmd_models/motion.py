"""How a box goes on through pictures without a pose: a Kalman filter of constant velocity for its centre.

Distances count in box sizes and times in seconds, so that one set of numbers serves a far thing and a near one, a
camera of 30 frames a second and one of three. Both axes are equally uncertain, so they share one covariance. What
all things do at once is the camera's doing (`sway`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # It loads NumPy, which a brain that reads a bundle has no use for.
    from swarmd_models.association import Box


STILL_LOST_MS = 700
"""Milliseconds for which a thing that stands still is remembered out of sight, unless its bundle says otherwise."""
MOVING_LOST_MS = 1000
"""The same for what moves by itself: people hide each other for longer than 0.7 s (`docs/performance/eye.md`)."""
SIGHT_SIGMA = 0.07
"""Box sizes by which a detector misses a centre; from 0.05 to 0.15 two clips of walkers differ by 0.005 in IDF1."""
ACCELERATION = 0.06
"""Box sizes² a second³: how fast a velocity wanders while nothing says that it changes (white acceleration). Less suits
walkers, more suits what turns: `tests/bench/bench_tracking.py`."""
FIRST_SPEED_SIGMA = 2.0
"""Box sizes a second at which something may move that was seen once."""
SURPRISE = 9.0
"""Squared sigmas beyond which two sights in a row, off the same way, say that the velocity has changed. One alone is
as often a box that something hides half of."""
SHORTEST_S = 1e-3
"""Seconds between two frames below which no velocity is learned from them: a clock's grain would become a speed."""
SIZE_SHARE = 0.5
"""Weight of the newest width and height in the kept ones: half-hidden things are seen smaller."""
MIN_WITNESSES = 3
"""Things that must be off the same way before the camera is what moved."""
WITNESS_SHARE = 0.6
"""Of the things in sight, at least so many must agree."""
AGREEMENT = 0.2
"""Box sizes within which two things are off by the same."""
LEAST_SWAY = 0.1
"""Box sizes that a camera's own motion is worth following."""
SWAY_SHARE = 0.5
"""Of a camera's surprising motion, the share that goes on."""


@dataclass(slots=True)
class Motion:
    """Where the centre of one box is and goes, pixels and seconds, at the time of its last sight."""

    at_ns: int
    x: float
    y: float
    width: float
    height: float
    vx: float = 0.0
    vy: float = 0.0
    place_var: float = 0.0
    cross_var: float = 0.0
    speed_var: float = 0.0
    """Of the place in pixels², of both in pixels² a second, of the velocity in pixels² a second²; either axis."""
    off_x: float = 0.0
    off_y: float = 0.0
    """By how much the last sight surprised, pixels; 0 where it did not."""

    @classmethod
    def begin(cls, box: "Box", at_ns: int) -> "Motion":
        """Something seen for the first time."""
        x1, y1, x2, y2 = box
        motion = cls(at_ns, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)
        scale2 = motion.scale2()
        motion.place_var = SIGHT_SIGMA**2 * scale2
        motion.speed_var = FIRST_SPEED_SIGMA**2 * scale2
        return motion

    def scale2(self) -> float:
        """The square of the box's size, pixels²; at least 1."""
        return max(self.width * self.height, 1.0)

    def box_at(self, at_ns: int) -> "Box":
        """The box at a time, which is not before the last sight."""
        dt = (at_ns - self.at_ns) / 1e9
        x, y = self.x + self.vx * dt, self.y + self.vy * dt
        half_w, half_h = self.width / 2, self.height / 2
        return (x - half_w, y - half_h, x + half_w, y + half_h)

    def take(self, box: "Box", at_ns: int) -> None:
        """Learn from where it is now seen, at a time not before the last sight."""
        x1, y1, x2, y2 = box
        dt, scale2 = (at_ns - self.at_ns) / 1e9, self.scale2()
        noise = ACCELERATION * scale2
        off_x = (x1 + x2) / 2 - self.x - self.vx * dt
        off_y = (y1 + y2) / 2 - self.y - self.vy * dt
        sight = SIGHT_SIGMA**2 * scale2
        place, cross = self._spread(dt, noise)
        surprise = max(off_x * off_x, off_y * off_y) / (place + sight)
        is_same_way = off_x * self.off_x + off_y * self.off_y > 0
        self.off_x, self.off_y = (off_x, off_y) if surprise > SURPRISE else (0.0, 0.0)
        if surprise > SURPRISE and is_same_way and dt > SHORTEST_S:
            # As much acceleration as makes this sight three sigmas: the velocity is learned anew, not step by step.
            noise += (surprise / SURPRISE - 1) * (place + sight) * 3 / dt**3
            place, cross = self._spread(dt, noise)
        speed = self.speed_var + noise * dt
        total = place + sight
        gain, speed_gain = place / total, cross / total
        self.x += self.vx * dt + gain * off_x
        self.y += self.vy * dt + gain * off_y
        self.vx += speed_gain * off_x
        self.vy += speed_gain * off_y
        self.place_var = place * (1 - gain)
        self.cross_var = cross * (1 - gain)
        self.speed_var = speed - speed_gain * cross
        self.width += SIZE_SHARE * (x2 - x1 - self.width)
        self.height += SIZE_SHARE * (y2 - y1 - self.height)
        self.at_ns = at_ns

    def off_from(self, box: "Box", at_ns: int) -> tuple[float, float, float]:
        """How far right and down of where it is expected a box is, and the size of what is expected; pixels."""
        x1, y1, x2, y2 = self.box_at(at_ns)
        return (box[0] + box[2] - x1 - x2) / 2, (box[1] + box[3] - y1 - y2) / 2, math.sqrt(self.scale2())

    def carry(self, dx: float, dy: float, at_ns: int, frame_ns: int) -> None:
        """The camera has moved everything by so many pixels more than expected, and goes on with a share of that.

        Args:
            dx: To the right, in the frame at `at_ns`.
            dy: Downwards.
            at_ns: Time of that frame.
            frame_ns: Since the frame before it.
        """
        share = SWAY_SHARE * 1e9 / frame_ns if frame_ns > SHORTEST_S * 1e9 else 0.0
        more_x, more_y = share * dx, share * dy
        age = (at_ns - self.at_ns) / 1e9
        self.x += dx - more_x * age
        self.y += dy - more_y * age
        self.vx += more_x
        self.vy += more_y

    def _spread(self, dt: float, noise: float) -> tuple[float, float]:
        """Variance of the place, and its covariance with the velocity, after a time; by the model's integrals.

        Source:
            Bar-Shalom, Li, Kirubarajan, "Estimation with Applications to Tracking and Navigation", 6.2.2.
        """
        place = self.place_var + 2 * self.cross_var * dt + self.speed_var * dt * dt + noise * dt**3 / 3
        return place, self.cross_var + self.speed_var * dt + noise * dt * dt / 2


def sway(offs: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """By how many pixels a camera has moved more than was expected; (0, 0) where things do not agree on it.

    Args:
        offs: Of each thing in sight: how far right and down it is of where it was expected, and its size; pixels.

    >>> sway([(10.0, 1.0, 40.0), (11.0, 0.0, 40.0), (12.0, 0.0, 40.0), (-30.0, 0.0, 40.0)])
    (10.0, 0.0)
    >>> sway([(10.0, 0.0, 40.0), (11.0, 0.0, 40.0)])
    (0.0, 0.0)
    """
    if len(offs) < MIN_WITNESSES:
        return 0.0, 0.0
    dx, dy = median_low(off[0] for off in offs), median_low(off[1] for off in offs)
    size = median_low(off[2] for off in offs)
    if max(abs(dx), abs(dy)) < LEAST_SWAY * size:
        return 0.0, 0.0
    agreeing = sum(1 for x, y, own in offs if max(abs(x - dx), abs(y - dy)) < AGREEMENT * own)
    return (dx, dy) if agreeing >= max(MIN_WITNESSES, WITNESS_SHARE * len(offs)) else (0.0, 0.0)
