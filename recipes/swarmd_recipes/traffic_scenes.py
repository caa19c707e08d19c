"""Frames of traffic at crossings: road users and what may be taken for one, drawn as solids, with boxes and labels.

Frame `i` of a crossing depends on the crossing's number, the maker's seed and `i` alone. Far road users are a few
pixels: a detector of a small picture cannot tell a person from a bin there, a larger one can. Nothing here is a
photograph; what is learnt from it is worth something in such frames only.
"""

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.synthetic.compose import Grey, NoiseBank
from swarmd_models.synthetic.scenes import Scene
from swarmd_recipes.crossing import FINER, HEIGHT, WIDTH, Crossing, Floats, crossing_of

LABELS = ("car", "truck", "bus", "cyclist", "pedestrian")
CAR, TRUCK, BUS, CYCLIST, PEDESTRIAN = range(5)
TRAINING = 2_000
"""Number of the first crossing that nets are taught on; those below judge."""
CALIBRATION = 1_000
"""Number of the first crossing that thresholds and plans are set on; those below are the cameras of scenarios."""
_SHARES = (0.42, 0.1, 0.06, 0.17, 0.25)
"""Of the road users."""
_LEAST_PIXELS = 18
"""Of the frame that a thing covers, below which it is not told of."""
_LEAST_SEEN = 0.4
"""Share of a thing that others leave to be seen, below which it is not told of."""
_TRIES = 12
_SHIFT = 3
"""Binary places of a pixel in which OpenCV takes corners."""


@dataclass(frozen=True, slots=True)
class TrafficOptions:
    """What frames hold; the `[traffic]` table of a recipe."""

    width: int = WIDTH
    height: int = HEIGHT
    """Of the frames that a net is taught on: the camera's, made smaller."""
    crossings: int = 160
    """That it is taught on."""
    busy: float = 3.0
    """Road users in a frame on average, at most nine; what devices see is sparser (`USERS`)."""
    clutter: float = 2.0
    """Other things in a frame on average."""


USERS, CLUTTER = 0.9, 1.6
"""In a frame that a camera judges, on average: most in which something is new show no road user, or one."""


@dataclass(frozen=True, slots=True)
class _Solid:
    """A cuboid that stands on the ground, or above it: along its heading, across, from and to a height; metres."""

    along: tuple[float, float]
    across: tuple[float, float]
    up: tuple[float, float]
    level: float


@dataclass(frozen=True, slots=True)
class _Thing:
    """Something that stands in a crossing; the label is -1 for what is no road user."""

    label: int
    east_m: float
    north_m: float
    heading: float
    solids: tuple[_Solid, ...]

    def corners(self, one: _Solid) -> Floats:
        """Shape (8, 3): the lower four around, then the upper four."""
        c, s = np.cos(self.heading), np.sin(self.heading)
        x = np.array([one.along[0], one.along[1], one.along[1], one.along[0]])
        y = np.array([one.across[0], one.across[0], one.across[1], one.across[1]])
        flat = np.column_stack([self.east_m + x * c - y * s, self.north_m + x * s + y * c])
        return np.vstack([np.column_stack([flat, np.full(4, z)]) for z in one.up])


