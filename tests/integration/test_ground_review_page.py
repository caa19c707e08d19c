"""Reviewing in the page beside real daemons: a key that never leaves the browser, named in a root; the keyboard."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.identity.fleet import Fleet
from swarmd.identity.officers import parse_public
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.trust.envelopes import sign_statement
from tests.integration.test_ground_operators import PLACE
from tests.integration.test_ground_swarm import GroundProcess
from tests.support.browser import has, opened, picture, text, until
from tests.support.daemons import Daemon, wait_for
from tests.support.pages import PAGE_MARKS
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = PAGE_MARKS
OUT = ROOT / "out" / "ui"


@pytest.fixture
def field(tmp_path: Path) -> Iterator[tuple[Daemon, GroundProcess]]:
    drone = Daemon(tmp_path, "drone-1", "--no-eye", "--set", "node.origin=48.0,11.0").up()
    ground = GroundProcess(tmp_path, drone.status()["address"])
    try:
        ground.begin()
        yield drone, ground
    finally:
        ground.close()
        drone.close()


def reviewed(drone: Daemon) -> list[tuple[str, str, str]]:
    rows: list[dict[str, Any]] = drone.ask("objects")["objects"]
    return sorted((said["operator"], said["verdict"], said["text"]) for row in rows for said in row["reviews"])


def name_operator(folder: Path, drone: Daemon, line: str) -> None:
    """What officers do with the public half that the page shows."""
    fleet = Fleet(folder / "fleet")
    root = fleet.next_root({"operator": (1, [parse_public(line).public])})
    statement = sign_statement("root", root, fleet.seeds("root"), NaClCrypto())
    drone.ask("trust", kind="root", statement=statement.hex())


def sign_in(page: "Page") -> None:
    page.click(".signin button")


def test_a_key_of_the_browser_reviews_by_keyboard(
    tmp_path: Path, field: tuple[Daemon, GroundProcess], browser: "Browser"
) -> None:
    drone, ground = field
    drone.ask("observe", detections=[PLACE])
    wait_for(lambda: ground.rows("object"), "the object")
    with opened(browser, f"http://127.0.0.1:{ground.port}/") as (page, seen):
        has(page, "receiving")
        until(page, "document.querySelector('[aria-posinset]')", "the object")
        page.keyboard.press("j")
        until(page, "document.querySelector('.signin summary')", "the object's details")
        page.click(".signin summary")
        page.fill(".signin input", "alice")
        page.press(".signin input", "Enter")
        until(page, "document.querySelector('.signin pre')", "the public half")
        line = page.inner_text(".signin pre")

        # Nobody has named the key yet; the page says what is to be done.
        sign_in(page)
        has(page, "does not name the key")
        name_operator(tmp_path, drone, line)
        wait_for(lambda: ground.ask("trust_status")["root"] == 2, "the root at the laptop", seen=ground.log)
        sign_in(page)
        has(page, "as alice, key")

        # By keyboard: it is a crack; a note; and the evidence stands beside it.
        page.keyboard.press("e")
        until(page, "document.activeElement.getAttribute('aria-label') === 'Right label'", "the field")
        page.keyboard.type("crack")
        page.keyboard.press("Enter")
        wait_for(
            lambda: reviewed(drone) == [("alice", "relabel", "crack")],
            "the swarm knows",
            seen=lambda: str(reviewed(drone)),
        )
        listed = "[...document.querySelectorAll('li')].some(one => one.textContent.includes('says it is crack'))"
        until(page, listed, "the label in the list")
        has(page, "relabelled by operators")
        until(page, "!document.querySelector('[aria-label=\"Right label\"]')", "the field to go")
        page.keyboard.press("n")
        until(page, "document.activeElement.getAttribute('aria-label') === 'Note'", "the field")
        page.keyboard.type("<img src=x onerror=alert(1)> look")
        page.keyboard.press("Enter")
        wait_for(lambda: len(reviewed(drone)) == 2, "the note", seen=lambda: str(reviewed(drone)))
        # In the list: the page knows it too, so that the next word is said of what is shown. The server's answer, which
        # comes sooner, says the note as well; what is said of an older revision is refused.
        listed = "[...document.querySelectorAll('li')].some(one => / notes .*alert\\(1\\)> look/.test(one.textContent))"
        until(page, listed, "the note in the list")
        has(page, "<img src=x onerror=alert(1)> look")
        picture(page, OUT, "review-dark")

        # The key is in this browser's store, and cannot be read out of it.
        extractable = page.evaluate(
            """() => new Promise((done) => {
                const opening = indexedDB.open("swarmd-operator", 1);
                opening.onsuccess = () => {
                    const asked = opening.result.transaction("keys").objectStore("keys").get("operator");
                    asked.onsuccess = () => done(asked.result.pair.privateKey.extractable);
                };
            })"""
        )
        assert extractable is False
        assert base64.b64decode(line.split()[1])[-32:] == parse_public(line).public

        # To confirm what it is shown as is the newest word. One thing is said at a time.
        free = "[...document.querySelectorAll('button')].some(b => /^confirm/.test(b.textContent) && !b.disabled)"
        until(page, free, "the note to be done")
        page.keyboard.press("c")
        wait_for(
            lambda: ("alice", "confirm", "") in reviewed(drone),
            "confirmed",
            seen=lambda: f"{reviewed(drone)}; the page says: {text(page)[:1500]}",
        )
        assert not [one for one in seen.complaints if "403" not in one]
        assert all(url.startswith(f"http://127.0.0.1:{ground.port}/") for url in seen.requests)
