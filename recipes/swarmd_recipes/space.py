"""What a search may choose: the plan of a device class, the shapes of its space, and how a shape becomes a recipe.

A plan is a TOML file in `searches/`, or at a path. A shape is three numbers: the stem's channels, the depth, and the
frame's width; all other sizes follow from them, so that a latency table can hold every shape. Nothing here needs
PyTorch.
"""

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from swarmd_models.errors import ArtefactError

WIDTHS = (1, 2, 4, 7, 9)
"""Channels at strides 2 to 32, in stems: what small-320 (16) and tiny-224 (12) have."""
NECK = 4
"""Channels of the neck, in stems; likewise."""
BLOCKS = ((0, 1, 1, 0), (1, 1, 1, 1), (1, 2, 2, 1))
"""Residual blocks at strides 4 to 32, by depth; the last is small-320's."""
STRIDE = 32
"""Pixels: sides are multiples of the net's coarsest stride."""
SECOND = "zoo:small-320"
"""Whose second stage every member has, as it is committed."""
ASPECT = 0.8
"""Height of a frame by its width, before rounding to `STRIDE`: that of a thermal camera of 640 x 512."""
_MAX_SHAPES = 512
"""Of a space: each one is exported and measured, some ten seconds a shape."""
_WIDEST = 640
"""Pixels; the widest frame of the zoo."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One point of a space."""

    stem: int
    depth: int
    width: int

    @property
    def name(self) -> str:
        """Such as "w8-d1-160": of its files, and in what is said of it."""
        return f"w{self.stem}-d{self.depth}-{self.width}"

    @property
    def height(self) -> int:
        """Of a frame, pixels.

        >>> [Shape(8, 1, width).height for width in (128, 160, 192, 224)]
        [96, 128, 160, 192]
        """
        return max(1, round(ASPECT * self.width / STRIDE)) * STRIDE

    def net(self) -> dict[str, Any]:
        """The `[net]` table of its recipe."""
        widths = [self.stem * times for times in WIDTHS]
        return {"widths": widths, "blocks": list(BLOCKS[self.depth]), "neck": NECK * self.stem}


@dataclass(frozen=True, slots=True)
class Proxy:
    """The `[proxy]` table: the short training that a trial is judged by."""

    trials: int
    """Different shapes that are trained."""
    steps: int
    batch: int
    frames: int
    """Composed frames that a score comes from."""


@dataclass(frozen=True, slots=True)
class Full:
    """The `[full]` table: who is trained in full, and how long."""

    steps: int
    batch: int
    finalists: int
    neighbour: str
    """The bundle whose time bounds that of a finalist."""
    latency_share: float
    """Of the neighbour's first stage, above 0."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that decides a search, but for the data and the latency table."""

    name: str
    seed: int
    base: str
    """Recipe that scenes and rates are taken from."""
    member: str
    view_m: float
    """Ground across a frame, metres."""
    shapes: tuple[Shape, ...]
    proxy: Proxy
    full: Full

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all of it, as hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def searches() -> Path:
    """The folder of the plans that ship with the recipes, with their latency tables."""
    return Path(__file__).with_name("searches")


def load_plan(name: str) -> Plan:
    """Read a plan that ships with the recipes, or one at a path.

    Args:
        name: Such as "slow-core", or a path ending in .toml.

    Raises:
        ArtefactError: There is no such plan, or it says something impossible.
    """
    path = Path(name) if name.endswith(".toml") else searches() / f"{name}.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        known = ", ".join(sorted(p.stem for p in searches().glob("*.toml")))
        raise ArtefactError(f"search {name}: {error}; known searches: {known}") from error
    try:
        plan = Plan(
            str(data["name"]),
            int(data["seed"]),
            str(data["base"]),
            str(data["member"]),
            float(data["view_m"]),
            _shapes(data["space"]),
            _table(Proxy, data["proxy"]),
            _table(Full, data["full"]),
        )
        _check(plan)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"search {path}: {error}") from error
    return plan


