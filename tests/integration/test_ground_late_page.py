"""The page of an observer that came late, in a real browser: what others wrote down, and what is missing."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.ground.fetched import FetchedPast
from swarmd.ground.story import Story
from swarmd.ground.view import Ground
from swarmd_models.geo.positions import Plane
from tests.support.browser import chromium, has, opened, text, until
from tests.support.ground import CHROMIUM, NO_CHROMIUM, serving
from tests.support.past_pages import BEGIN_S, Pages, flown

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="no playwright here (make setup-extras)"),
    # Playwright's own loop and pipe to its driver, which it closes when the process ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as one:
        yield one


def test_the_page_shows_what_others_wrote_down_and_says_what_is_missing(tmp_path: Path, browser: "Browser") -> None:
    def arrive_late(ground: Ground) -> None:
        unheard = {"never met drone-9": "drone-9"}
        ground.story = Story(ground.past, FetchedPast(Pages(tmp_path, flown()), Plane(48.0, 11.0), lambda: unheard))

    with serving(tmp_path) as served:
        served.do(arrive_late)
        with opened(browser, served.url) as (page, seen):
            has(page, "receiving")
            assert "Before this server" not in text(page), "of the last minutes nothing is missing"
            page.select_option("select[aria-label=Range]", "0")
            has(page, "Before this server: the own past of 0 of 3 members is whole")
            page.click("details.peers summary")
            has(page, "it wrote nothing down")
            has(page, "nobody in reach keeps it")
            page.evaluate(f"ground.seek({BEGIN_S + 380})")
            page.keyboard.press("2")
            until(page, "document.body.innerText.includes('drone-2?')", "who wrote then, and no other")
            has(page, "drone-9 has not been heard")
            page.evaluate(f"ground.seek({BEGIN_S + 550})")
            has(page, "unknown")
        assert seen.complaints == []
