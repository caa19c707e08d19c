"""The metrics and log lines of a running daemon under the names that operators rely on, judged by promtool."""

import json
import re
import shutil
import subprocess
import urllib.request

import pytest

from tests.support.daemons import Daemon, alive_members, wait_for

promtool = shutil.which("promtool")

NAMES = (
    "swarmd_infer_seconds_bucket",
    "swarmd_stage_seconds_bucket",
    "swarmd_model_version_info",
    "swarmd_build_info",
    "swarmd_peer_rtt_seconds",
    "swarmd_gossip_budget_used_ratio",
    "swarmd_members",
    "swarmd_objects",
    "swarmd_transport_bytes_total",
    "swarmd_transport_frames_total",
    "swarmd_peers_rtt_seconds",
    "swarmd_uptime_seconds",
    "swarmd_fix",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_start_time_seconds",
    "swarmd_eye_total",
    "swarmd_task_restarts_total",
    "swarmd_log_lines_total",
    "swarmd_journal_degraded",
    "swarmd_mqtt_total",
    "swarmd_mqtt_queue_messages",
    "swarmd_host_cpu_seconds_total",
    "swarmd_host_memory_bytes",
    "swarmd_host_disk_bytes",
    "swarmd_detection_score_bucket",
)
"""A bridge's counters too: its family is registered when it starts, later than all others."""


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=90) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text: str = answer.read().decode()
        return text


def missing(text: str) -> list[str]:
    return [name for name in NAMES if f"\n{name}{{" not in text and f"\n{name} " not in text]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> "tuple[str, list[dict[str, object]]]":
    """A scrape and the log of a daemon with an eye, a peer and a bridge (whose broker is away)."""
    folder = tmp_path_factory.mktemp("metrics")
    config = folder / "swarmd.toml"
    config.write_text("[mqtt]\nenabled = true\nport = 9\n")
    flags = ["--config", str(config), "--source", "sim://farm?seed=7", "--model", "zoo:small-320", "--http"]
    a = Daemon(folder, "a", *flags, "127.0.0.1:0").up()
    b = Daemon(folder, "b", join=a.status()["address"]).up()
    try:
        wait_for(lambda: alive_members(a) == 2, f"two members\n{a.log()}")
        wait_for(lambda: a.status()["fps"] > 0, f"frames\n{a.log()}")
        wait_for(lambda: 'swarmd_peer_rtt_seconds{peer="b"}' in scrape(a.status()["http"]), "a round trip")
        # The first pose, the first frame, the start of a bridge: each brings names that were not there.
        wait_for(
            lambda: not missing(scrape(a.status()["http"])),
            "all names",
            seen=lambda: missing(scrape(a.status()["http"])),
        )
        # The first such line may come before the first frame, with null.
        wait_for(lambda: re.search(r'"infer_ms": *[0-9]', a.log()), "the eye's figures in the log")
        wait_for(lambda: "bridge_problem" in a.log(), "the bridge to say that its broker is away")
        text = scrape(a.status()["http"])
        lines = [json.loads(line) for line in a.log().splitlines() if line.startswith("{")]
    finally:
        a.close()
        b.close()
    return text, lines


def test_the_names_that_operators_rely_on_are_there(page: "tuple[str, list[dict[str, object]]]") -> None:
    text = page[0]
    assert missing(text) == []
    for stage in ("infer", "preprocess", "capture_to_local", "handle"):
        assert f'swarmd_stage_seconds_bucket{{stage="{stage}",' in text or stage == "capture_to_local"
    assert 'swarmd_model_version_info{digest="' in text
    assert "dropped" in text


@pytest.mark.skipif(promtool is None, reason="promtool is not installed (apt install prometheus)")
def test_promtool_accepts_the_page(page: "tuple[str, list[dict[str, object]]]") -> None:
    assert promtool is not None
    done = subprocess.run([promtool, "check", "metrics"], input=page[0], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_log_lines_say_device_model_and_time(page: "tuple[str, list[dict[str, object]]]") -> None:
    lines = page[1]
    assert {line["device_id"] for line in lines} == {"a"}
    assert any(len(str(line.get("model_digest", ""))) == 64 for line in lines)
    assert any(isinstance(line.get("infer_ms"), int | float) for line in lines)
    assert any(line["event"] == "bridge_problem" and line["where"] == "mqtt" for line in lines)