class TrafficMaker:
    """Draws frames. Not thread-safe; keeps the crossings that it has drawn."""

    def __init__(self, options: TrafficOptions, seed: int) -> None:
        """`seed`: of every frame."""
        self.options = options
        self._seed = seed
        self._noise = NoiseBank(WIDTH, HEIGHT, np.random.default_rng([seed, 1]))
        self._crossing = lru_cache(maxsize=512)(crossing_of)

    def scene(self, index: int) -> Scene:
        """Training frame number `index`, at the options' size."""
        at = int(np.random.default_rng([self._seed, 2, index]).integers(self.options.crossings))
        whole = self.seen(TRAINING + at, index, self.options.busy, self.options.clutter)
        size = (self.options.width, self.options.height)
        if size == (WIDTH, HEIGHT):
            return whole
        image = cv2.resize(whole.image, size, interpolation=cv2.INTER_LINEAR)  # As `preprocess.py` does.
        boxes = whole.boxes * np.array([size[0] / WIDTH, size[1] / HEIGHT] * 2, np.float32)
        return Scene(np.asarray(image, np.uint8), boxes, whole.label_index, whole.crop_index)

    def seen(self, number: int, index: int, users: float = USERS, clutter: float = CLUTTER) -> Scene:
        """Frame number `index` of one crossing's camera, at the camera's size; label -1: no road user."""
        crossing = self._crossing(number)
        rng = np.random.default_rng([self._seed, 3, number, index])
        things = [_user(crossing, rng) for _ in range(min(9, int(rng.poisson(users))))]
        things += [_clutter(crossing, rng) for _ in range(min(6, int(rng.poisson(clutter))))]
        things.sort(key=lambda one: -one.north_m)
        picture = crossing.picture.copy()
        if crossing.sun[2]:
            _shadows(picture, things, crossing)
        owner = np.zeros((HEIGHT, WIDTH), np.uint8)
        alone = [_draw(picture, owner, at, thing, crossing) for at, thing in enumerate(things, start=1)]
        for _ in range(crossing.rain):
            x, y = int(rng.integers(FINER * WIDTH)), int(rng.integers(FINER * HEIGHT))
            cv2.line(picture, (x, y), (x + 2, y + int(rng.integers(8, 22))), int(rng.integers(120, 200)), 1)
        small = cv2.resize(picture, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
        image = self._noise.apply(np.asarray(small, np.uint8), crossing.sensor, rng)
        return _truth(image, owner, things, alone, crossing)


def _truth(image: Grey, owner: Grey, things: list[_Thing], alone: list[int], crossing: Crossing) -> Scene:
    seen = np.bincount(owner.ravel(), minlength=len(things) + 1)[1:]
    boxes, labels = [], []
    for thing, covered, visible in zip(things, alone, seen.tolist(), strict=True):
        if visible >= max(_LEAST_PIXELS, _LEAST_SEEN * covered):
            points = np.vstack([crossing.mast.pixels(thing.corners(one)) for one in thing.solids])
            low, high = points.min(axis=0), points.max(axis=0)
            box = np.clip([*low, *high], 0.0, [WIDTH, HEIGHT, WIDTH, HEIGHT])
            boxes.append(box)
            labels.append(thing.label)
    count = len(labels)
    return Scene(
        image, np.array(boxes, np.float32).reshape(-1, 4), np.array(labels, np.int64), np.full(count, -1, np.int64)
    )


# --- Things ----------------------------------------------------------------------------------------------------------


def _user(crossing: Crossing, rng: np.random.Generator) -> _Thing:
    label = int(rng.choice(len(LABELS), p=_SHARES))
    place = (0.0, 0.0, 0.0)
    for _ in range(_TRIES):
        place = _place(label, crossing, rng)
        if _in_view(place, crossing):
            break
    return _Thing(label, *place, _solids(label, rng))


def _place(label: int, crossing: Crossing, rng: np.random.Generator) -> tuple[float, float, float]:
    """East, north and heading of a road user: on its lane, at the kerb, on a pavement or a zebra crossing."""
    road = crossing.roads[int(rng.integers(2))]
    along, way = rng.uniform(-38.0, 38.0), 1.0 if rng.random() < 0.5 else -1.0
    turn = 0.0 if way > 0 else np.pi
    if label == PEDESTRIAN:
        half = road.width_m / 2
        aside = rng.uniform(-half, half) if rng.random() < 0.35 else way * (half + rng.uniform(0.3, road.pavement_m))
        return (*road.at(along, aside), rng.uniform(0.0, 2 * np.pi))
    aside = -way * (road.width_m / 2 - 0.7 if label == CYCLIST else road.width_m / 4) + rng.normal(0.0, 0.2)
    return (*road.at(along, aside), road.angle + turn + rng.normal(0.0, 0.05))


def _in_view(place: tuple[float, float, float], crossing: Crossing) -> bool:
    (u, v), *_ = crossing.mast.pixels(np.array([[place[0], place[1], 0.6]]))
    return bool(4 < u < WIDTH - 4 and 4 < v < HEIGHT - 4 and place[1] > crossing.mast.north_m + 2.0)


def _solids(label: int, rng: np.random.Generator) -> tuple[_Solid, ...]:
    body = float(rng.uniform(25, 230))
    glass = float(rng.uniform(20, 60))
    if label == CAR:
        half, wide = rng.uniform(1.9, 2.4), rng.uniform(0.82, 0.95)
        back, front = -half * rng.uniform(0.5, 0.95), half * rng.uniform(0.2, 0.45)
        return (
            _Solid((-half, half), (-wide, wide), (0.25, 0.85), body),
            _Solid((back, front), (-0.88 * wide, 0.88 * wide), (0.85, 1.25), glass),
            _Solid((back + 0.2, front - 0.3), (-0.8 * wide, 0.8 * wide), (1.25, rng.uniform(1.35, 1.6)), body),
        )
    if label == TRUCK:
        half, tall = rng.uniform(3.0, 4.6), rng.uniform(2.6, 3.4)
        load = float(rng.uniform(60, 240))
        return (
            _Solid((-half, half), (-1.1, 1.1), (0.4, 0.9), 45.0),
            _Solid((-half, half - 2.2), (-1.2, 1.2), (0.9, tall), load),
            _Solid((half - 2.0, half), (-1.1, 1.1), (0.9, 1.7), body),
            _Solid((half - 2.0, half - 0.2), (-1.1, 1.1), (1.7, rng.uniform(2.1, 2.5)), glass),
        )
    if label == BUS:
        half = rng.uniform(5.0, 6.2)
        return (
            _Solid((-half, half), (-1.25, 1.25), (0.3, 1.2), body),
            _Solid((-half, half), (-1.25, 1.25), (1.2, 2.2), glass),
            _Solid((-half, half), (-1.25, 1.25), (2.2, 3.0), body),
        )
    if label == CYCLIST:
        wheel = float(rng.uniform(20, 70))
        return (
            _Solid((-0.85, -0.2), (-0.05, 0.05), (0.0, 0.65), wheel),
            _Solid((0.2, 0.85), (-0.05, 0.05), (0.0, 0.65), wheel),
            _Solid((-0.35, 0.3), (-0.2, 0.2), (0.55, 1.0), float(rng.uniform(25, 160))),
            _Solid((-0.25, 0.3), (-0.24, 0.24), (1.0, 1.5), body),
            _Solid((0.05, 0.3), (-0.12, 0.12), (1.5, 1.75), float(rng.uniform(60, 200))),
        )
    tall, legs = rng.uniform(1.5, 1.9), float(rng.uniform(25, 120))
    stride = rng.uniform(0.02, 0.25)
    return (
        _Solid((-stride - 0.1, -stride + 0.1), (-0.2, -0.03), (0.0, 0.48 * tall), legs),
        _Solid((stride - 0.1, stride + 0.1), (0.03, 0.2), (0.0, 0.48 * tall), legs),
        _Solid((-0.14, 0.14), (-0.25, 0.25), (0.46 * tall, 0.84 * tall), body),
        _Solid((-0.11, 0.11), (-0.1, 0.1), (0.84 * tall, tall), float(rng.uniform(60, 200))),
    )


def _clutter(crossing: Crossing, rng: np.random.Generator) -> _Thing:
    """A bin, a post, a planter, a box, a bench, a puddle: what a motion gate, or a small net, may take for somebody."""
    place = (0.0, 0.0, 0.0)
    for _ in range(_TRIES):
        road = crossing.roads[int(rng.integers(2))]
        half, side = road.width_m / 2, 1.0 if rng.random() < 0.5 else -1.0
        aside = side * (half + rng.uniform(0.2, road.pavement_m + 1.5)) if rng.random() < 0.7 else side * half * 0.6
        place = (*road.at(rng.uniform(-38.0, 38.0), aside), road.angle + rng.normal(0.0, 0.2))
        if _in_view(place, crossing):
            break
    level = float(rng.uniform(25, 220))
    kinds = (
        (_Solid((-0.3, 0.3), (-0.3, 0.3), (0.0, rng.uniform(0.9, 1.4)), level),),
        (_Solid((-0.1, 0.1), (-0.1, 0.1), (0.0, rng.uniform(1.0, 2.6)), level),
         _Solid((-0.15, 0.15), (-0.3, 0.3), (1.4, 1.9), float(rng.uniform(60, 230)))),
        (_Solid((-1.8, 1.8), (-0.8, 0.8), (0.0, rng.uniform(0.5, 1.3)), level),),
        (_Solid((-0.8, 0.8), (-0.25, 0.25), (0.0, 0.5), level), _Solid((-0.8, 0.8), (0.1, 0.25), (0.5, 0.95), level)),
        (_Solid((-1.5, 1.5), (-0.7, 0.7), (0.0, 0.01), level),),
        (_Solid((-3.0, 3.0), (-1.2, 1.2), (0.0, rng.uniform(1.8, 2.6)), level),),
    )  # fmt: skip
    return _Thing(-1, *place, kinds[int(rng.choice(6, p=(0.28, 0.28, 0.14, 0.1, 0.14, 0.06)))])


# --- Drawing ---------------------------------------------------------------------------------------------------------


def _fill(picture: Grey, points: Floats, level: float, finer: int) -> None:
    cv2.fillConvexPoly(
        picture, (points * finer * (1 << _SHIFT)).round().astype(np.int32), float(min(255.0, level)), shift=_SHIFT
    )


def _shadows(picture: Grey, things: list[_Thing], crossing: Crossing) -> None:
    """What stands in the sun's way, on the ground behind it."""
    mask = np.zeros_like(picture)
    east, north, tangent = crossing.sun
    for thing in things:
        for one in thing.solids:
            corners = thing.corners(one)
            corners[:, :2] -= np.outer(corners[:, 2] / tangent, (east, north))
            corners[:, 2] = 0.0
            hull = cv2.convexHull(crossing.mast.pixels(corners).astype(np.float32))[:, 0]
            _fill(mask, np.asarray(hull, np.float64), 255.0, FINER)
    dark: npt.NDArray[np.bool_] = mask > 0
    picture[dark] = (picture[dark].astype(np.uint16) * 150 >> 8).astype(np.uint8)


def _draw(picture: Grey, owner: Grey, at: int, thing: _Thing, crossing: Crossing) -> int:
    """Draw a thing, and note in `owner` where it is; returns the pixels that it would cover alone."""
    mast = crossing.mast
    camera = np.array([0.0, mast.north_m, mast.height_m])
    whole = np.zeros_like(owner)
    for one in thing.solids:
        corners = thing.corners(one)
        pixels = mast.pixels(corners)
        for side in range(4):
            around = [side, (side + 1) % 4, 4 + (side + 1) % 4, 4 + side]
            edge = corners[around[1]] - corners[around[0]]
            outward = np.array([edge[1], -edge[0], 0.0]) / max(float(np.hypot(edge[0], edge[1])), 1e-9)
            if outward @ (camera - corners[side]) > 0.0:
                lit = max(0.0, float(outward[:2] @ np.array(crossing.sun[:2]))) if crossing.sun[2] else 0.4
                _fill(picture, pixels[around], one.level * (0.6 + 0.3 * lit), FINER)
        _fill(picture, pixels[4:], one.level * 1.05, FINER)
        hull = cv2.convexHull(pixels.astype(np.float32))[:, 0]
        _fill(whole, np.asarray(hull, np.float64), 1.0, 1)
    owner[whole > 0] = at
    if crossing.is_dusk and thing.label in (CAR, TRUCK, BUS):
        _headlights(picture, thing, crossing)
    return int(np.count_nonzero(whole))


def _headlights(picture: Grey, thing: _Thing, crossing: Crossing) -> None:
    front = max(one.along[1] for one in thing.solids)
    for across in (-0.65, 0.65):
        spot = thing.corners(_Solid((front, front), (across, across), (0.6, 0.6), 255.0))[0]
        facing = np.array([np.cos(thing.heading), np.sin(thing.heading)]) @ np.array(
            [-spot[0], crossing.mast.north_m - spot[1]]
        )
        if facing > 0.0:
            u, v = crossing.mast.pixels(spot[None])[0] * FINER
            cv2.circle(picture, (round(float(u)), round(float(v))), 3, 255, -1)
