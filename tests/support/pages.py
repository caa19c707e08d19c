"""What the tests of the ground view's page in Chromium share."""

import importlib.util
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import has, until
from tests.support.ground import CHROMIUM, NO_CHROMIUM, Served, position

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGE_MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="no playwright here (make setup-extras)"),
    # Playwright's own loop and pipe to its driver, which it closes when the process ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""For `pytestmark` of a file that opens pages."""


def put(served: Served, kind: str, row: Any) -> None:
    """Make a row the served view's newest of its kind."""
    served.do(lambda ground: ground.picture.put(kind, row, time.time()))


def tick(served: Served, number: int) -> None:
    """The four drones are somewhere else."""

    def move(ground: Any) -> None:
        for drone in range(4):
            place = position(drone, 10.0 * drone + number % 50, 1.0 * (number % 40), time.time())
            ground.picture.put("position", place, time.time())

    served.do(move)


def heard(page: "Page") -> None:
    """Wait until the page has the stream and its first rows."""
    has(page, "receiving")
    until(page, "document.querySelector('[aria-posinset]')", "the first rows")
