"""What `check-config` tries: everything that a daemon with this configuration would open when it starts.

Nothing is changed and nobody is asked over the network.
"""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from swarmd.config.sections import Config
from swarmd.errors import DaemonError

Problem = tuple[str, str]
"""A key, "section.key", and what is wrong with its value."""


def try_out(config: Config) -> list[Problem]:
    """Every problem that this device has with the configuration."""
    trials: list[Callable[[Config], Iterator[Problem]]] = [
        _listen, _http, _inference, _operators, _advertise, _join, _pose, _site, _model, _source, _broker, _dds, _state,
        _plugins, _lending,
        _federation,
    ]  # fmt: skip
    return [problem for trial in trials for problem in trial(config)]


def _listen(config: Config) -> Iterator[Problem]:
    from swarmd.transports.address import parse_address

    if config.transport.gossip == "dds":
        return
    try:
        host, _ = parse_address(config.transport.listen)
    except ValueError as error:
        yield "transport.listen", str(error)
        return
    yield from _bindable("transport.listen", host)


def _http(config: Config) -> Iterator[Problem]:
    if config.http.listen not in ("auto", "off"):
        host = config.http.listen.rpartition(":")[0].strip("[]")
        yield from _bindable("http.listen", host)


def _inference(config: Config) -> Iterator[Problem]:
    from swarmd.api.loopback import is_loopback

    listen = config.inference.listen
    if listen and not is_loopback(listen.rpartition(":")[0].strip("[]")):
        yield "inference.listen", f"{listen}: only this device is served; write a loopback address, as 127.0.0.1:7983"


def _operators(config: Config) -> Iterator[Problem]:
    from swarmd.api.operators import server_context

    door = config.operators
    if not door.listen:
        return
    yield from _bindable("operators.listen", door.listen.rpartition(":")[0].strip("[]"))
    try:
        # systemd hands the key over at the start alone; outside of it the path is not there yet.
        if not door.key_file.startswith("/run/credentials/"):
            server_context(door)
    except DaemonError as error:
        yield "operators.cert_file", str(error)


def _lending(config: Config) -> Iterator[Problem]:
    from swarmd.cli.lending_check import rules

    yield from rules(config)


def _plugins(config: Config) -> Iterator[Problem]:
    from swarmd.bridges.plugins.found import BRIDGES, DETECTORS, KEYS, find

    for group, names in ((BRIDGES, config.plugins.bridges), (DETECTORS, config.plugins.detectors)):
        for name in names:
            try:
                find(group, name)
            except DaemonError as error:
                yield KEYS[group], str(error)


def _bindable(key: str, host: str) -> Iterator[Problem]:
    """Whether this device has the address; the port may well be in use, by the daemon that runs."""
    from swarmd.transports.udp_socket import target_of, usable_wildcard

    try:
        host = usable_wildcard(host)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind(target_of(host, 0))
    except OSError as error:
        yield key, f"{host}: {error.strerror or error}; `ip address` lists what this device has"


def _advertise(config: Config) -> Iterator[Problem]:
    from swarmd.transports.address import parse_ways

    if config.transport.advertise:
        try:
            parse_ways(config.transport.advertise)
        except ValueError as error:
            yield "transport.advertise", str(error)


def _join(config: Config) -> Iterator[Problem]:
    """Numbers only: names may be known where the device will be, and not here."""
    from swarmd.transports.address import parse_address

    for text in config.swarm.join:
        host = text.rpartition(":")[0].strip("[]")
        if ":" in host or host.replace(".", "").isdigit():
            try:
                parse_address(text)
            except ValueError as error:
                yield "swarm.join", str(error)


def _pose(config: Config) -> Iterator[Problem]:
    from swarmd.brain.compose import check_pose

    kind, colon, name = config.pose.source.partition(":")
    try:
        if colon and kind in ("csv", "dataflash", "tlog"):
            with Path(name).open("rb"):
                pass
        check_pose(config)
    except (DaemonError, OSError) as error:
        yield "pose.source", str(error)


