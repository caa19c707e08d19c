"""Bridges to what users speak: MQTT 5, ROS 2 over DDS, MAVLink, MCAP, OpenTelemetry; plug-ins. Each fails alone."""

from swarmd.bridges.base import Bridge
from swarmd.config.bridges import (
    DdsConfig,
    MavlinkConfig,
    MqttConfig,
    OtelConfig,
    PluginsConfig,
    RecordConfig,
    plugin_options,
)
from swarmd.errors import TransportError


def make_bridges(
    mqtt: MqttConfig,
    dds: DdsConfig,
    mavlink: MavlinkConfig,
    record: RecordConfig,
    otel: OtelConfig,
    plugins: PluginsConfig,
) -> list[Bridge]:
    """The bridges that the configuration switches on; a heavy library is imported only for a bridge that is on.

    Args:
        mqtt: Section `[mqtt]`.
        dds: Section `[dds]`.
        mavlink: Section `[mavlink]`.
        record: Section `[record]`.
        otel: Section `[otel]`.
        plugins: Section `[plugins]`.

    Returns:
        Bridges to run, each as a supervised task.

    Raises:
        TransportError: An extra that a bridge needs is not installed; says how to get it.
        PluginError: A plug-in is not installed.
    """
    bridges: list[Bridge] = []
    traced_ratio = otel.sample_ratio if otel.enabled else 0.0
    if mqtt.enabled:
        from swarmd.bridges.mqtt.bridge import MqttBridge

        bridges.append(MqttBridge(mqtt, traced_ratio))
    if dds.enabled:
        try:
            from swarmd.bridges.ros2.bridge import Ros2Bridge
        except Exception as error:  # without its C library cyclonedds raises an exception of its own
            raise TransportError(
                f"dds.enabled is true, but cyclonedds cannot be imported ({error}); on x86-64: "
                "pip install 'swarmd[dds]'; on Arm build it against Debian's cyclonedds-dev (docs/operations.md)"
            ) from error
        bridges.append(Ros2Bridge(dds, traced_ratio))
    if mavlink.enabled:
        from swarmd.bridges.mavlink.bridge import MavlinkBridge

        bridges.append(MavlinkBridge(mavlink))
    if record.enabled:
        from swarmd.bridges.record.bridge import RecordBridge

        bridges.append(RecordBridge(record))
    if otel.enabled:
        try:
            from swarmd.bridges.otel.bridge import OtelBridge
        except ImportError as error:
            raise TransportError(
                f"otel.enabled is true, but OpenTelemetry cannot be imported ({error}); pip install 'swarmd[otel]'"
            ) from error
        bridges.append(OtelBridge(otel))
    if plugins.bridges or plugins.detectors:
        from swarmd.bridges.plugins.bridge import PluginBridge
        from swarmd.bridges.plugins.found import BRIDGES, DETECTORS

        options = plugin_options(plugins)
        for group, names in ((BRIDGES, plugins.bridges), (DETECTORS, plugins.detectors)):
            bridges += [PluginBridge(group, name, options.get(name, {})) for name in names]
    return bridges
