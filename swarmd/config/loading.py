"""Loading the configuration: files, then environment, then flags; every value remembers where it came from.

Order, later wins: defaults, `swarmd.toml`, `swarmd.toml.d/*.toml` by name, `SWARMD_SECTION__KEY`, flags. All problems
are found before any is reported, each with its file and line, and an unknown key comes with the nearest known one.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from swarmd.config.bridges import fed_prefix_problem, plugins_problem, reply_prefix_problem
from swarmd.config.casts import casts_problem
from swarmd.config.privacy import mask_problem
from swarmd.config.sections import LOOK, Config, OperatorsSection, sections
from swarmd.config.whom import impossible
from swarmd.errors import ConfigError

DEFAULT_PATH = Path("/etc/swarmd/swarmd.toml")
FILE_MAX_BYTES = 1 << 20
"""Bytes of one file: the whole reference page has some 20 kB."""
_HEADER = re.compile(r"\s*\[\s*([A-Za-z0-9_-]+)\s*\]")
_KEY = re.compile(r"\s*([A-Za-z0-9_.-]+)\s*=")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration with the origin of every value."""

    config: Config
    origins: Mapping[tuple[str, str], str]
    """(section, key) to "default", "FILE:LINE", "environment NAME" or "flag --x"."""
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Setting:
    section: str
    key: str
    value: object
    origin: str


