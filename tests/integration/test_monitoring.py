"""The alert rules and the dashboard, judged by a real Prometheus."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.support.exclusive import own_port

ROOT = Path(__file__).parents[2]
RULES = ROOT / "monitoring" / "swarmd.rules.yml"
BOARD = ROOT / "monitoring" / "grafana-swarmd.json"
promtool, prometheus = shutil.which("promtool"), shutil.which("prometheus")


@pytest.mark.skipif(promtool is None, reason="promtool is not installed (apt install prometheus)")
def test_promtool_accepts_the_rules() -> None:
    assert promtool is not None
    done = subprocess.run([promtool, "check", "rules", str(RULES)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 rules found" in done.stdout


@pytest.mark.skipif(promtool is None, reason="promtool is not installed (apt install prometheus)")
@pytest.mark.parametrize(
    "arguments",
    [
        ["test", "rules", "swarmd.rules.test.yml"],
        ["check", "config", "--agent", "--syntax-only", "prometheus-agent.yml"],
    ],
    ids=["alerts fire on what they are for", "the agent's file"],
)
def test_promtool_judges(arguments: list[str]) -> None:
    assert promtool is not None
    folder = ROOT / "monitoring"
    done = subprocess.run([promtool, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(prometheus is None, reason="prometheus is not installed (apt install prometheus)")
def test_a_real_prometheus_loads_rules_and_answers_every_query_of_the_board(tmp_path: Path) -> None:
    assert prometheus is not None
    config = tmp_path / "prometheus.yml"
    config.write_text(f"global: {{scrape_interval: 1s}}\nrule_files: ['{RULES}']\n")
    port = own_port()
    process = subprocess.Popen(
        [
            prometheus,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        base = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"{base}/-/ready", timeout=5):
                    break
            except OSError:
                assert time.monotonic() < deadline, "prometheus did not start"
                time.sleep(0.1)
        with urllib.request.urlopen(f"{base}/api/v1/rules", timeout=30) as answer:
            groups = json.load(answer)["data"]["groups"]
        assert [group["name"] for group in groups] == ["swarmd"]
        expressions = [
            target["expr"] for panel in json.loads(BOARD.read_text())["panels"] for target in panel["targets"]
        ]
        assert len(expressions) >= 10
        for expression in expressions:
            body = urllib.parse.urlencode({"query": expression}).encode()
            with urllib.request.urlopen(f"{base}/api/v1/query", data=body, timeout=30) as answer:
                assert json.load(answer)["status"] == "success", expression
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_every_metric_that_is_asked_for_exists() -> None:
    source = "".join(path.read_text() for path in sorted((ROOT / "swarmd").rglob("*metrics.py")))
    defined = set(re.findall(r"\"(swarmd_[a-z_]+)\"", source)) | {
        "swarmd_mqtt_queue_messages", "swarmd_mqtt", "swarmd_detection_score",
    }  # fmt: skip
    asked = set(re.findall(r"\b(swarmd_[a-z_]+)\b", RULES.read_text() + BOARD.read_text()))
    suffix = re.compile(r"_(total|bucket|info|count|sum)$")
    missing = {name for name in asked if name not in defined and suffix.sub("", name) not in defined}
    assert not missing
