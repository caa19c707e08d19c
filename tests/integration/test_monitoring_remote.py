"""Metrics off the device: the file of the agent that we ship, a real Prometheus that receives, TLS on both sides."""

import json
import shutil
import ssl
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.authority import Authority
from tests.support.daemons import PlainDaemon, wait_for
from tests.support.exclusive import own_port
from tests.support.paths import ROOT

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (apt install prometheus)"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed (apt install openssl)"),
]


@contextmanager
def running(folder: Path, name: str, *arguments: str) -> Iterator[Path]:
    """A Prometheus that writes its log into a file, which is given back."""
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen([str(PROMETHEUS), *arguments], stdout=out, stderr=out, cwd=folder)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_an_agent_sends_a_devices_metrics_over_tls(tmp_path: Path) -> None:
    receives, reads = own_port(), own_port()
    ours = Authority(tmp_path, "ours").make()
    server, server_key = ours.issue("metrics", "extendedKeyUsage=serverAuth\n")
    device, device_key = ours.issue("drone-1", "extendedKeyUsage=clientAuth\n")
    (tmp_path / "web.yml").write_text(
        "tls_server_config:\n"
        f"  cert_file: {server}\n  key_file: {server_key}\n  client_ca_file: {ours.certificate}\n"
        "  client_auth_type: RequireAndVerifyClientCert\n"
    )
    (tmp_path / "receiver.yml").write_text("global: {scrape_interval: 15s}\n")
    daemon = PlainDaemon(
        "drone-1",
        tmp_path / "drone-1",
        [
            "--dev-fleet",
            str(tmp_path / "fleet"),
            "--name",
            "drone-1",
            "--listen",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
        ],
    )
    try:
        daemon.start()
        # The shipped file, with the places of this test and less patience.
        shipped = (ROOT / "monitoring" / "prometheus-agent.yml").read_text()
        places = {
            "127.0.0.1:7980": str(daemon.status()["http"]),
            "https://metrics.example/api/v1/write": f"https://127.0.0.1:{receives}/api/v1/write",
            "/etc/prometheus/ca.pem": str(ours.certificate),
            "/etc/prometheus/device.pem": str(device),
            "/etc/prometheus/device.key": str(device_key),
            "scrape_interval: 15s": "scrape_interval: 1s",
            "batch_send_deadline: 30s": "batch_send_deadline: 1s",
        }
        for shown, here in places.items():
            assert shown in shipped, f"{shown} is in the agent's file"
            shipped = shipped.replace(shown, here)
        (tmp_path / "agent.yml").write_text(shipped)
        receiver = (
            "--config.file=receiver.yml", "--storage.tsdb.path=received", "--web.enable-remote-write-receiver",
            "--web.config.file=web.yml", f"--web.listen-address=127.0.0.1:{receives}",
        )  # fmt: skip
        agent = (
            "--enable-feature=agent", "--config.file=agent.yml", "--storage.agent.path=agent",
            f"--web.listen-address=127.0.0.1:{reads}",
        )  # fmt: skip
        with running(tmp_path, "receiver", *receiver) as received, running(tmp_path, "agent", *agent) as sent:
            context = ssl.create_default_context(cafile=str(ours.certificate))
            context.load_cert_chain(device, device_key)
            seen = lambda: (received.read_text()[-2000:], sent.read_text()[-2000:])  # noqa: E731

            def told(expression: str) -> list[dict[str, dict[str, str]]]:
                """Samples of one scrape come in several messages."""
                found: list[dict[str, dict[str, str]]] = wait_for(
                    lambda: query(receives, context, expression), expression, 120, seen
                )
                return found

            (build,) = told("swarmd_build_info")
            assert (build["metric"]["device"], build["metric"]["node"]) == ("drone-1", "drone-1")
            (alive,) = told('swarmd_members{state="alive"}')
            assert alive["value"][1] == "1"
            assert told('up{job="swarmd"}')[0]["value"][1] == "1"
    finally:
        daemon.stop()


def query(port: int, context: ssl.SSLContext, expression: str) -> list[dict[str, dict[str, str]]]:
    """What the receiver holds; nothing while it does not answer."""
    body = urllib.parse.urlencode({"query": expression}).encode()
    with (
        suppress(OSError),
        urllib.request.urlopen(
            f"https://127.0.0.1:{port}/api/v1/query", data=body, timeout=90, context=context
        ) as answer,
    ):
        found: list[dict[str, dict[str, str]]] = json.load(answer)["data"]["result"]
        return found
    return []