def _shapes(space: dict[str, Any]) -> tuple[Shape, ...]:
    axes = {name: [int(value) for value in space[name]] for name in ("stem", "depth", "width")}
    if unknown := sorted(set(space) - set(axes)):
        raise ValueError(f"[space] {unknown[0]} is not known; known: {', '.join(axes)}")
    for stem in axes["stem"]:
        if not 2 <= stem <= 64 or stem % 2:
            raise ValueError(f"[space] stem {stem}: an even number of channels from 2 to 64")
    for depth in axes["depth"]:
        if not 0 <= depth < len(BLOCKS):
            raise ValueError(f"[space] depth {depth}: 0 to {len(BLOCKS) - 1}")
    for width in axes["width"]:
        if not STRIDE <= width <= _WIDEST or width % STRIDE:
            raise ValueError(f"[space] width {width}: a multiple of {STRIDE} up to {_WIDEST} pixels")
    found = tuple(Shape(*values) for values in product(*(sorted(set(axis)) for axis in axes.values())))
    if not 1 <= len(found) <= _MAX_SHAPES:
        raise ValueError(f"[space] has {len(found)} shapes; 1 to {_MAX_SHAPES} can be measured")
    return found


def _table(kind: Any, values: dict[str, Any]) -> Any:
    known = {field.name: field.type for field in fields(kind)}
    if unknown := sorted(set(values) - set(known)):
        raise ValueError(f"unknown key {unknown[0]!r}; known: {', '.join(known)}")
    return kind(**{name: known[name](values[name]) for name in known})  # type: ignore[operator]


def _check(plan: Plan) -> None:
    if not 1 <= plan.proxy.trials <= len(plan.shapes):
        raise ValueError(f"[proxy] trials is {plan.proxy.trials}; the space has {len(plan.shapes)} shapes")
    if not 1 <= plan.full.finalists <= plan.proxy.trials:
        raise ValueError(f"[full] finalists is {plan.full.finalists}; 1 to [proxy] trials, {plan.proxy.trials}")
    for value in (plan.proxy.steps, plan.proxy.batch, plan.proxy.frames, plan.full.steps, plan.full.batch):
        if value < 1:
            raise ValueError("steps, batch and frames are at least 1")
    if not plan.full.latency_share > 0.0 or not plan.view_m > 0.0:
        raise ValueError("latency_share and view_m are above 0")


def recipe_of(plan: Plan, shape: Shape, is_full: bool) -> dict[str, Any]:
    """The recipe of a shape, as its TOML says it: for a trial (no second stage of its own, no teacher), or in full.

    The second stage is the zoo's as it is committed, so that nothing has to be trained before.
    """
    path = Path(__file__).with_name(f"{plan.base}.toml")
    try:
        base = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ArtefactError(f"search {plan.name}: its base {plan.base}: {error}") from error
    length = plan.full if is_full else plan.proxy
    scene = base["scene"] | {
        "width": shape.width,
        "height": shape.height,
        "pixel_m": round(plan.view_m / shape.width, 4),
    }
    train = {
        "steps": length.steps,
        "batch": length.batch,
        "learning_rate": 2e-3,
        "weight_decay": base["train"]["weight_decay"],
        "teacher_epochs": 0,
    }
    return {
        "format": 1,
        "name": f"{plan.member}-{shape.width}" if is_full else shape.name,
        "version": "1",
        "seed": plan.seed,
        "scene": scene,
        "net": shape.net(),
        "train": train,
        "second": {"take_from": SECOND},
    }


def recipe_toml(recipe: dict[str, Any], about: str) -> str:
    """A recipe of `recipe_of` as a TOML file with a comment above it."""
    lines = [f"# {line}" for line in about.splitlines()]
    lines += [f"{key} = {json.dumps(value)}" for key, value in recipe.items() if not isinstance(value, dict)]
    for name, table in recipe.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"
