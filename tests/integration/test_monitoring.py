"""The alert rules and the board as files, judged by promtool; `test_monitoring_scraped.py` has Prometheus load both."""

import re
import shutil
import subprocess

import pytest

from tests.support.paths import ROOT

RULES = ROOT / "monitoring" / "swarmd.rules.yml"
BOARD = ROOT / "monitoring" / "grafana-swarmd.json"
promtool = shutil.which("promtool")


@pytest.mark.skipif(promtool is None, reason="promtool is not installed (apt install prometheus)")
def test_promtool_accepts_the_rules() -> None:
    assert promtool is not None
    done = subprocess.run([promtool, "check", "rules", str(RULES)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14 rules found" in done.stdout


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


def test_every_metric_that_is_asked_for_exists() -> None:
    source = "".join(path.read_text() for path in sorted((ROOT / "swarmd").rglob("*metrics.py")))
    defined = set(re.findall(r"\"(swarmd_[a-z_]+)\"", source)) | {
        "swarmd_mqtt_queue_messages", "swarmd_mqtt", "swarmd_detection_score",
    }  # fmt: skip
    asked = set(re.findall(r"\b(swarmd_[a-z_]+)\b", RULES.read_text() + BOARD.read_text()))
    suffix = re.compile(r"_(total|bucket|info|count|sum)$")
    missing = {name for name in asked if name not in defined and suffix.sub("", name) not in defined}
    assert not missing
