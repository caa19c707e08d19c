"""A real Prometheus scrapes real daemons, with an eye and a real broker: the rules load, the board's queries have data.

A query that nothing answers is a panel that stays empty on every fleet: a name that is spelt otherwise, a label that is
not there. What this machine cannot show is listed, with why.
"""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bridge_world import Broker, mosquitto_binary
from tests.support.daemons import Daemon, alive_members, wait_for
from tests.support.exclusive import own_port
from tests.support.paths import ROOT

prometheus = shutil.which("prometheus")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(prometheus is None, reason="prometheus is not installed (apt install prometheus)"),
    pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)"),
]
BOARD = ROOT / "monitoring" / "grafana-swarmd.json"
RULES = ROOT / "monitoring" / "swarmd.rules.yml"
NOT_HERE = {
    "swarmd_host_temperature_celsius": "a virtual machine has no thermal zone",
    "swarmd_host_gpu_busy_ratio": "no graphics card",
    "swarmd_transport_dropped_total": "nothing is dropped on loopback",
    "swarmd_eye_total{what=~": "no frame need be dropped",
    "swarmd_gateway_": "neither is a gateway; their names are a law of tests/unit/test_federation_newcomer.py",
    "drift_psi": "is told after 2,000 scores, or some thousand frames",
}


def queries() -> list[str]:
    panels = json.loads(BOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def ask(base: str, query: str) -> list[Any]:
    body = urllib.parse.urlencode({"query": query}).encode()
    with urllib.request.urlopen(f"{base}/api/v1/query", body, timeout=60) as answer:
        told = json.load(answer)
    assert told["status"] == "success", query
    rows: list[Any] = told["data"]["result"]
    return rows


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that scrapes two daemons."""
    assert prometheus is not None
    folder = tmp_path_factory.mktemp("scraped")
    broker = Broker(folder)
    config = folder / "swarmd.toml"
    broker.start()
    config.write_text(f"[mqtt]\nenabled = true\nport = {broker.port}\n")
    flags = ["--config", str(config), "--source", "sim://farm?seed=7", "--model", "zoo:small-320"]
    a = Daemon(folder, "a", *flags, "--http", "127.0.0.1:0")
    b: Daemon | None = None
    process: subprocess.Popen[bytes] | None = None
    try:
        a.up()
        b = Daemon(folder, "b", "--no-eye", "--http", "127.0.0.1:0", join=a.status()["address"]).up()
        targets = json.dumps([a.status()["http"], b.status()["http"]])
        wait_for(lambda: alive_members(a) == 2, "two members", seen=a.log)
        own = folder / "prometheus.yml"
        own.write_text(
            f"global: {{scrape_interval: 1s}}\nrule_files: ['{RULES}']\n"
            f"scrape_configs: [{{job_name: swarmd, static_configs: [{{targets: {targets}}}]}}]\n"
        )
        port = own_port()
        command = [prometheus, f"--config.file={own}", f"--storage.tsdb.path={folder / 'data'}"]
        log = (folder / "prometheus.log").open("wb")
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        log.close()
        base = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            try:
                return len(ask(base, "up == 1")) == 2
            except OSError:
                return False

        wait_for(ready, "both daemons to be scraped", seen=(folder / "prometheus.log").read_text)
        yield base
    finally:
        if process is not None:
            process.terminate()
            process.wait(60)
        for daemon in (a, b):
            if daemon is not None:
                daemon.close()
        broker.stop()


def test_the_rules_are_loaded_and_every_one_is_well(scraped: str) -> None:
    def groups() -> list[Any]:
        with urllib.request.urlopen(f"{scraped}/api/v1/rules", timeout=60) as answer:
            return list(json.load(answer)["data"]["groups"])

    assert [group["name"] for group in groups()] == ["swarmd"]
    wait_for(lambda: all(rule["health"] == "ok" for rule in groups()[0]["rules"]), "every rule evaluated", seen=groups)
    assert len(groups()[0]["rules"]) == 14


@pytest.mark.parametrize("query", queries())
def test_a_query_of_the_board_is_answered(scraped: str, query: str) -> None:
    if reasons := [why for part, why in NOT_HERE.items() if part in query]:
        ask(scraped, query)  # It is a query all the same.
        assert reasons
        return
    wait_for(lambda: ask(scraped, query), f"data for {query}")


def test_what_the_device_says_of_itself_is_so(scraped: str) -> None:
    (total,) = wait_for(lambda: ask(scraped, 'max(swarmd_host_memory_bytes{what="total"})'), "the memory")
    told = re.search(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())
    assert told is not None
    assert float(total["value"][1]) == int(told[1]) * 1024
    (busy,) = wait_for(
        lambda: ask(
            scraped,
            'avg(1 - rate(swarmd_host_cpu_seconds_total{mode="idle"}[1m]) / on (instance) '
            "sum by (instance) (rate(swarmd_host_cpu_seconds_total[1m])))",
        ),
        "the processors",
    )
    assert 0 <= float(busy["value"][1]) <= 1


def test_the_brokers_round_trips_are_counted(scraped: str) -> None:
    counted = 'sum(swarmd_stage_seconds_count{stage="mqtt_round_trip"})'
    published = 'sum(swarmd_mqtt_total{what="published"})'
    wait_for(lambda: (rows := ask(scraped, counted)) and float(rows[0]["value"][1]) >= 1, "an acknowledgement")
    assert float(ask(scraped, counted)[0]["value"][1]) <= float(ask(scraped, published)[0]["value"][1]) + 100


def test_scores_are_spread_between_nothing_and_all(scraped: str) -> None:
    wait_for(lambda: ask(scraped, "sum(swarmd_detection_score_count) > 0"), "a score")
    rows = ask(scraped, "sum by (le) (swarmd_detection_score_bucket)")
    by = {row["metric"]["le"]: float(row["value"][1]) for row in rows}
    assert by["1.0"] == by["+Inf"]
    ordered = [by[bound] for bound in sorted(by, key=lambda text: float(text))]
    assert ordered == sorted(ordered)
