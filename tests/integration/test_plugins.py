"""Plug-ins of other packages: the example's as it is installed, and hostile ones, under a real daemon."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from swarmd.cli.main import main
from tests.support.daemons import Daemon, Start, has_ended, wait_for
from tests.support.paths import ROOT


def row(daemon: Daemon, name: str) -> dict[str, Any]:
    return next(row for row in daemon.status()["plugins"] if row["name"] == name)


def tried_again(daemon: Daemon, name: str) -> bool:
    """Whether it has failed, and was started after that."""
    found = row(daemon, name)
    return found["starts"] >= 2 and bool(found["problem"])


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Any]]]:
    """A web server's address, and what was posted to it."""
    posted: list[Any] = []

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Taker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/found", posted
        server.shutdown()
        thread.join()


def test_the_example_is_installed_named_and_works(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: tuple[str, list[Any]]
) -> None:
    url, posted = hook
    site, wire = tmp_path / "site", tmp_path / "wire"
    shutil.copytree(ROOT / "examples/plugin", tmp_path / "plugin")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=tmp_path / "plugin", check=True, capture_output=True, timeout=300)
    with zipfile.ZipFile(next(tmp_path.glob("acme_yard-*.whl"))) as wheel:  # As pip lays it down.
        wheel.extractall(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    os.mkfifo(wire)
    named = ("plugins.bridges=webhook", "plugins.detectors=trip_wire")
    options = f"plugins.options=webhook.url={url},trip_wire.path={wire}"
    a = start("a", "--no-eye", *(part for text in (*named, options) for part in ("--set", text))).up()
    with wire.open("w") as sensor:  # Opens once the detector reads.
        wait_for(lambda: a.ask("status")["plugins"][0]["pid"], "the bridge to run")
        # The bridge tells what is new once it listens; nothing says when that is, so things go on coming.
        number = 0

        def told() -> bool:
            nonlocal number
            number += 1
            sensor.write(f"fox-{number},{number * 20}.0,4.0\n")
            sensor.flush()
            return bool(posted)

        wait_for(told, "a post", seen=a.log)
    assert {"id", "label"} == posted[0].keys()
    known = {thing["id"]: thing["label"] for thing in a.ask("objects")["objects"]}
    assert known[posted[0]["id"]] == posted[0]["label"]
    # The sensor hung up: the detector ended by itself and well, and is not started again.
    wait_for(lambda: row(a, "trip_wire")["pid"] is None, "the detector to end")
    assert (row(a, "trip_wire")["starts"], row(a, "trip_wire")["problem"]) == (1, "")
    assert row(a, "webhook")["package"] == "acme-yard 0.1.0 (acme_yard:webhook)"
    shown = subprocess.run(
        [sys.executable, "-m", "swarmd", "status", "--control", a.control], capture_output=True, text=True, check=True
    ).stdout
    assert "plug-in     trip_wire of acme-yard 0.1.0 (acme_yard:trip_wire), not running, started 1 times" in shown


HOSTILE = """
import os, signal, sys, time
import swarmd

def raises(node, options):
    raise ValueError(options["word"])

def floods(node, options):
    for number in range(1000):
        print(f"line {number}")
    print("x" * 10_000_000)
    time.sleep(3600)

def deaf(node, options):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf now")
    time.sleep(3600)

def dies(node, options):
    os.kill(os.getpid(), signal.SIGKILL)

def wrong(options):
    yield [swarmd.Sighting(label="")]

number = 7
"""
POINTS = """
[swarmd.bridges]
raises = hostile:raises
floods = hostile:floods
deaf = hostile:deaf
dies = hostile:dies
missing = hostile_missing:bridge
number = hostile:number

[swarmd.detectors]
wrong = hostile:wrong
"""
SENTENCES = {
    "raises": "ended with status 1: acme-hostile 2.0 (hostile:raises) raised ValueError: a,word",
    "dies": "ended with status -9",
    "missing": "acme-hostile 2.0 (hostile_missing:bridge) cannot be imported (ModuleNotFoundError: No module named "
    "'hostile_missing'); install what it needs, or take 'missing' out of plugins.bridges",
    "number": "acme-hostile 2.0 (hostile:number) is int, no function; its package must be mended",
    "wrong": "detections[0]: argument 'label' is empty",
}


def offer(site: Path, package: str, points: str) -> None:
    """A package as pip leaves it."""
    info = site / f"{package.replace('-', '_')}-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text(points)


def test_what_a_plugin_does_wrong_stays_in_its_process(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    offer(site, "acme-hostile", POINTS)
    (site / "hostile.py").write_text(HOSTILE)
    monkeypatch.setenv("PYTHONPATH", str(site))
    config = tmp_path / "a.toml"
    bridges = ["raises", "floods", "deaf", "dies", "missing", "number"]
    config.write_text(
        f"[plugins]\nbridges = {json.dumps(bridges)}\ndetectors = ['wrong']\noptions = ['raises.word=a,word']\n"
    )
    a = start("a", "--no-eye", "-c", str(config)).up()
    for name, sentence in SENTENCES.items():
        wait_for(partial(tried_again, a, name), f"{name} to be tried again", seen=a.log)
        assert sentence in row(a, name)["problem"]
        assert f"the plug-in {name} of acme-hostile 2.0" in a.log()
    wait_for(lambda: '"deaf now"' in a.log(), "the deaf one", seen=a.log)
    wait_for(lambda: row(a, "floods")["lines"] == 1001, "the end of the flood", seen=a.log)
    flood = row(a, "floods")
    assert (flood["starts"], flood["problem"]) == (1, "")
    assert 0 < a.log().count('"plugin_floods"') < 500, "ten lines in ten seconds"
    assert a.status()["members"] == {"a": "alive"}
    running = [row(a, name)["pid"] for name in ("floods", "deaf")]
    assert a.kill(signal.SIGTERM) == 0
    wait_for(lambda: all(has_ended(pid) for pid in running), "the plug-ins' end with the daemon")


def test_a_daemon_that_is_killed_takes_its_plugins_along(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    offer(site, "acme-hostile", POINTS)
    (site / "hostile.py").write_text(HOSTILE)
    monkeypatch.setenv("PYTHONPATH", str(site))
    a = start("a", "--no-eye", "--set", "plugins.bridges=deaf").up()
    wait_for(lambda: '"deaf now"' in a.log(), "the deaf one", seen=a.log)
    pid = row(a, "deaf")["pid"]
    a.kill()
    wait_for(lambda: has_ended(pid), "its end")


def test_what_is_named_and_not_there_is_said_before_the_daemon_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    offer(site, "acme-hostile", POINTS)
    offer(site, "acme-other", "[swarmd.bridges]\ndeaf = other:deaf\n")
    monkeypatch.syspath_prepend(str(site))

    def checked(text: str) -> str:
        """What `check-config` says of it."""
        (tmp_path / "a.toml").write_text(text)
        assert main(["check-config", "-c", str(tmp_path / "a.toml")]) == 1
        return capsys.readouterr().err

    assert "plugins.bridges names 'none', which no installed package offers" in checked('[plugins]\nbridges = ["none"]')
    both = "acme-hostile 2.0 (hostile:deaf) and acme-other 2.0 (other:deaf) offer; uninstall all but one"
    assert both in checked('[plugins]\nbridges = ["deaf"]')
    assert "names 'a-b'" in checked('[plugins]\nbridges = ["a-b"]')
    assert "more than once" in checked('[plugins]\nbridges = ["deaf"]\ndetectors = ["deaf"]')
    assert "16 are the most" in checked(f"[plugins]\nbridges = {json.dumps([f'x{n}' for n in range(17)])}")
    assert "write NAME.KEY=VALUE" in checked('[plugins]\nbridges = ["raises"]\noptions = ["raises.word"]')
