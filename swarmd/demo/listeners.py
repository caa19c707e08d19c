"""What listens in a demo with `--mqtt` or `--dds`: an ordinary broker and client, an ordinary DDS participant.

They see what any program of the user would see; a sample of each topic is kept to be printed.
"""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from swarmd.errors import DaemonError

BROKER_UP_S = 10.0
"""Seconds that the demonstration's broker may take to start."""
SAMPLE_MAX_CHARS = 200
"""Characters of a message that are shown as a sample."""


class MqttListener:
    """A mosquitto of its own on a free port, and a client that hears everything."""

    def __init__(self, folder: Path) -> None:
        """Start the broker and subscribe.

        Raises:
            DaemonError: mosquitto is not installed or does not start.
        """
        import paho.mqtt.client as mqtt
        from paho.mqtt.enums import CallbackAPIVersion

        self.messages = 0
        self.samples: dict[str, str] = {}
        self.port = _free_port()
        self._broker = _start_broker(folder, self.port)
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._client.on_connect = lambda client, *_: client.subscribe("swarm/v1/#")
        self._client.on_message = self._on_message
        deadline = time.monotonic() + BROKER_UP_S
        while True:
            try:
                self._client.connect("127.0.0.1", self.port)
                break
            except OSError as error:
                if self._broker.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise DaemonError(f"mosquitto does not answer on 127.0.0.1:{self.port}: {error}") from error
                time.sleep(0.05)
        self._client.loop_start()

    @property
    def settings(self) -> list[str]:
        """What each daemon is told."""
        return ["mqtt.enabled=true", "mqtt.host=127.0.0.1", f"mqtt.port={self.port}"]

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        self.messages += 1
        levels = message.topic.split("/")[3:]
        if len(levels) > 1 and levels[0] in ("node", "objects", "jobs"):
            levels[1] = "{id}"  # One sample of each kind is enough.
        self.samples.setdefault("/".join(levels), message.payload[:SAMPLE_MAX_CHARS].decode("utf-8", "replace"))

    def close(self) -> None:
        """End client and broker."""
        with contextlib.suppress(ValueError, RuntimeError):
            self._client.disconnect()
            self._client.loop_stop()
        self._broker.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._broker.wait(5)


class DdsListener:
    """A DDS participant that reads the swarm's topics as a ROS 2 node would."""

    settings: tuple[str, ...] = ("dds.enabled=true",)

    def __init__(self) -> None:
        """Open readers; `start` begins to deliver.

        Raises:
            DaemonError: CycloneDDS is not installed, or refuses.
        """
        try:
            from swarmd.bridges.ros2 import messages
            from swarmd.bridges.ros2.participant import Ros2Participant
        except ImportError as error:
            raise DaemonError(
                f"--dds needs cyclonedds ({error}); on x86-64: pip install 'swarmd[dds]', on Arm: docs/operations.md"
            ) from error
        self.messages = 0
        self.samples: dict[str, str] = {}
        self._participant = Ros2Participant(-1, "swarmd_demo", "lo")
        topics: dict[str, type[Any]] = {
            "/swarm/detections": messages.Detection3DArray,
            "/swarm/objects": messages.Detection3DArray,
            "/swarm/peers": messages.DiagnosticArray,
            "/swarm/cells": messages.CellArray,
        }
        for topic, message in topics.items():
            self._participant.reader(f"rt{topic}", message, self._taker(topic), depth=100)

    def _taker(self, topic: str) -> Any:
        def take(sample: Any) -> None:
            self.messages += 1
            text = str(sample)
            if topic not in self.samples or len(text) > len(self.samples[topic]):
                self.samples[topic] = text[:SAMPLE_MAX_CHARS]

        return take

    def start(self) -> None:
        """Deliver on the running loop."""
        self._participant.start(asyncio.get_running_loop(), lambda text: None)

    def close(self) -> None:
        """Close the participant."""
        self._participant.close()


def _start_broker(folder: Path, port: int) -> "subprocess.Popen[bytes]":
    binary = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if binary is None:
        raise DaemonError("--mqtt needs a broker: apt-get install mosquitto")
    config = folder / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\npersistence false\n")
    return subprocess.Popen([binary, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
