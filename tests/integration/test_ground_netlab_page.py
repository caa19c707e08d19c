"""Two laptops with a page each, cut off and back: what a cut hides is said, what both operators said stands on both.

Real daemons and a browser on every laptop, in network namespaces; a cut is a cable that is pulled. Figures of times go
to out/ui/cut.json for a person to read.
"""

import contextlib
import importlib.util
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.identity.fleet import Fleet
from swarmd.identity.officers import parse_public
from swarmd.release.audit import verify_folder
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.trust.envelopes import sign_statement
from tests.integration.test_ground_operators import PLACE
from tests.integration.test_review_netlab import Laptop
from tests.support import namespaces
from tests.support.browser import browsers, has, opened, picture, text, until
from tests.support.daemons import PlainDaemon, wait_for
from tests.support.ground import CHROMIUM, NO_CHROMIUM
from tests.support.namespaces import Networks
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    *namespaces.marks(560),
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="no playwright here (make setup-extras)"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
OUT = ROOT / "out" / "ui"
BANNER = "(document.querySelector('.notes')?.innerText ?? '')"


def own_key(page: "Page", name: str) -> str:
    """The page makes a key for somebody; its public half."""
    page.keyboard.press("j")
    until(page, "document.querySelector('.signin summary')", "the object's details")
    page.click(".signin summary")
    page.fill(".signin input", name)
    page.press(".signin input", "Enter")
    until(page, "document.querySelector('.signin pre')", "the public half")
    return str(page.inner_text(".signin pre"))


def name_operators(folder: Path, drone: PlainDaemon, *lines: str) -> None:
    """What officers do with the public halves."""
    fleet = Fleet(folder / "fleet")
    root = fleet.next_root({"operator": (1, [parse_public(line).public for line in lines])})
    drone.ask("trust", kind="root", statement=sign_statement("root", root, fleet.seeds("root"), NaClCrypto()).hex())


def listed(words: str) -> str:
    return f"[...document.querySelectorAll('li')].some(one => one.textContent.includes({json.dumps(words)}))"


def every_cable_is_pulled(net: Networks, pages: "list[tuple[Laptop, Page]]", figures: dict[str, float]) -> None:
    """Each page says that its laptop is cut off, and its operator goes on."""
    began_s = time.monotonic()
    for index in (1, 2):
        net.ip(net.hub, "link", "set", f"air{index}", "down")
    for laptop, page in pages:
        until(page, f"/not been heard|cut off/.test({BANNER})", "a word about the cut")
        figures.setdefault(f"{laptop.folder.name} shows the cut after s", round(time.monotonic() - began_s, 1))
    for laptop, page in pages:
        has(page, f"{laptop.folder.name} is cut off: none of 2 members is heard")
    (_, first), (_, second) = pages
    first.keyboard.press("e")
    until(first, "document.activeElement.getAttribute('aria-label') === 'Right label'", "the field")
    first.keyboard.type("crack")
    first.keyboard.press("Enter")
    until(first, listed("alice says it is crack"), "what alice says")
    second.keyboard.press("r")
    until(second, listed("bob rejects"), "what bob says")
    has(first, "relabelled by operators")
    has(second, "rejected by operators")
    assert "bob" not in text(first)
    assert "alice" not in text(second)
    picture(first, OUT, "cut-off-dark")


def the_cables_are_back(net: Networks, pages: "list[tuple[Laptop, Page]]", figures: dict[str, float]) -> None:
    """Nothing is lost, nobody is overruled, and each chain holds both."""
    began_s = time.monotonic()
    for index in (1, 2):
        net.ip(net.hub, "link", "set", f"air{index}", "up")
    for laptop, page in pages:
        until(page, f"{BANNER} === ''", "the banner to go")
        figures[f"{laptop.folder.name} shows the end of it after s"] = round(time.monotonic() - began_s, 1)
    for laptop, page in pages:
        until(page, f"{listed('alice says it is crack')} && {listed('bob rejects')}", "both")
        has(page, "disputed")
        has(page, "3 of 3 heard")
        picture(page, OUT, f"both-reviews-{laptop.folder.name}-dark")
    mine, theirs = ("review", "alice", "relabel"), ("review", "bob", "reject")
    for laptop, expected in zip([laptop for laptop, _ in pages], ((mine, theirs), (theirs, mine)), strict=True):
        whole = {expected[0], ("heard", *expected[1][1:])}
        wait_for(lambda laptop=laptop, whole=whole: laptop.written() == whole, "both in the chain",
                 seen=lambda laptop=laptop: str(laptop.written()))  # fmt: skip
        sound, _, problem = verify_folder(laptop.folder / "laptop" / "operators")
        assert problem is None
        assert sound >= 3


def test_what_a_cut_hides_and_what_was_said_meanwhile(tmp_path: Path) -> None:
    with Networks() as net, contextlib.ExitStack() as ends:
        net.network("air")
        for index in range(3):
            net.plug(index, "air", "eth0", f"10.78.0.{index + 1}/24")
        flags = ["--dev-fleet", str(tmp_path / "fleet"), "--name", "drone-1", "--listen", "10.78.0.1:7946"]
        flags += ["--set", "node.origin=48.0,11.0"]
        drone = PlainDaemon("drone-1", tmp_path / "drone-1", flags, net.prefix(0))
        ends.callback(drone.close)
        drone.start()
        laptops: list[Laptop] = []
        for index in (1, 2):
            laptops.append(Laptop(tmp_path, net, index, "10.78.0.1:7946"))
            ends.callback(laptops[-1].close)
        drone.ask("observe", detections=[PLACE])
        pages: list[tuple[Laptop, Page]] = []
        seen: list[Any] = []
        for laptop, browser in zip(laptops, ends.enter_context(browsers(net.prefix(1), net.prefix(2))), strict=True):
            wait_for(
                lambda laptop=laptop: laptop.rows("object"), f"the object at {laptop.folder.name}", seen=laptop.log
            )
            page, saw = ends.enter_context(opened(browser, f"http://127.0.0.1:{laptop.port}/"))
            pages.append((laptop, page))
            seen.append(saw)
            has(page, "3 of 3 heard")
            until(page, "document.querySelector('[aria-posinset]')", "the object")
        lines = [own_key(page, name) for (_, page), name in zip(pages, ("alice", "bob"), strict=True)]
        name_operators(tmp_path, drone, *lines)
        for (laptop, page), name in zip(pages, ("alice", "bob"), strict=True):
            wait_for(lambda laptop=laptop: laptop.ask("trust_status")["root"] == 2, "the root", seen=laptop.log)
            page.click(".signin button")
            has(page, f"as {name}, key")
            assert page.evaluate(BANNER) == ""

        figures: dict[str, float] = {}
        every_cable_is_pulled(net, pages, figures)
        the_cables_are_back(net, pages, figures)
        for (laptop, _), saw in zip(pages, seen, strict=True):
            assert all(url.startswith(f"http://127.0.0.1:{laptop.port}/") for url in saw.requests)
            assert saw.complaints == []
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "cut.json").write_text(json.dumps(figures, indent=2) + "\n")
