"""A lens that bends: where a ray of an ideal camera lands, and back.

Only points are bent back (middles and corners of boxes), never pictures. Where a lens's polynomial turns round, it says
nothing: there is no pixel and no ray, rather than one of the wrong side.

Source:
    OpenCV's camera model: Brown-Conrady (k1, k2, p1, p2, k3; ROS calls it plumb_bob), rational with k4..k6 below the
    line, and the equidistant fisheye of Kannala and Brandt (k1..k4 over the angle).
"""

import math
from dataclasses import dataclass

_STEPS = 30
"""Iterations that undo a distortion; each gains about a digit on usual lenses."""
_CLOSE = 1e-5
"""Distance from what was asked for at which an undone point counts: hundredths of a pixel at 1,000 pixels of focus."""
_WIDEST = 3.0
"""Tangent of the flattest ray that is looked at, 71 degrees from the axis; of a fisheye, its angle in radians is."""
_GRAIN = 0.01
"""Steps by which the end of a lens's range is sought."""
MAX_COEFFICIENT = 1e4
"""Above this a coefficient is no lens's."""


@dataclass(frozen=True, slots=True)
class Distortion:
    """What a lens does to points at distance 1 in front of it."""

    coefficients: tuple[float, ...]
    """k1, k2, p1, p2[, k3[, k4, k5, k6]]; of a fisheye k1..k4."""
    is_fisheye: bool
    reach: float
    """Up to this tangent (fisheye: angle, radians) the lens is one to one."""

    @classmethod
    def of(cls, coefficients: tuple[float, ...], is_fisheye: bool = False) -> "Distortion":
        """A lens of so many coefficients.

        Raises:
            ValueError: They are of no number that is known, not finite, or no lens's.
        """
        wanted = (4,) if is_fisheye else (4, 5, 8)
        if len(coefficients) not in wanted:
            raise ValueError(f"{len(coefficients)} coefficients of distortion; {wanted} can be used")
        if not all(math.isfinite(k) and abs(k) < MAX_COEFFICIENT for k in coefficients):
            raise ValueError("a coefficient of distortion is no lens's")
        lens = cls(coefficients, is_fisheye, _WIDEST)
        reach, before = _GRAIN, lens._radius(_GRAIN)
        while reach < (math.pi / 2 if is_fisheye else _WIDEST):
            after = lens._radius(reach + _GRAIN)
            if after is None or before is None or after <= before:
                break
            reach, before = reach + _GRAIN, after
        if reach < 0.05:
            raise ValueError("this distortion leaves no picture")
        return cls(coefficients, is_fisheye, reach)

    def bend(self, x: float, y: float) -> tuple[float, float] | None:
        """Where the ray (1 forward, x right, y down) lands, in focal lengths; None beyond the lens's range."""
        r = math.hypot(x, y)
        if self.is_fisheye:
            angle = math.atan(r)
            radius = self._radius(angle) if angle <= self.reach else None
            if radius is None:
                return None
            share = radius / r if r > 1e-9 else 1.0
            return x * share, y * share
        if r > self.reach:
            return None
        _, _, p1, p2 = self.coefficients[:4]
        radius = self._radius(r)
        if radius is None:
            return None
        share, r2 = (radius / r if r > 1e-9 else 1.0), r * r
        dx = 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
        dy = p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
        return x * share + dx, y * share + dy

    def undo(self, x: float, y: float) -> tuple[float, float] | None:
        """The ray that lands at a point, in focal lengths; None where none does."""
        if not (math.isfinite(x) and math.isfinite(y)):
            return None
        guess = self._guess(x, y)
        for _ in range(_STEPS):
            if guess is None:
                return None
            landed = self.bend(*guess)
            if landed is None:
                return None
            off_x, off_y = x - landed[0], y - landed[1]
            if abs(off_x) + abs(off_y) < _CLOSE:
                return guess
            guess = self._nearer(guess, landed, off_x, off_y)
        return None

    def _guess(self, x: float, y: float) -> tuple[float, float] | None:
        """Undone along the radius alone, by halving: it grows up to `reach`."""
        wanted = math.hypot(x, y)
        low, high = 0.0, self.reach
        end = self._radius(high)
        if end is None or wanted > 1.2 * end:
            return None
        for _ in range(40):
            middle = (low + high) / 2
            radius = self._radius(middle)
            low, high = (middle, high) if radius is not None and radius < wanted else (low, middle)
        tangent = math.tan(min(low, 1.55)) if self.is_fisheye else low
        share = tangent / wanted if wanted > 1e-9 else 1.0
        return x * share, y * share

    def _nearer(
        self, guess: tuple[float, float], landed: tuple[float, float], off_x: float, off_y: float
    ) -> tuple[float, float] | None:
        """A Newton step, with derivatives by difference."""
        small = 1e-6
        right, down = self.bend(guess[0] + small, guess[1]), self.bend(guess[0], guess[1] + small)
        if right is None or down is None:
            return None
        xx, yx = (right[0] - landed[0]) / small, (right[1] - landed[1]) / small
        xy, yy = (down[0] - landed[0]) / small, (down[1] - landed[1]) / small
        whole = xx * yy - xy * yx
        if abs(whole) < 1e-9:
            return None
        return guess[0] + (yy * off_x - xy * off_y) / whole, guess[1] + (xx * off_y - yx * off_x) / whole

    def _radius(self, at: float) -> float | None:
        """Radius at which a ray lands whose tangent (fisheye: angle) is this; None where the polynomial breaks."""
        r2 = at * at
        if self.is_fisheye:
            k1, k2, k3, k4 = self.coefficients
            return at * (1 + r2 * (k1 + r2 * (k2 + r2 * (k3 + r2 * k4))))
        k1, k2, _, _, k3, k4, k5, k6 = (*self.coefficients, 0.0, 0.0, 0.0, 0.0)[:8]
        below = 1 + r2 * (k4 + r2 * (k5 + r2 * k6))
        if below < 1e-3:
            return None
        return at * (1 + r2 * (k1 + r2 * (k2 + r2 * k3))) / below