def load(
    path: Path | None = None, environment: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> Loaded:
    """Read and check everything.

    Args:
        path: The main file; it must exist. None: `/etc/swarmd/swarmd.toml` where there is one.
        environment: Variables; those that start with `SWARMD_` and hold `__` count.
        flags: "section.key" to a value of the field's type, from the command line.

    Returns:
        The merged configuration.

    Raises:
        ConfigError: Lists every problem, one a line.
    """
    problems: list[str] = []
    settings: list[_Setting] = []
    files = _files(path, problems)
    for file in files:
        settings += _read_file(file, problems)
    settings += _read_environment(environment or {}, problems)
    for name, value in (flags or {}).items():
        section, _, key = name.partition(".")
        settings.append(_Setting(section, key, value, f"flag {_flag_of(section, key)}"))
    loaded = _merge(settings, files, problems)
    if problems:
        raise ConfigError("\n".join(problems))
    return loaded


def _files(path: Path | None, problems: list[str]) -> tuple[Path, ...]:
    main = path if path is not None else DEFAULT_PATH
    if not main.exists():
        if path is not None:
            problems.append(f"{path}: there is no such file; give -c an existing TOML file")
        return ()
    folder = main.with_name(main.name + ".d")
    return (main, *sorted(folder.glob("*.toml")))


def _read_file(file: Path, problems: list[str]) -> list[_Setting]:
    import tomllib

    try:
        raw = file.read_bytes()
        if len(raw) > FILE_MAX_BYTES:
            problems.append(f"{file}: {len(raw)} bytes; a configuration has at most {FILE_MAX_BYTES}")
            return []
        text = raw.decode("utf-8")
        tree = tomllib.loads(text)
    except OSError as error:
        problems.append(f"{file}: cannot be read: {error.strerror}")
        return []
    except UnicodeDecodeError as error:
        problems.append(f"{file}: is not UTF-8 (byte {error.start})")
        return []
    except (ValueError, RecursionError) as error:  # A number of thousands of digits is the former, and no TOML error.
        problems.append(f"{file}: is no valid TOML: {error}")
        return []
    lines = _line_numbers(text)
    settings = []
    for section, table in tree.items():
        place = f"{file}:{lines.get((section, ''), 1)}"
        if not isinstance(table, dict):
            problems.append(f"{place}: `{section}` stands outside a section; write it under one, such as [node]")
            continue
        for key, value in table.items():
            line = lines.get((section, key), lines.get((section, ""), 1))
            settings.append(_Setting(section, key, value, f"{file}:{line}"))
    return settings


def _line_numbers(text: str) -> dict[tuple[str, str], int]:
    """Where each (section, key) stands; tomllib does not say, and a wrong guess only costs a line number."""
    found: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = header[1]
            found.setdefault((section, ""), number)
        elif key := _KEY.match(line):
            name = key[1] if section else key[1].partition(".")[2]
            place = section or key[1].partition(".")[0]
            found.setdefault((place, ""), number)
            found.setdefault((place, name), number)
    return found


def _read_environment(environment: Mapping[str, str], problems: list[str]) -> list[_Setting]:
    settings = []
    for name in sorted(environment):
        if not name.startswith("SWARMD_") or "__" not in name:
            continue
        section, _, key = name[len("SWARMD_") :].lower().partition("__")
        raw = environment[name]
        field = _field(section, key)
        value: object = raw
        if field is not None:
            try:
                value = parse_text(raw, _kind(section, key))
            except ValueError as error:
                problems.append(f"environment {name}: {error}")
                continue
        settings.append(_Setting(section, key, value, f"environment {name}"))
    return settings


def parse_text(raw: str, kind: object) -> object:
    """Turn a variable's or flag's text into a value of a field's type.

    Raises:
        ValueError: The text is none; the message says what would be.
    """
    if kind is bool:
        if raw.lower() in ("1", "true", "yes", "on"):
            return True
        if raw.lower() in ("0", "false", "no", "off"):
            return False
        raise ValueError(f"{raw!r} is neither true nor false")
    if kind is int or kind is float:
        try:
            return int(raw) if kind is int else float(raw)
        except ValueError:
            raise ValueError(f"{raw!r} is no {'whole number' if kind is int else 'number'}") from None
    if kind is str:
        return raw
    parts = [part.strip() for part in raw.split(",") if part.strip()]
    if kind == tuple[float, ...]:
        return [parse_text(part, float) for part in parts]
    return parts


def _merge(settings: Iterable[_Setting], files: tuple[Path, ...], problems: list[str]) -> Loaded:
    values: dict[str, dict[str, Any]] = {name: {} for name in sections()}
    origins = {(name, f.name): "default" for name, kind in sections().items() for f in dataclasses.fields(kind)}
    for setting in settings:
        if problem := _unknown(setting):
            problems.append(f"{setting.origin}: {problem}")
            continue
        try:
            values[setting.section][setting.key] = _checked(setting)
            origins[(setting.section, setting.key)] = setting.origin
        except ValueError as error:
            problems.append(f"{setting.origin}: {setting.section}.{setting.key} {error}")
    built = {name: kind(**values[name]) for name, kind in sections().items()}
    config = Config(**built)
    problems += _together(config, origins)
    return Loaded(config, origins, files)


def _unknown(setting: _Setting) -> str:
    known = sections()
    if setting.section not in known:
        return f"there is no section [{setting.section}]{_nearest(setting.section, known)}"
    if _field(setting.section, setting.key) is None:
        names = [f.name for f in dataclasses.fields(known[setting.section])]
        elsewhere = [name for name in known if _field(name, setting.key) is not None]
        if len(elsewhere) == 1:
            return f"[{setting.section}] has no key `{setting.key}`; did you mean `{elsewhere[0]}.{setting.key}`?"
        return f"[{setting.section}] has no key `{setting.key}`{_nearest(setting.key, names)}"
    return ""


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib

    names = list(known)
    match = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"; did you mean `{match[0]}`?" if match else f"; it may be one of: {', '.join(names)}"


def _field(section: str, key: str) -> "dataclasses.Field[Any] | None":
    kind = sections().get(section)
    if kind is None:
        return None
    return next((f for f in dataclasses.fields(kind) if f.name == key), None)


def kind_of(section: str, key: str) -> object | None:
    """The type of a key; None where there is no such key."""
    return None if _field(section, key) is None else _kind(section, key)


def _kind(section: str, key: str) -> object:
    return get_type_hints(sections()[section])[key]


def _flag_of(section: str, key: str) -> str:
    field = _field(section, key)
    name = field.metadata.get("flag", "") if field is not None else ""
    return name or f"--set {section}.{key}"


def _checked(setting: _Setting) -> object:
    field = _field(setting.section, setting.key)
    assert field is not None
    meta = field.metadata
    given = setting.value
    if isinstance(given, bool | str) and {"on", "off"} <= set(meta.get("choices", ())):
        given = {"True": "on", "true": "on", "False": "off", "false": "off"}.get(str(given), given)
    value = _typed(given, _kind(setting.section, setting.key))
    if meta.get("choices") and value not in meta["choices"]:
        raise ValueError(f"is {value!r}; it may be one of: {', '.join(meta['choices'])}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = meta.get("low"), meta.get("high")
        if low is not None and value < low:
            raise ValueError(f"is {value}; it must be at least {low}")
        if high is not None and value > high:
            raise ValueError(f"is {value}; it must be at most {high}")
    if isinstance(value, tuple) and value and meta.get("length") is not None and len(value) != meta["length"]:
        raise ValueError(f"has {len(value)} elements; it takes {meta['length']}")
    return value


def _typed(value: object, kind: object) -> object:
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(float(value))
    if kind is str and isinstance(value, str):
        return value
    if kind == tuple[str, ...] and isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if kind == tuple[float, ...] and isinstance(value, list | tuple):
        return tuple(_typed(v, float) for v in value)
    raise ValueError(f"is {value!r}; it takes {_kind_name(kind)}")


def _finite(value: float) -> float:
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"is {value}; it takes a finite number")
    return value


def _kind_name(kind: object) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text in quotes"}
    if isinstance(kind, type) and kind in names:
        return names[kind]
    return "a list of texts" if kind == tuple[str, ...] else "a list of numbers"


def _together(config: Config, origins: Mapping[tuple[str, str], str]) -> list[str]:
    """Rules between keys."""
    problems = []
    if config.swarm.identity and config.swarm.dev_fleet:
        problems.append(
            f"{origins['swarm', 'dev_fleet']}: swarm.dev_fleet and swarm.identity exclude each other; keep one"
        )
    rate, candidates = config.eye.false_alarms_per_1000, config.eye.candidates_per_1000
    if 0.0 < candidates <= rate:
        problems.append(
            f"{origins['eye', 'candidates_per_1000']}: eye.candidates_per_1000 is {candidates:g}; it must exceed "
            f"eye.false_alarms_per_1000 ({rate:g}), or be 0"
        )
    if config.node.origin:
        latitude, longitude = (*config.node.origin, 0.0)[:2]
        if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
            problems.append(f"{origins['node', 'origin']}: node.origin is {latitude}, {longitude}; no place on Earth")
    home = config.pose.terrain_home
    if home and not _is_place(home):
        problems.append(
            f"{origins['pose', 'terrain_home']}: pose.terrain_home is {home!r}; write LAT,LON in degrees, such as "
            "47.1,8.2"
        )
    for section, key, text in (
        ("transport", "listen", config.transport.listen),
        ("http", "listen", config.http.listen),
    ):
        if text not in ("auto", "off") and not is_host_port(text):
            problems.append(
                f"{origins[section, key]}: {section}.{key} is {text!r}; write IP:PORT, such as 127.0.0.1:7946"
            )
    if config.inference.listen and not is_host_port(config.inference.listen):
        problems.append(
            f"{origins['inference', 'listen']}: inference.listen is {config.inference.listen!r}; write a loopback "
            "address and a port, such as 127.0.0.1:7983"
        )
    if config.lending.tensors and not is_host_port(config.lending.tensors):
        problems.append(
            f"{origins['lending', 'tensors']}: lending.tensors is {config.lending.tensors!r}; write IP:PORT, such as "
            "0.0.0.0:7984"
        )
    if config.inference.grpc and not (is_host_port(config.inference.grpc) and config.inference.listen):
        problems.append(
            f"{origins['inference', 'grpc']}: inference.grpc is {config.inference.grpc!r}; write a loopback address "
            "and a port, such as 127.0.0.1:7985, beside inference.listen"
        )
    for text in config.inference.abilities:
        model, *rest = text.rsplit(maxsplit=2) or [""]
        if len(rest) != 2 or model not in config.inference.models or len(rest[0]) > 64 or not is_share(rest[1]):
            problems.append(
                f"{origins['inference', 'abilities']}: inference.abilities holds {text!r}; write MODEL ABILITY GRADE, "
                "MODEL as in inference.models and GRADE within 0 and 1, such as 'zoo:small-320 detect/pv-fault 0.72'"
            )
    if config.lending.plan and not Path(config.lending.plan).is_file():
        problems.append(
            f"{origins['lending', 'plan']}: lending.plan is {config.lending.plan!r}, where no file is; "
            "docs/inference-api.md shows one"
        )
    if config.lending.split and not Path(config.lending.split).is_file():
        problems.append(
            f"{origins['lending', 'split']}: lending.split is {config.lending.split!r}, where no file is; "
            "`swarmd bundle cut MODEL --at TENSOR --out FOLDER` writes one"
        )
    for name, what in impossible(config):
        problems.append(f"{origins['lending', name.partition('.')[2]]}: {name} {what}")
    for text in config.privacy.masks:
        if problem := mask_problem(text):
            problems.append(f"{origins['privacy', 'masks']}: privacy.masks holds {problem}")
    judge = config.judge
    for is_missing, what in (
        (not config.eye.thumbnails, "pictures of candidates; set eye.thumbnails = true"),
        (not config.inference.listen, "a worker; set inference.listen, such as 127.0.0.1:7983"),
        (judge.borrow and not config.lending.borrow, "lending.borrow = true where judge.borrow is"),
    ):
        if judge.model and is_missing:
            problems.append(f"{origins['judge', 'model']}: judge.model needs {what}")
    for key, wanted in (("lend", config.lending.lend), ("borrow", config.lending.borrow)):
        if wanted and not config.inference.listen:
            problems.append(
                f"{origins['lending', key]}: lending.{key} needs a worker; set inference.listen, such as 127.0.0.1:7983"
            )
    return [*problems, *_forms(config, origins), *_door(config.operators, origins)]


def _forms(config: Config, origins: Mapping[tuple[str, str], str]) -> list[str]:
    """What texts must be like, beside what their sections say."""
    problems = []
    for text in config.transport.advertise.split("+") if config.transport.advertise else ():
        if not is_host_port(text) or len(config.transport.advertise) > 64:
            problems.append(
                f"{origins['transport', 'advertise']}: transport.advertise holds {text!r}; write IP:PORT, several ways "
                "joined by +, at most 64 characters in all"
            )
    for text in config.swarm.join:
        if not is_host_port(text):
            problems.append(f"{origins['swarm', 'join']}: swarm.join holds {text!r}; write IP:PORT")
    if len(config.node.name.encode()) > 64:
        problems.append(f"{origins['node', 'name']}: node.name is longer than 64 bytes")
    if problem := casts_problem(config.transport.casts):
        problems.append(f"{origins['transport', 'casts']}: transport.casts is {problem}")
    if problem := reply_prefix_problem(config.mqtt):
        problems.append(f"{origins['mqtt', 'reply_prefix']}: {problem}")
    if problem := fed_prefix_problem(config.federation.prefix):
        problems.append(f"{origins['federation', 'prefix']}: federation.prefix {problem}")
    if problem := plugins_problem(config.plugins):
        problems.append(f"[plugins]: {problem}")
    return problems


def is_share(text: str) -> bool:
    """Whether it is a number within 0 and 1."""
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


def _is_place(text: str) -> bool:
    """Whether it is `LAT,LON`, as what reads height models takes it (no pole)."""
    try:
        latitude, longitude = (float(part) for part in text.split(","))
    except ValueError:
        return False
    return abs(latitude) < 89.0 and abs(longitude) <= 180.0


def _door(door: OperatorsSection, origins: Mapping[tuple[str, str], str]) -> list[str]:
    """What the door for operators needs."""
    problems = []
    for text in door.allow:
        name, colon, right = text.partition(":")
        if not name or (colon and right != LOOK):
            problems.append(
                f"{origins['operators', 'allow']}: operators.allow holds {text!r}; write NAME, or NAME:{LOOK} for who "
                "may ask and change nothing"
            )
    if not door.listen:
        return problems
    if not is_host_port(door.listen):
        problems.append(
            f"{origins['operators', 'listen']}: operators.listen is {door.listen!r}; write IP:PORT, such as [::]:7981"
        )
    for key in ("ca_file", "cert_file", "key_file", "allow"):
        if not getattr(door, key):
            problems.append(
                f"{origins['operators', 'listen']}: operators.listen opens a door, which needs operators.{key}"
            )
    return problems


def is_host_port(text: str) -> bool:
    """Whether the text is HOST:PORT with a port in 0..65535 and a non-empty host."""
    host, colon, port = text.rpartition(":")
    return bool(host and colon and port.isascii() and port.isdigit() and int(port) <= 65535)


def changed_keys(old: Config, new: Config) -> tuple[list[str], list[str]]:
    """What SIGHUP finds.

    Returns:
        Keys that differ and can be applied to the running daemon, and keys that differ and need a restart; each
        as "section.key".
    """
    now: list[str] = []
    later: list[str] = []
    for name, kind in sections().items():
        before, after = getattr(old, name), getattr(new, name)
        for field in dataclasses.fields(kind):
            if getattr(before, field.name) != getattr(after, field.name):
                (now if field.metadata.get("reload") else later).append(f"{name}.{field.name}")
    return now, later
