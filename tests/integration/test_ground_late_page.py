"""The page of an observer that came late, in a real browser: what others wrote down, and what is missing."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.ground.fetched import FetchedPast
from swarmd.ground.story import Story
from swarmd.ground.view import Ground
from swarmd_models.geo.positions import Plane
from tests.support.browser import has, opened, text, until
from tests.support.ground import serving
from tests.support.pages import PAGE_MARKS
from tests.support.past_pages import BEGIN_S, Pages, flown

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = PAGE_MARKS


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
