"""Which pipe an address means: `mqtt://` and `mqtts://` a broker, `zenoh://` and `zenohs://` a Zenoh router."""

from collections.abc import Sequence

from swarmd.config.bridges import MqttConfig
from swarmd.federation.uplink import MakeUplink, OnFrame, Uplink


def check_address(address: str, files: MqttConfig) -> None:
    """Whether a path can be used here.

    Raises:
        ConfigError: It is no address, or its library is not installed.
    """
    if is_zenoh(address):
        from swarmd.federation import uplink_zenoh

        uplink_zenoh.read_address(address)
        uplink_zenoh.import_zenoh()
    else:
        from swarmd.federation.uplink_mqtt import read_address

        read_address(address, files)


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
