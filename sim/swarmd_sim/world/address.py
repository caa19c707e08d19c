"""`sim://farm?…`: what may be asked of a simulated drone, checked before anything heavy is imported."""

import dataclasses
import difflib
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from swarmd_models.errors import SourceError
from swarmd_sim.world.farm import Farm

_FLY = ("auto", "lanes", "claims")
_PACE = ("real", "max")
_MAX_URL = 2_000


@dataclass(frozen=True, slots=True)
class FarmUrl:
    """Every key of a `sim://farm` address with its default."""

    drone: int = 1
    """This drone, 1 to `of`."""
    of: int = 1
    seed: int = 7
    faults: float = 0.025
    tables: int = 24
    modules: int = 40
    cell_m: float = 20.0
    fps: float = 10.0
    speed: float = 12.0
    """Metres a second."""
    height: float = 25.0
    """Metres above ground."""
    size: str = "320x256"
    """Pixels of a frame, width x height."""
    hfov: float = 32.13
    """Horizontal field of view, degrees."""
    fly: str = "auto"
    """`lanes`: its own share of lanes; `claims`: hover until a cell is assigned; `auto`: lanes until the first one."""
    pace: str = "real"
    """`real`: by the clock, late readers miss frames; `max`: every frame, as fast as it is read."""
    frames: int = 0
    """End after so many; 0 = no limit."""
    laps: int = 1
    """How often the own share is flown before the source ends (`lanes` only); 0 = for ever."""
    noise: float = 1.0
    """Factor on all sensor noise."""
    position_sigma: float = 0.1
    """Error of the position that the drone knows, metres, per axis."""
    attitude_sigma: float = 0.003
    """Error of the attitude that the drone knows, radians, per axis."""
    battery: float = 1.0
    drain: float = 0.0005
    """Battery share used a second."""

    def farm(self) -> Farm:
        """The farm that this address speaks of; the same for all its drones."""
        return Farm.build(self.seed, self.tables, self.modules, self.faults, self.cell_m)

    @property
    def frame_size(self) -> tuple[int, int]:
        """Width and height, pixels."""
        width, _, height = self.size.partition("x")
        return int(width), int(height)


_RANGES: dict[str, tuple[float, float]] = {
    "drone": (1, 1000),
    "of": (1, 1000),
    "seed": (-(2**62), 2**62),
    "faults": (0.0, 1.0),
    "tables": (1, 600),
    "modules": (1, 200),
    "cell_m": (2.0, 10_000.0),
    "fps": (0.1, 240.0),
    "speed": (0.1, 60.0),
    "height": (5.0, 120.0),
    "hfov": (5.0, 120.0),
    "frames": (0, 2**31),
    "laps": (0, 2**31),
    "noise": (0.0, 10.0),
    "position_sigma": (0.0, 10.0),
    "attitude_sigma": (0.0, 0.2),
    "battery": (0.0, 1.0),
    "drain": (0.0, 1.0),
}


def parse_farm_url(url: str) -> FarmUrl:
    """Read a `sim://farm?…` address.

    Args:
        url: Such as "sim://farm?drone=1&of=4&seed=7&faults=0.02".

    Returns:
        All its keys, with defaults for those not given.

    Raises:
        SourceError: It is no such address, or a key or value is none of ours; the message says what would be.

    >>> parse_farm_url("sim://farm?drone=2&of=4").drone
    2
    """
    if len(url) > _MAX_URL:
        raise SourceError(f"the sim:// address has {len(url)} characters; at most {_MAX_URL} are read")
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise SourceError(f"{url!r} is no address: {error}") from error
    if parts.scheme != "sim" or parts.netloc != "farm" or parts.path not in ("", "/"):
        raise SourceError(f"{url!r}: the simulated world is sim://farm?drone=1&of=4&seed=7")
    values: dict[str, int | float | str] = {}
    types = {f.name: type(f.default) for f in dataclasses.fields(FarmUrl)}
    for key, text in pairs:
        if key not in types:
            near = difflib.get_close_matches(key, types, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(sorted(types))}"
            raise SourceError(f"{url!r}: unknown key {key!r}; {hint}")
        if key in values:
            raise SourceError(f"{url!r}: {key} is given twice")
        values[key] = _value(url, key, text, types[key])
    address = FarmUrl(**values)  # type: ignore[arg-type]
    if address.drone > address.of:
        raise SourceError(f"{url!r}: drone is {address.drone} of only {address.of}; count from 1")
    return address


def _value(url: str, key: str, text: str, kind: type) -> int | float | str:
    if kind is str:
        return _word(url, key, text)
    try:
        number = int(text) if kind is int else float(text)
    except ValueError as error:
        raise SourceError(
            f"{url!r}: {key} is {text!r}; it must be {'an integer' if kind is int else 'a number'}"
        ) from error
    low, high = _RANGES[key]
    if not low <= number <= high:
        raise SourceError(f"{url!r}: {key} is {text}; it must lie between {low:g} and {high:g}")
    return number


def _word(url: str, key: str, text: str) -> str:
    if key == "size":
        width, cross, height = text.partition("x")
        fits = cross and width.isascii() and width.isdigit() and height.isascii() and height.isdigit()
        if not fits or not 64 <= int(width[:6]) <= 1920 or not 64 <= int(height[:6]) <= 1536:
            raise SourceError(f"{url!r}: size is {text!r}; it must be WIDTHxHEIGHT, 64x64 to 1920x1536")
        return text
    known = _FLY if key == "fly" else _PACE
    if text not in known:
        raise SourceError(f"{url!r}: {key} is {text!r}; it must be one of {', '.join(known)}")
    return text
