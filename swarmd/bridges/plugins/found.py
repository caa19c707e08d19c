"""Which plug-ins are installed, and how one is loaded: entry points of installed packages, by the names in `[plugins]`.

    [project.entry-points."swarmd.bridges"]        # (node: swarmd.Node, options: dict[str, str]) -> None
    pager = "acme_pager:bridge"
    [project.entry-points."swarmd.detectors"]      # (options: dict[str, str]) -> Iterable[list[swarmd.Sighting]]
    radar = "acme_radar:detector"

Nothing is loaded but what the configuration names, and never by the daemon's own process.
"""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from swarmd.errors import PluginError

BRIDGES, DETECTORS = "swarmd.bridges", "swarmd.detectors"
KEYS = {BRIDGES: "plugins.bridges", DETECTORS: "plugins.detectors"}
"""A group of entry points to the key that names plug-ins of it."""


def find(group: str, name: str) -> EntryPoint:
    """The entry point that a name means; its package is not imported.

    Raises:
        PluginError: No installed package offers it, or several do.
    """
    found = {str(one.value): one for one in entry_points(group=group, name=name)}
    if not found:
        offered = ", ".join(sorted({one.name for one in entry_points(group=group)})) or "none"
        raise PluginError(
            f"{KEYS[group]} names {name!r}, which no installed package offers ({group}: {offered}); install its "
            "package into swarmd's environment, or take the name out"
        )
    if len(found) > 1:
        offers = " and ".join(sorted(described(one) for one in found.values()))
        raise PluginError(f"{KEYS[group]} names {name!r}, which {offers} offer; uninstall all but one")
    return next(iter(found.values()))


def described(entry: EntryPoint) -> str:
    """Package, version and object, for people."""
    package = "a package without a name" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
    return f"{package} ({entry.value})"


def load(group: str, name: str) -> Callable[..., Any]:
    """Import a plug-in; for the plug-in's own process.

    Raises:
        PluginError: It cannot be imported, or is nothing that can be called.
    """
    entry = find(group, name)
    try:
        loaded = entry.load()
    except Exception as error:  # Whatever a stranger's module raises when it is imported.
        raise PluginError(
            f"{described(entry)} cannot be imported ({type(error).__name__}: {error}); install what it needs, or take "
            f"{name!r} out of {KEYS[group]}"
        ) from error
    if not callable(loaded):
        raise PluginError(f"{described(entry)} is {type(loaded).__name__}, no function; its package must be mended")
    called: Callable[..., Any] = loaded
    return called
