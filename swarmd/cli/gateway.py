"""`swarmd gateway`: a member without an eye that speaks for its swarm to a region above."""

import argparse
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from swarmd.config.bridges import FederationConfig, MqttConfig


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    from swarmd.cli.settings import add_settings

    parser = subparsers.add_parser(
        "gateway",
        help="speak for this swarm to a region above many swarms",
        description="Joins the swarm as a member without an eye, tells the region ([federation]) what the swarm has "
        "confirmed, and brings down what people above have signed. Its certificate names the role gateway.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration (default /etc/swarmd/swarmd.toml)"
    )
    parser.add_argument(
        "--path",
        action="append",
        metavar="URL",
        help="a broker, mqtt://HOST:PORT, or a Zenoh router, zenoh://HOST:PORT; may be given twice",
    )
    parser.add_argument(
        "--neighbour",
        action="append",
        metavar="URL",
        help="a path to gateways of neighbouring swarms, as --path; without a region it is all that is needed",
    )
    parser.add_argument("--region-key", metavar="HEX", help="the region's public key (swarmd region show)")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Join, and speak until SIGTERM or Ctrl-C."""
    from swarmd.brain import compose
    from swarmd.brain.brain import Brain
    from swarmd.cli.settings import flags_of
    from swarmd.config.loading import Loaded, load
    from swarmd.errors import ControlError, DaemonError
    from swarmd.federation.border import BorderLink
    from swarmd.federation.gateway import Gateway
    from swarmd.federation.pipes import check_paths, pipe_maker
    from swarmd.logs import Logger
    from swarmd_protocols.crypto import NaClCrypto

    flags: dict[str, Any] = {"http.listen": "off", **flags_of(args), "eye.enabled": False}
    if args.path:
        flags["federation.paths"] = args.path
    if args.neighbour:
        flags["federation.neighbours"] = args.neighbour
    if args.region_key:
        flags["federation.region_key"] = args.region_key

    def read() -> Loaded:
        return load(args.config, os.environ, flags)

    loaded = read()
    config = loaded.config
    tls = tls_of(config.federation)
    paths, neighbours = (check_paths(some, tls) for some in (config.federation.paths, config.federation.neighbours))
    log = Logger(config.node.name, config.log.level, config.log.format)
    crypto = NaClCrypto()
    identity = compose.open_identity(config, crypto, log)
    settings, prefix = config.federation, config.federation.prefix.strip("/")
    beside: dict[str, Callable[[Any], Awaitable[None]]] = {}
    folder = lambda: compose.state_dir(config, identity)  # noqa: E731
    if neighbours:
        # Of its own: a broker lets one client of a name in, and the region's may be another's machine.
        apart = pipe_maker(tls, prefix, f"n{identity.node.hex()[:19]}")
        beside["neighbours"] = BorderLink(neighbours, prefix, identity.seed, folder, apart).run
    if paths or settings.region_key or not neighbours:
        made = pipe_maker(tls, prefix, identity.node.hex()[:20])
        beside["gateway"] = Gateway(settings_of(settings, paths), identity.seed, crypto, folder, made).run

    async def live() -> int:
        return await Brain(loaded, log, read, beside=beside).run()

    try:
        return asyncio.run(live())
    except ControlError as error:
        raise DaemonError(str(error)) from error


def region_key_of(config: "FederationConfig") -> bytes:
    """The region's public key.

    Raises:
        ConfigError: It is none.
    """
    from swarmd.errors import ConfigError
    from swarmd_protocols.crypto import PUBLIC_KEY_BYTES, SEED_BYTES, NaClCrypto
    from swarmd_protocols.errors import IdentityError
    from swarmd_protocols.federation.wire import Pair

    try:
        key = bytes.fromhex(config.region_key)
        if len(key) != PUBLIC_KEY_BYTES:
            raise ValueError(key)
        Pair(NaClCrypto(), bytes(SEED_BYTES), key)
    except (ValueError, IdentityError):
        raise ConfigError(
            "federation.region_key is not the region's public key, 64 hexadecimal digits: swarmd region show"
        ) from None
    return key


def settings_of(config: "FederationConfig", paths: tuple[str, ...]) -> Any:
    """What the gateway is told, with its paths as `check_paths` has them.

    Raises:
        ConfigError: The region's key is none.
    """
    from swarmd.federation.gateway import GatewaySettings

    return GatewaySettings(
        paths=paths,
        region_key=region_key_of(config),
        prefix=config.prefix.strip("/"),
        outbox_bytes=config.outbox_mib << 20,
        retain_s=config.retain_days * 86_400,
        refresh_s=config.refresh_s,
        health_s=config.health_s,
        bundles=config.bundles,
    )


def tls_of(config: "FederationConfig") -> "MqttConfig":
    """Files of certificates and the password."""
    from swarmd.config.bridges import MqttConfig

    return MqttConfig(
        ca_file=config.ca_file,
        cert_file=config.cert_file,
        key_file=config.key_file,
        password_file=config.password_file,
    )