def _site(config: Config) -> Iterator[Problem]:
    from swarmd.brain.compose import read_site
    from swarmd_models.errors import ModelError
    from swarmd_models.geo.positions import Plane

    try:
        read_site(config, Plane(*config.node.origin) if config.node.origin else None)
    except (DaemonError, ModelError, OSError, ValueError) as error:
        yield ("claims.cells" if config.claims.cells else "dedup.site_map"), str(error)


def _model(config: Config) -> Iterator[Problem]:
    from swarmd.brain.workerlink import EYE
    from swarmd_models.bundle import load_bundle
    from swarmd_models.choose import zoo_of
    from swarmd_models.errors import ModelError

    models = [("eye.model", config.eye.model)] if config.eye.enabled and config.eye.source else []
    models += [("eye.fallback_models", name) for name in config.eye.fallback_models]
    if config.inference.listen:
        models += [("inference.models", name) for name in config.inference.models if name != EYE]
    for key, model in models:
        try:
            zoo = zoo_of(model)
            if zoo is None:
                load_bundle(model, config.eye.labels or None)
            elif not any(zoo.glob("*.toml")):
                yield key, f"{zoo} holds no bundles"
        except (ModelError, OSError) as error:
            yield key, str(error)


def _source(config: Config) -> Iterator[Problem]:
    from swarmd_models.sources import is_live

    source = config.eye.source
    if not config.eye.enabled or not source or source.startswith("sim:"):
        return
    # A stream or "camera:0" is no file; a device is one, and is to be there.
    if (source.startswith("/dev/") or not is_live(source)) and not Path(source).exists():
        yield "eye.source", f"{source} is not there; `ls /dev/video*` lists cameras"


def _broker(config: Config) -> Iterator[Problem]:
    from swarmd.bridges.mqtt.credentials import read_secret, tls_context

    mqtt = config.mqtt
    if not mqtt.enabled:
        return
    try:
        # systemd hands the password over at the start alone; outside of it the path is not there yet.
        if mqtt.password_file and not mqtt.password_file.startswith("/run/credentials/"):
            read_secret(mqtt.password_file)
    except DaemonError as error:
        yield "mqtt.password_file", str(error).removeprefix("password_file ")
    try:
        if mqtt.tls:
            tls_context(mqtt)
    except DaemonError as error:
        yield "mqtt.ca_file", str(error)


def _federation(config: Config) -> Iterator[Problem]:
    """What `swarmd gateway` would refuse, or try again without end."""
    from swarmd.cli.gateway import region_key_of, tls_of
    from swarmd.errors import ConfigError
    from swarmd.federation.pipes import check_files, check_paths

    settings = config.federation
    files = tls_of(settings)
    for key, paths in (("federation.paths", settings.paths), ("federation.neighbours", settings.neighbours)):
        try:
            check_paths(paths, files)
            check_files(paths, files)
        except ConfigError as error:
            yield key, str(error)
        except DaemonError as error:
            name, _, problem = str(error).partition(" ")
            yield (
                ("federation.password_file", problem) if name == "password_file" else ("federation.ca_file", str(error))
            )
    if not settings.paths and not settings.region_key:
        return
    try:
        region_key_of(settings)
    except DaemonError as error:
        yield "federation.region_key", str(error).removeprefix("federation.region_key ")
    if not settings.paths:
        yield "federation.paths", 'is empty, and a region is named; write the way to it, such as ["mqtt://broker:1883"]'


def _dds(config: Config) -> Iterator[Problem]:
    known = {name for _, name in socket.if_nameindex()}
    interface = config.dds.interface
    if config.dds.enabled and interface != "auto" and interface not in known and not os.environ.get("CYCLONEDDS_URI"):
        yield "dds.interface", f"there is no {interface}; this device has {', '.join(sorted(known))}"


def _state(config: Config) -> Iterator[Problem]:
    folder = Path(config.state.dir) if config.state.dir else None
    if folder is not None:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not there.is_dir():
            yield "state.dir", f"{there} is no directory"
