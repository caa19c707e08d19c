"""A simulation of 200 drones on the page: computed, recorded and shown by one command, and any second of it."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from tests.support.browser import has, opened, picture, text, until
from tests.support.daemons import wait_for
from tests.support.pages import PAGE_MARKS
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [*PAGE_MARKS, pytest.mark.timeout(600)]
DRONES, SECONDS = 200, 6
"""Virtual seconds: half of what they cost is the meeting of two hundred."""
SCENARIO = f"""
title = "Two hundred drones"
[swarm]
nodes = {DRONES}
seconds = {SECONDS}
[site]
tables = 24
modules = 40
[drones]
work = "claims"
[checks]
settle_s = 3
"""


@pytest.fixture(scope="module")
def page_of_200(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address that the command says once the simulation has run."""
    folder = tmp_path_factory.mktemp("200")
    (folder / "swarm.toml").write_text(SCENARIO)
    command = [sys.executable, "-m", "swarmd", "sim", "run", str(folder / "swarm.toml"), "--view"]
    command += ["--page", "127.0.0.1:0", "--record", str(folder / "run.mcap")]
    out, log = folder / "out", folder / "log"
    with out.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
    try:

        def address() -> str:
            assert process.poll() is None, log.read_text()
            found = re.search(r"http://127\.0\.0\.1:\d+/", out.read_text())
            return "" if found is None else found[0]

        yield wait_for(address, "the page", 500, log.read_text)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())


def test_two_hundred_simulated_drones_at_any_second(page_of_200: str, browser: "Browser") -> None:
    with opened(browser, page_of_200) as (page, seen):
        has(page, f"of {DRONES} heard")
        for words in ("recording simulation", "as seen by n0", "of 24 cells done"):
            has(page, words)
        page.keyboard.press("2")
        until(page, "document.querySelector('[role=listbox]')?.ariaLabel === 'Members'", "the members")
        assert page.evaluate("document.querySelectorAll('[role=option]').length") < 60
        [(from_s, to_s)] = get(f"{page_of_200}api/v1/timeline")["covered"]
        assert SECONDS - 2 <= to_s - from_s <= SECONDS
        whole = 0
        for second in range(int(to_s - from_s) + 1):
            at_s = from_s + second
            before = len(seen.requests)
            page.evaluate(f"ground.seek({at_s})")
            rows = get(f"{page_of_200}api/v1/snapshot?at_s={at_s:.3f}")["rows"]
            told = {row["id"]: [row["east_m"], row["north_m"]] for row in rows["position"]}
            drawn = (
                "Object.fromEntries([...ground.world().position].map(([id, row]) => [id, [row.east_m, row.north_m]]))"
            )
            assert page.evaluate(drawn) == told, f"second {second}"
            whole += len(told) == DRONES
            states = [row["state"] for row in rows["member"]]
            heard = sum(state in ("alive", "degraded") for state in states)
            has(page, f"{heard} of {len(states)} heard")
            # A moment is one picture; where they came from follows, in two pages of history at most.
            asked = seen.requests[before:]
            assert len([url for url in asked if "/snapshot" in url]) == 1
            assert len([url for url in asked if "/history" in url]) <= 2
        assert whole >= SECONDS - 3
        page.evaluate(f"ground.seek({to_s})")
        until(page, "[...ground.trails().values()].some(one => one.east.length > 2)", "the ways that led there")
        picture(page, ROOT / "out" / "ui", "simulation-200-dark")
        assert seen.complaints == []
        assert all(url.startswith(page_of_200) for url in seen.requests)
        assert "NaN" not in text(page)
