"""`swarmd record` on a daemon that sees: pictures only when asked; `swarmd replay --dds` says all of it again."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcap_ros2", reason="mcap is not installed (extra record)")
pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")

from cyclonedds.domain import DomainParticipant
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from swarmd.bridges.record.reading import Recording
from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.network import loopback_xml
from swarmd.bridges.ros2.participant import qos
from tests.support.daemons import PATIENCE_S, Daemon, wait_for

FARM = "sim://farm?seed=7&tables=4&fly=lanes&laps=0"


def cli(*arguments: str) -> str:
    command = [sys.executable, "-m", "swarmd", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def counts(path: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, channel, _ in Recording(path).messages():
        found[channel.topic] = found.get(channel.topic, 0) + 1
    return found


def test_recorded_with_pictures_and_published_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dds_domain: int
) -> None:
    if not os.environ.get("CYCLONEDDS_URI"):
        monkeypatch.setenv("CYCLONEDDS_URI", loopback_xml("lo"))
    config = tmp_path / "a.toml"
    config.write_text("[node]\norigin = [-18.88, -70.11]\n[record]\nmin_free_mib = 1\n")
    path, plain = tmp_path / "run.mcap", tmp_path / "plain.mcap"
    a = Daemon(tmp_path, "a", "--config", str(config), "--source", FARM, "--model", "zoo:small-320").up()
    try:
        wait_for(lambda: (a.status().get("eye") or {}).get("frames", 0) > 3, f"frames\n{a.log()}")
        a.ask("record_start", path=str(plain))
        wait_for(lambda: a.ask("record_status").get("messages", 0) > 5, "messages")
        a.ask("record_stop")
        recording = [sys.executable, "-m", "swarmd", "record", "-o", str(path), "--images", "5"]
        child = subprocess.Popen([*recording, "--seconds", "60", "--control", str(a.control)])
        wait_for(lambda: path.exists() and path.stat().st_size > 30_000, "a chunk with pictures")
        child.send_signal(2)
        assert child.wait(PATIENCE_S) == 0
    finally:
        a.close()
    assert not [topic for topic in counts(plain) if "image" in topic]
    recorded = counts(path)
    assert recorded["/a/image/compressed"] > 1

    participant = DomainParticipant(dds_domain)
    usual = qos(reliable=True, transient_local=False, depth=1000)
    topic = Topic(participant, "rt/a/image/compressed", m.CompressedImage, qos=usual)
    reader = DataReader(participant, topic, qos=usual)
    got: list[Any] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.wait(0.02):
            got.extend(one for one in reader.take(100) if hasattr(one, "format"))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        said = cli("replay", str(path), "--dds", "--domain", str(dds_domain), "--rate", "20")
        wait_for(
            lambda: len(got) >= recorded["/a/image/compressed"], "the last pictures to be read", seen=lambda: len(got)
        )
    finally:
        stop.set()
        thread.join()
    assert f"{recorded['/a/image/compressed']:6} /a/image/compressed" in said
    assert len(got) == recorded["/a/image/compressed"]
    assert bytes(got[0].data[:2]) == b"\xff\xd8"
