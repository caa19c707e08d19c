"""Thumbnails end to end: a real eye's picture on the page of another member, in its report, and never where off."""

import hashlib
import http.client
import importlib.util
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.brain.journal import Journal
from swarmd.bridges.record.reading import Recording
from swarmd_protocols.thumbs.form import name_of, problem_of
from swarmd_protocols.thumbs.requests import JOURNAL
from tests.integration.test_ground_swarm import GroundProcess
from tests.support.browser import chromium, opened, picture, until
from tests.support.daemons import PATIENCE_S, Daemon, Running, wait_for
from tests.support.ground import CHROMIUM, NO_CHROMIUM
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(280),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
FARM = "sim://farm?seed=7&tables=4&fly=lanes&laps=0&faults=0.2"
ORIGIN = "node.origin=-18.88,-70.11"
"""Near the plant that `sim://farm` is."""
SHOWN = "Boolean(document.querySelector('.detail img.picture')?.naturalWidth)"


def eye(folder: Path, *flags: str, join: str = "") -> Daemon:
    """A drone that sees a farm."""
    return Daemon(folder, "drone-1", "--source", FARM, "--model", "zoo:small-320", "--set", ORIGIN, *flags, join=join)


def fetched(port: int, path: str) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", f"/api/v1/{path}")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers["content-type"], body


@pytest.fixture
def flown(tmp_path: Path) -> Iterator[tuple[Daemon, GroundProcess]]:
    """A drone whose flight has found things, and a laptop beside it."""
    drone = eye(tmp_path, "--set", "eye.thumbnails=true").up()
    ground = GroundProcess(tmp_path, drone.status()["address"], "--set", ORIGIN).begin()
    yield drone, ground
    ground.close()
    drone.close()


def pictured(ground: GroundProcess) -> list[dict[str, Any]]:
    return [row for row in ground.rows("object") if row["thumb"]]


def landed(drone: Daemon, ground: GroundProcess) -> dict[str, Any]:
    """Something with a picture once the flight is over: until then its author may put a better one in its place."""
    wait_for(lambda: pictured(ground), "something with a picture", seen=drone.log)
    drone.ask("eye_stop")
    wait_for(lambda: drone.status()["eye"]["state"] == "finished", "the end of the flight", seen=drone.log)
    wait_for(lambda: drone.status()["digest"] == ground.status()["digest"], "all of it at the laptop", seen=ground.log)
    return wait_for(lambda: pictured(ground), "its picture", seen=ground.log)[0]  # type: ignore[no-any-return]


@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
@pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="no playwright here (make setup-extras)")
def test_a_real_eyes_picture_is_on_the_page_and_in_the_report(flown: tuple[Daemon, GroundProcess]) -> None:
    drone, ground = flown
    thing = landed(drone, ground)
    status, kind, jpeg = wait_for(
        lambda: (got := fetched(ground.port, f"thumb/{thing['thumb']}"))[0] == 200 and got,
        "the picture",
        seen=ground.log,
    )
    assert (status, kind, problem_of(jpeg)) == (200, "image/jpeg", "")
    assert name_of(jpeg).hex() == thing["thumb"]
    assert any(one["thumb"] == thing["thumb"] for one in ground.get(f"objects/{thing['id']}/evidence"))

    with chromium() as browser, opened(browser, f"http://127.0.0.1:{ground.port}/") as (page, seen):
        until(page, "document.querySelector('[aria-posinset] img.thumb')?.naturalWidth", "a picture in the list")
        page.locator("[aria-posinset]:has(img.thumb)").first.click()
        until(page, SHOWN, "the picture of the chosen object")
        picture(page, ROOT / "out" / "ui", "thumbnail-dark")
        assert all(url.startswith(f"http://127.0.0.1:{ground.port}/") for url in seen.requests)
        # A picture in whose place its author has put a better one meanwhile is not to be had, which browsers note.
        assert [one for one in seen.complaints if "404" not in one] == []

    status, kind, report = fetched(ground.port, "export/findings.pdf")
    assert (status, kind) == (200, "application/pdf")
    assert report.count(b"/DCTDecode") >= 1
    assert jpeg in report
    globe = zipfile.ZipFile(io.BytesIO(fetched(ground.port, "export/findings.kmz")[2]))
    assert globe.read(f"thumbs/{thing['thumb']}.jpg") == jpeg
    assert f"thumbs/{thing['thumb']}.jpg".encode() in globe.read("doc.kml")

    # Another name, no name, and a name of nothing: nothing is shown.
    for name in (hashlib.sha256(jpeg).hexdigest()[:32], "..%2f..%2fetc", "0" * 32, thing["thumb"].upper() + "0"):
        status, kind, body = fetched(ground.port, f"thumb/{name}")
        assert (status, kind) == (404, "application/json")
        assert json.loads(body)["error"]


def test_pictures_outlive_the_drones_restart_and_go_when_they_are_switched_off(
    tmp_path: Path, flown: tuple[Daemon, GroundProcess]
) -> None:
    drone, ground = flown
    name = landed(drone, ground)["thumb"]
    drone.kill()
    # Not looked at before: the laptop asks the drone's next life, which does not see.
    again = eye(tmp_path, "--no-eye", "--set", "eye.thumbnails=true", join=ground.status()["address"]).up()
    wait_for(
        lambda: fetched(ground.port, f"thumb/{name}")[0] == 200, "the picture of the earlier life", seen=ground.log
    )
    again.kill()
    off = eye(tmp_path, "--no-eye").up()
    off.kill()
    assert kept(tmp_path / "drone-1") == []


def test_a_recording_shows_the_pictures_when_nobody_is_there_any_more(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    drone = eye(tmp_path, "--set", "eye.thumbnails=true").up()
    try:
        drone.ask("record_start", path=str(path))
        wait_for(lambda: "/swarm/thumbs" in topics(path), "a picture in the recording", seen=drone.log)
        drone.ask("record_stop")
    finally:
        drone.close()
    page = Running("page", tmp_path / "none", tmp_path / "page.out", tmp_path / "page.err")
    page.spawn([sys.executable, "-m", "swarmd", "ground", str(path), "--page", "127.0.0.1:0"])
    try:
        line = wait_for(lambda: page.out.read_text().splitlines() or not page.alive, "the page", seen=page.log)[0]
        port = int(line.split("/")[2].rpartition(":")[2])
        rows = json.loads(fetched(port, "snapshot")[2])["rows"]["object"]
        # Two a second are asked for, and a better one may just have been told of: not each was there at the end.
        shown = [(name, *fetched(port, f"thumb/{name}")) for name in (row["thumb"] for row in rows) if name]
        name, _, kind, jpeg = next(one for one in shown if one[1] == 200)
        assert (kind, problem_of(jpeg), name_of(jpeg).hex()) == ("image/jpeg", "", name)
        assert jpeg in fetched(port, "export/findings.pdf")[2], "and in its report"
        assert fetched(port, f"thumb/{'0' * 32}")[0] == 404
    finally:
        page.close()


def topics(path: Path) -> set[str]:
    """Of what a recording, perhaps unfinished, holds; none while it has no header."""
    if not path.exists() or not path.stat().st_size:
        return set()
    return {channel.topic for _, channel, _ in Recording(path).messages()}


def kept(state: Path) -> list[bytes]:
    """The journal's records of pictures."""
    journal = Journal(state, "process", ())
    journal.close()
    return [key for key in journal.records if key.startswith(JOURNAL)]
