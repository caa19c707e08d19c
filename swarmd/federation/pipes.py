"""Which pipe an address means: `mqtt://` and `mqtts://` a broker, `zenoh://` and `zenohs://` a Zenoh router."""

from collections.abc import Sequence

from swarmd.config.bridges import MqttConfig
from swarmd.errors import ConfigError
from swarmd.federation.uplink import MakeUplink, OnFrame, Uplink

CREDENTIALS = "/run/credentials/"
"""Where systemd puts what a unit is given, while the unit runs."""


def check_paths(paths: Sequence[str], files: MqttConfig) -> tuple[str, ...]:
    """The paths of one process, as `apart` has them, where they can be that.

    Raises:
        ConfigError: One is no address or is named twice, or its library is not installed.
    """
    for address in paths:
        check_address(address, files)
    found = apart(paths)
    for address in found:
        if found.count(address) > 1:
            # A broker lets one client of a name in: the two would shut each other out for ever.
            raise ConfigError(f"{address} is named twice; a second path is another broker or router")
    return found


def apart(paths: Sequence[str]) -> tuple[str, ...]:
    """Each router by itself: several in one address that listens nowhere are a path each.

    One session with all of them would be a router that links them, and through such a one Zenoh now and then passes
    on nothing more of a router that ended and began again, though it is connected.

    >>> apart(["zenoh://gw-1,gw-2:7448", "mqtt://broker", "zenoh://a,b?listen=0.0.0.0"])
    ('zenoh://gw-1', 'zenoh://gw-2:7448', 'mqtt://broker', 'zenoh://a,b?listen=0.0.0.0')
    """
    found: list[str] = []
    for address in paths:
        scheme, _, rest = address.partition("://")
        is_several = is_zenoh(address) and "," in rest and "?" not in rest
        found += [f"{scheme}://{host}" for host in rest.strip("/").split(",")] if is_several else [address]
    return tuple(found)


def check_address(address: str, files: MqttConfig) -> None:
    """Whether a path can be used here.

    Raises:
        ConfigError: It is no address, or its library is not installed.
    """
    if is_zenoh(address):
        from swarmd.federation import uplink_zenoh

        uplink_zenoh.read_address(address)
        uplink_zenoh.import_zenoh()
    elif address.partition("://")[0] not in ("mqtt", "mqtts"):
        raise ConfigError(
            f"{address!r} is no path; write mqtt://HOST:PORT or mqtts://USER@HOST:PORT for a broker, zenoh://HOST:PORT "
            "for a router"
        )
    else:
        from swarmd.federation.uplink_mqtt import read_address

        read_address(address, files)


def check_files(paths: Sequence[str], files: MqttConfig) -> None:
    """Whether what these paths are opened with lies on this device.

    Args:
        paths: Such as `check_paths` has let through.
        files: Of certificates, and of the password. What systemd hands over at the start alone is not looked for.

    Raises:
        DaemonError: A file is missing, is none, or can be read by others.
    """
    for address in paths:
        if is_zenoh(address):
            from swarmd.federation.uplink_zenoh import read_address, settings_of

            if not files.key_file.startswith(CREDENTIALS):
                settings_of(read_address(address), "", files)
            continue
        from swarmd.bridges.mqtt.credentials import read_secret, tls_context

        if files.password_file and not files.password_file.startswith(CREDENTIALS):
            read_secret(files.password_file)
        if address.startswith("mqtts:") and not files.key_file.startswith(CREDENTIALS):
            tls_context(files)


def is_zenoh(address: str) -> bool:
    """Whether Zenoh carries it.

    >>> is_zenoh("zenoh://router:7447"), is_zenoh("mqtt://broker")
    (True, False)
    """
    return address.partition("://")[0] in ("zenoh", "zenohs")


def pipe_maker(files: MqttConfig, prefix: str, client_id: str = "") -> MakeUplink:
    """Makes paths, each by its address; the library of a pipe that nobody names is not loaded.

    Args:
        files: Of certificates, and of the password.
        prefix: Of all places.
        client_id: At each broker; "" lets it choose.
    """

    def make(address: str, patterns: Sequence[str], on_frame: OnFrame) -> Uplink:
        if is_zenoh(address):
            from swarmd.federation.uplink_zenoh import zenoh_maker

            return zenoh_maker(files, prefix)(address, patterns, on_frame)
        from swarmd.federation.uplink_mqtt import mqtt_maker

        return mqtt_maker(files, prefix, client_id)(address, patterns, on_frame)

    return make
