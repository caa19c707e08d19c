"""A region's folder: its key, its configuration, the pinned roots of its swarms, its memory.

region.toml        what it is told
region.key         its Ed25519 seed, 0600
roots/NAME.root    the first root statement of each swarm's fleet
region.sqlite      what it has heard
region.lock        held by the process that runs
export.lock        held by the one that exports
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from swarmd.config.bridges import fed_prefix_problem
from swarmd.errors import ConfigError
from swarmd.federation.whole_files import locked, make_for_owner
from swarmd.identity.files import (
    IdentityFileError,
    read_to_rewrite,
    rewrite_file,
    write_public_file,
    write_secret_file,
)
from swarmd.identity.role_keys import FleetError, locked_folder
from swarmd_protocols.crypto import SEED_BYTES, NaClCrypto
from swarmd_protocols.errors import ProtocolError
from swarmd_protocols.federation.gate import Pin
from swarmd_protocols.trust.envelopes import decode_envelope
from swarmd_protocols.trust.payloads import NAME_MAX_CHARS, NAME_PATTERN
from swarmd_protocols.trust.trust import Trust

CONFIG_FILE, KEY_FILE, LOCK_FILE, ROOTS = "region.toml", "region.key", "region.lock", "roots"
EXPORT_LOCK_FILE = "export.lock"
_Name = Annotated[str, Meta(max_length=NAME_MAX_CHARS, pattern=NAME_PATTERN)]
QUOTA_MAX_KIB_S = 1 << 20
"""A swarm's quota at most: no line is faster."""
_HEAD = """# A region above many swarms (docs/federation.md).
# paths = ["mqtt://broker-1:1883", "mqtt://broker-2:1883"]
# [[swarm]] entries are added by: swarmd region pin
"""


class SwarmEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[swarm]]`."""

    name: _Name
    """What it is called here."""
    swarm: _Name
    """Its own name."""
    quota_kib_s: Annotated[int, Meta(ge=1, le=QUOTA_MAX_KIB_S)] = 128
    """What its gateways may say, KiB a second."""
    quota_burst_mib: Annotated[int, Meta(ge=1, le=1 << 14)] = 16
    """What they may say at once."""
    confirm_observers: Annotated[int, Meta(ge=1, le=64)] = 2
    """An object that fewer nodes have seen is not shown."""


class RegionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`region.toml`."""

    paths: tuple[str, ...] = ()
    prefix: str = "swarm-fed/1"
    stale_s: Annotated[float, Meta(ge=1, le=86_400)] = 30.0
    """A site of which nothing was heard for so long is named stale."""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    password_file: str = ""
    swarm: tuple[SwarmEntry, ...] = ()


def make_region(folder: Path) -> bytes:
    """Make a region's folder with a fresh key; returns the seed.

    Raises:
        ConfigError: There is one already, or it cannot be written.
    """
    seed = os.urandom(SEED_BYTES)
    try:
        with locked_folder(folder, make=True):
            if (folder / KEY_FILE).exists():
                raise ConfigError(f"{folder} holds a region already")
            (folder / ROOTS).mkdir(exist_ok=True)
            if not (folder / CONFIG_FILE).exists():
                write_public_file(folder / CONFIG_FILE, _HEAD.encode())
            write_secret_file(folder / KEY_FILE, seed)  # Last: with it the region is whole.
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error
    except (FleetError, IdentityFileError) as error:
        raise ConfigError(str(error)) from error
    return seed


@contextlib.contextmanager
def alone_with(folder: Path) -> Iterator[None]:
    """Be the only process that runs this region; the lock ends with it, also when it is killed.

    Raises:
        ConfigError: Another one runs it, or the lock cannot be taken.
    """
    with _alone(folder / LOCK_FILE, f"the region in {folder} runs already; end that process first"):
        yield


@contextlib.contextmanager
def exporting(folder: Path) -> Iterator[None]:
    """Be the only process that exports of this region: of two, one would forget what the other writes over.

    Raises:
        ConfigError: Another one does, or the lock cannot be taken.
    """
    with _alone(folder / EXPORT_LOCK_FILE, f"another export of the region in {folder} runs; wait until it is done"):
        yield


def _alone(path: Path, busy: str) -> contextlib.AbstractContextManager[None]:
    """Hold a file of the folder; where root makes it, whom the folder belongs to can hold it next."""
    try:
        make_for_owner(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise ConfigError(f"{path} cannot be opened: {error.strerror}") from error
    return locked(descriptor, path, busy, ConfigError)


def read_seed(folder: Path) -> bytes:
    """The region's seed.

    Raises:
        ConfigError: There is none, or others may read it.
    """
    path = folder / KEY_FILE
    try:
        mode, seed = path.stat().st_mode & 0o077, path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; make the region by swarmd region init {folder}") from error
    if mode:
        raise ConfigError(f"{path} can be read by others; run: chmod 600 {path}")
    if len(seed) != SEED_BYTES:
        raise ConfigError(
            f"{path} is damaged: it has {len(seed)} bytes, not {SEED_BYTES}; put it back from a copy, "
            "or make a new region"
        )
    return seed


def read_config(folder: Path) -> RegionConfig:
    """What `region.toml` says.

    Raises:
        ConfigError: It is none; says what is wrong.
    """
    path = folder / CONFIG_FILE
    try:
        config = msgspec.toml.decode(path.read_bytes(), type=RegionConfig)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; make the region by swarmd region init {folder}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if problem := fed_prefix_problem(config.prefix):
        raise ConfigError(f"{path}: prefix {problem}")
    config = replace(config, prefix=config.prefix.strip("/"))
    names = [entry.name for entry in config.swarm]
    if len(set(names)) != len(names):
        raise ConfigError(f"{path}: two swarms have one name; give each [[swarm]] a name of its own")
    return config


def read_pins(folder: Path, config: RegionConfig) -> list[Pin]:
    """The swarms that are let in.

    Raises:
        ConfigError: A root is missing or damaged, or two entries name one swarm.
    """
    pins: dict[bytes, Pin] = {}
    for entry in config.swarm:
        path = folder / ROOTS / f"{entry.name}.root"
        try:
            root = path.read_bytes()
            decode_envelope(root)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; put the fleet's roots/0001.root there") from error
        except ProtocolError as error:
            raise ConfigError(f"{path} is no root: {error}; put the fleet's roots/0001.root there") from error
        pin = Pin(
            entry.name,
            entry.swarm,
            root,
            entry.quota_kib_s << 10,
            entry.quota_burst_mib << 20,
            entry.confirm_observers,
        )
        if pin.key in pins:
            raise ConfigError(f"{entry.name} and {pins[pin.key].name} are one swarm; drop one")
        pins[pin.key] = pin
    return list(pins.values())


def add_pin(folder: Path, entry: SwarmEntry, root: bytes) -> None:
    """Let a swarm in.

    Raises:
        ConfigError: The entry is none, its name or its swarm is there already, or the root is none.
    """
    try:
        msgspec.convert(asdict(entry), SwarmEntry)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{entry.name!r} cannot be let in: {_why(entry)}") from error
    read_config(folder)  # Where there is none it says how one is made.
    with locked_folder(folder):
        _add_pin(folder, entry, root)


def _why(entry: SwarmEntry) -> str:
    """What keeps an entry out, for people."""
    for name in (entry.name, entry.swarm):
        if not re.fullmatch(NAME_PATTERN, name) or len(name) > NAME_MAX_CHARS:
            return (
                f"{name!r} is no name; write 1 to {NAME_MAX_CHARS} letters, digits, dots, dashes, underlines, the "
                "first a letter or a digit"
            )
    return f"{entry.quota_kib_s} is no quota; write --quota-kib-s 1 to {QUOTA_MAX_KIB_S:,}"


def _add_pin(folder: Path, entry: SwarmEntry, root: bytes) -> None:
    config = read_config(folder)
    if any(held.name == entry.name for held in config.swarm):
        raise ConfigError(f"{folder / CONFIG_FILE} has a swarm {entry.name} already; give this one another name")
    try:
        version = Trust(entry.swarm, [root], NaClCrypto()).chain.current.version
    except ProtocolError as error:
        raise ConfigError(
            f"what is given for {entry.name} is no root that its own officers signed; give FLEET/roots/0001.root"
        ) from error
    if version != 1:
        # A swarm is called by its first root for good: under a later one nobody would ever be heard.
        raise ConfigError(f"what is given for {entry.name} is root {version} of its fleet; give FLEET/roots/0001.root")
    wanted = Pin(entry.name, entry.swarm, root).key
    for pin in read_pins(folder, config):
        if pin.key == wanted:
            raise ConfigError(f"{folder / CONFIG_FILE} has this swarm already: it is called {pin.name}")
    # Names are of `NAME_PATTERN`: nothing in them needs an escape.
    said = (f"{key} = {value if isinstance(value, int) else repr(value)}" for key, value in asdict(entry).items())
    path = (folder / CONFIG_FILE).resolve()
    data, held = read_to_rewrite(path)
    text = data + "\n".join(("", "[[swarm]]", *said, "")).encode()
    try:
        msgspec.toml.decode(text, type=RegionConfig)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(
            f"{path} does not take one more [[swarm]]: {error}; where it has swarm = [...], write each as a [[swarm]] "
            "of its own, at its end"
        ) from error
    (folder / ROOTS).mkdir(exist_ok=True)
    write_public_file(folder / ROOTS / f"{entry.name}.root", root)
    # Whole or as it was: half an entry would keep the region from starting, and so every swarm out. And another account
    # may run the region, and is to read it on.
    rewrite_file(path, text, held)
