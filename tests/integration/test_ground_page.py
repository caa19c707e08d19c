"""The ground view's page in Chromium: honest about what it shows, usable without a mouse, and nobody else's tool."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.ground.rows import Alert, Event, Signed
from swarmd.ground.view import prepares_nothing
from tests.support.browser import has, opened, picture, text, until
from tests.support.daemons import wait_for
from tests.support.exclusive import own_port
from tests.support.ground import (
    Served,
    fill,
    member,
    node_id,
    position,
    release,
    serving,
    site,
    thing,
    vote,
)
from tests.support.pages import PAGE_MARKS, heard, put
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = PAGE_MARKS
OUT = ROOT / "out" / "ui"
AXE = ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js"
EVIL = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "javascript:alert(1)",
    "\u202eenod\u202c\u0000\u0007",
    "a" * 400,
    "{{7*7}}${7*7}",
    "__proto__",
)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as one:
        yield one


def test_the_page_shows_what_is_known_and_asks_nobody_else(served: Served, browser: "Browser") -> None:
    with opened(browser, served.url) as (page, seen):
        heard(page)
        for words in ("swarm farm", "as seen by laptop", "5 of 5 heard", "12 objects", "2 of 8 cells done", "LIVE"):
            has(page, words)
        page.wait_for_timeout(600)
        picture(page, OUT, "live-dark")
        assert seen.requests
        assert all(url.startswith(served.url) for url in seen.requests)
        assert seen.complaints == []


def test_a_cut_is_said_and_its_end_too(served: Served, browser: "Browser") -> None:
    with opened(browser, served.url) as (page, _):
        heard(page)
        assert "cut" not in text(page)
        # One that is suspected may be back in a moment; two of four at once are said before they are taken for failed.
        days_ago_s = (
            time.time() - 20.5 * 86_400
        )  # A length that the words round to days does not change while one looks.
        put(served, "member", member(1, "suspect", since_s=days_ago_s))
        has(page, "4 of 5 heard")
        assert "not been heard" not in text(page)
        put(served, "member", member(2, "suspect", since_s=days_ago_s))
        has(page, "The swarm is cut: 2 of 4 members have not been heard for 21 d")
        for number in (1, 2):
            put(served, "member", member(number, "failed", since_s=days_ago_s))
        has(page, "The swarm is cut: 2 of 4 members have not been heard for 21 d")
        has(page, "3 of 5 heard")
        has(page, "You see what laptop knows")
        picture(page, OUT, "cut-dark")
        put(served, "member", member(1))
        has(page, "drone-2 has not been heard for")
        put(served, "member", member(2))
        until(page, "!document.body.innerText.includes('not been heard')", "the banner to go")
        for number in range(4):
            put(served, "member", member(number, "failed", since_s=time.time()))
        has(page, "laptop is cut off: none of 4 members is heard")


def test_a_server_that_falls_silent_is_said_and_the_view_stays(tmp_path: Path, browser: "Browser") -> None:
    port = own_port()  # One from the kernel may be given to another process between the two servers.
    with serving(tmp_path, port=port) as served, opened(browser, served.url) as (page, _):
        heard(page)
        page.keyboard.press("j")
        chosen = page.inner_text(".detail h2")
        served.close()
        has(page, "server does not answer")
        assert page.inner_text(".detail h2") == chosen
        again = Served(tmp_path, port=port)
        try:
            again.do(lambda ground: fill(ground, 6, 12))
            has(page, "receiving")
            has(page, "7 of 7 heard")
            assert page.inner_text(".detail h2") == chosen
        finally:
            again.close()


def test_a_first_picture_that_takes_its_time_is_waited_for(served: Served, browser: "Browser") -> None:
    """On a busy machine, or over a slow link; an attempt that is given up too early would be given up each time."""
    context = browser.new_context()
    page = context.new_page()

    def late(route: Any) -> None:
        page.wait_for_timeout(6_000)
        route.continue_()

    page.route("**/api/v1/snapshot", late)
    page.goto(served.url)
    has(page, "receiving")
    context.close()


def test_every_name_is_text(served: Served, browser: "Browser") -> None:
    """Whatever members, objects and events are called: no script runs, no element appears, nothing breaks the page."""
    now_s = time.time()
    for number, name in enumerate(EVIL, 10):
        broken = [f"{name} hears {name}, {name} does not"]
        put(served, "member", member(number, "failed", name=name, broken=broken, row=[(node_id(0), name)]))
        put(served, "position", position(number, 10.0 + number, 10.0, now_s, name))
        put(served, "object", thing(number, 5.0 * number, 20.0, now_s, name, name))
        put(served, "event", Event(f"x{number}", now_s, name, "failed", "info", name, name, name))
        signed = Signed("halt", None, name, 1.0, [name])
        put(served, "release", release(signed, id=f"x{number}", model=name, state=name, digest=name, signers=[name]))
        put(served, "vote", vote(number, name, release=f"x{number}", name=name, verdict=name, reason=name))
        put(served, "alert", Alert(f"x{number}", name, name, "error", name, name, name, now_s))
    with opened(browser, served.url) as (page, seen):
        page.on("dialog", lambda dialog: seen.complaints.append(f"dialog: {dialog.message}"))
        heard(page)
        for key in "123456":
            page.keyboard.press(key)
            page.wait_for_timeout(150)
            for _ in range(14):
                page.keyboard.press("j")
            assert (
                page.evaluate(
                    "document.querySelectorAll('#app img, #app script, #app iframe, #app a[href^=javascript]').length"
                )
                == 0
            )
        page.wait_for_timeout(400)
        picture(page, OUT, "hostile-dark")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth && ({}).polluted === undefined")
        assert seen.complaints == []
        assert page.evaluate("Math.max(...[...document.querySelectorAll('.pill')].map(e => e.offsetWidth)) < 460")


def test_everything_can_be_done_without_a_mouse(served: Served, browser: "Browser") -> None:
    with opened(browser, served.url) as (page, seen):
        heard(page)
        stops = []
        for _ in range(30):
            page.keyboard.press("Tab")
            stop = page.evaluate("""(() => {
                const one = document.activeElement;
                return one === document.body ? '' : `${one.tagName} ${one.ariaLabel ?? one.innerText}`;
            })()""")
            if not stop or stop in stops:
                break
            stops.append(stop)
        assert len(stops) < 15, stops
        page.locator("body").click(position={"x": 300, "y": 20})
        for key, label in (("2", "Members"), ("3", "Events"), ("1", "Objects")):
            page.keyboard.press(key)
            until(page, f"document.querySelector('[role=listbox]')?.ariaLabel === '{label}'", label)
        page.keyboard.press("j")
        has(page, "Evidence")
        first = page.inner_text(".detail")
        page.keyboard.press("j")
        until(page, f"document.querySelector('.detail').innerText !== {json.dumps(first)}", "the next one")
        page.keyboard.press("Escape")
        until(page, "!document.querySelector('.detail')", "no details")
        page.keyboard.press("/")
        page.keyboard.type("soil")
        until(page, "document.querySelectorAll('[role=option]').length < 12", "fewer rows")
        assert "soiling" in page.inner_text("[role=listbox]")
        page.keyboard.press("Escape")
        page.keyboard.press(" ")
        has(page, "The past,")
        page.keyboard.press("l")
        has(page, "LIVE")
        assert seen.complaints == []


def test_an_order_is_prepared_in_words_saved_and_followed_until_it_is_heard(served: Served, browser: "Browser") -> None:
    """The page asks, shows what will be signed, gives the very file, and says when the swarm holds it."""
    with opened(browser, served.url) as (page, seen):
        heard(page)
        page.keyboard.press("5")
        has(page, "stage 1 of 3")
        page.keyboard.press("j")
        for words in ("1 of 2 passes, 1 fails; 2 halt it", "stage of 2 of 4", "by 01020304, 05060708", "3 of 3 pieces"):
            has(page, words)
        for words in ("recall 0.61 is below 0.8", "canary", "later", "FAIL", "PASS"):
            assert words in page.inner_text("[role=listbox]")
        page.get_by_label("Reason").fill("it sees l 5 ghosts")
        assert "LIVE" in text(page), "letters of a reason are no keys of the page"
        page.keyboard.press("Enter")
        for words in ("halts release eye 7", "Nobody has signed it.", "It takes 2 of the role revoke", "Not heard"):
            has(page, words)
        assert "swarmd keys submit halt-eye-7-abababab.prepared.1" in page.inner_text("pre")
        with page.expect_download() as saved:
            page.get_by_text("Save halt-eye-7-abababab.prepared").click()
        assert saved.value.suggested_filename == "halt-eye-7-abababab.prepared"
        assert saved.value.path().read_text() == "the file of halt: it sees l 5 ghosts"
        picture(page, OUT, "release-dark")
        signed = Signed("halt", None, "it sees l 5 ghosts", 1_790_000_100.0, ["0a0b0c0d", "0e0f1011"])
        put(served, "release", release(signed, state="halted", since_s=time.time()))
        has(page, "Heard: signed by 0a0b0c0d, 0e0f1011. 0 nodes still say that they run version 7.")
        assert seen.complaints == []


def test_an_order_that_is_refused_says_why(served: Served, browser: "Browser") -> None:
    served.do(lambda ground: setattr(ground, "prepare", prepares_nothing))
    with opened(browser, served.url) as (page, _):
        heard(page)
        page.keyboard.press("5")
        has(page, "stage 1 of 3")
        page.keyboard.press("j")
        page.get_by_role("button", name="Prepare").click()
        has(page, "a recording has no swarm to tell")


def test_an_alert_that_was_seen_says_by_whom_and_stands_below_what_nobody_saw(
    served: Served, browser: "Browser"
) -> None:
    now_s = time.time()
    other = Alert("broker-lost mqtt", "broker-lost", "mqtt", "error", "no answer", "it is away", "Look.", now_s)
    put(served, "alert", other)
    with opened(browser, served.url) as (page, _):
        heard(page)
        has(page, "Alerts 2")
        page.keyboard.press("4")
        has(page, "swarmd acknowledge broker-lost 'mqtt' --note")
        assert page.locator("article.alert b").all_inner_texts() == ["broker-lost · mqtt", "clock-wrong"]
        seen = {"acknowledged_by": "ann", "acknowledged_s": now_s, "acknowledged_note": "on my way"}
        put(served, "alert", msgspec.structs.replace(other, **seen))
        has(page, "Alerts 1")
        has(page, "Seen by ann")
        has(page, "on my way")
        assert page.locator("article.alert b").all_inner_texts() == ["clock-wrong", "broker-lost · mqtt"]
        assert page.locator("dialog, [aria-modal=true], [role=alertdialog]").count() == 0
        put(served, "alert", other)
        has(page, "Alerts 2")


def test_the_matrix_says_who_hears_whom_by_everybodys_own_word(tmp_path: Path, browser: "Browser") -> None:
    with serving(tmp_path, drones=40) as served, opened(browser, served.url) as (page, seen):
        heard(page)
        page.keyboard.press("6")
        has(page, "Every member that is heard says that its links are good.")
        put(served, "member", member(7, row=[(node_id(9), "heard-only"), (node_id(11), "late")]))
        put(served, "member", member(12, "failed", row=[(node_id(7), "indirect")]))
        until(page, "document.querySelectorAll('.row.links').length === 3", "three links")
        has(page, "37 of 41 are left out")
        cell = "document.querySelector('.matrix td[title=\"{0} says of {1}: {2}\"]')?.innerText"
        for reporter, other, quality, sign in (
            ("drone-7", "drone-9", "heard-only", "✕"),
            ("drone-9", "drone-7", "good", "·"),
            ("drone-7", "drone-11", "late", "◷"),
            ("drone-12", "drone-7", "indirect", "↷"),
            ("drone-12", "drone-9", "unknown", "?"),
        ):
            assert page.evaluate(cell.format(reporter, other, quality)) == sign, (reporter, other)
        told = page.locator(".row.links").all_inner_texts()
        assert [" ".join(one.split()) for one in told] == [
            "drone-7 drone-9 heard-only good",
            "drone-7 drone-11 late good",
            "drone-12 drone-7 indirect good",
        ]
        picture(page, OUT, "network-dark")
        assert seen.complaints == []


def test_an_event_stands_beside_its_time_within_its_row(served: Served, browser: "Browser") -> None:
    for number in range(3):
        event = Event(f"x{number}", time.time(), "drone-1", "failed", "warning", "drone-2", "no answer", "from anybody")
        put(served, "event", event)
    with opened(browser, served.url) as (page, _):
        heard(page)
        page.keyboard.press("3")
        until(page, "document.querySelectorAll('.row.events').length === 4", "four events")
        rows = page.evaluate("""[...document.querySelectorAll('.row.events')].map(row => [row, ...row.children].map(
            one => { const box = one.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; }))""")
        for row, when, what, why in rows:
            assert when[2] <= what[0], "the time stands beside what happened"
            assert what[0] == why[0], "the reason stands under it"
            assert what[3] <= why[1] + 1
            assert row[1] <= what[1], "all of it lies within its row"
            assert why[3] <= row[3] + 1
        head = page.evaluate("[...document.querySelectorAll('.head.events button')].map(one => one.offsetLeft)")
        assert head[0] < head[1]


def test_the_past_is_shown_and_played_and_the_present_comes_back(served: Served, browser: "Browser") -> None:
    # The moments are the test's own: none of them depends on how fast this machine is.
    began_s = time.time() + 0.1
    lost, back_s = member(3, "failed", since_s=began_s), began_s + 0.3
    served.do(lambda ground: ground.picture.put("member", lost, began_s))
    served.do(lambda ground: ground.picture.put("member", member(3), back_s))
    wait_for(lambda: time.time() > back_s + 0.1, "the moments to be over")
    with opened(browser, served.url, "light") as (page, seen):
        heard(page)
        assert "not been heard" not in text(page)
        page.evaluate(f"ground.seek({began_s + 0.15})")
        has(page, "drone-3 has not been heard for 0 s")
        has(page, "What happens meanwhile is not shown")
        page.wait_for_timeout(300)
        picture(page, OUT, "past-light")
        page.keyboard.press(" ")
        until(page, f"ground.past.value === null || ground.past.value > {back_s}", "the replay to go on")
        until(page, "!document.body.innerText.includes('not been heard')", "the replay to show the return")
        page.keyboard.press("l")
        has(page, "LIVE")
        assert seen.complaints == []


@pytest.mark.parametrize("mode", ["live", "recording"])
def test_the_map_of_the_past_shows_what_was_found_then(tmp_path: Path, browser: "Browser", mode: str) -> None:
    """What stands is copied from a bitmap: that of the present, or of a recording's end, is none of the past's."""
    marked = """(() => {
        ground.centre(300, 300); ground.paint(); ground.paint();
        const canvas = document.querySelector("canvas"), [x, y] = [canvas.width >> 1, canvas.height >> 1];
        const { data } = canvas.getContext("2d").getImageData(x - 8, y - 8, 16, 16);
        return new Set(Array.from({ length: 256 }, (_, i) => data.slice(4 * i, 4 * i + 3).join())).size > 1;
    })()"""
    with (
        serving(tmp_path, site=msgspec.structs.replace(site(), mode=mode)) as served,
        opened(browser, "about:blank") as (page, _),
    ):
        found_s = time.time() + 0.1
        served.do(lambda ground: ground.picture.put("object", thing(99, 300.0, 300.0, found_s), found_s))
        wait_for(lambda: time.time() > found_s + 0.1, "the moment to be over")
        page.goto(served.url)
        until(page, "document.querySelector('[aria-posinset]')", "the first rows")
        page.evaluate("for (let i = 0; i < 9; i++) ground.zoom(1.3)")
        assert page.evaluate(marked)
        # Until the picture of that moment is here what was shown stays, and not an empty map.
        late = "(async () => {{ window.done = false; await ground.seek({}); window.done = true; }})(); "
        assert page.evaluate(late.format(found_s - 0.05) + marked)
        until(page, "window.done", "the moment before")
        assert not page.evaluate(marked)
        page.evaluate(f"ground.seek({found_s + 0.05})")
        assert page.evaluate(marked)


def test_a_moment_at_which_the_same_stands_paints_no_bitmap_anew(served: Served, browser: "Browser") -> None:
    """Whoever scrubs sees drones move; what stands still costs a frame nothing, whatever the moment."""
    began_s = time.time() + 0.1
    moved_s, found_s = began_s + 0.1, began_s + 0.2
    for at_s in (began_s, moved_s):
        place = position(0, 100 * (at_s - began_s), 0.0, at_s)
        served.do(lambda ground, place=place, at_s=at_s: ground.picture.put("position", place, at_s))
    served.do(lambda ground: ground.picture.put("object", thing(99, 30.0, 30.0, found_s), found_s))
    wait_for(lambda: time.time() > found_s + 0.1, "the moments to be over")
    painted = (
        "(async () => {{ await ground.seek({}); ground.paint(); ground.paint(); return ground.spent().bitmaps; }})()"
    )
    with opened(browser, served.url) as (page, seen):
        heard(page)
        first, moved, found = (page.evaluate(painted.format(at_s + 0.05)) for at_s in (began_s, moved_s, found_s))
        assert moved == first
        assert found == first + 1
        assert page.evaluate("ground.world().object.size") == 13
        assert seen.complaints == []


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core here (make setup-extras)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(served: Served, browser: "Browser", scheme: str) -> None:
    put(served, "member", member(1, "failed", since_s=time.time() - 5, row=[(node_id(2), "heard-only")]))
    put(served, "release", release(Signed("halt", None, "it sees ghosts", 1_790_000_100.0, ["0a0b0c0d"])))
    with opened(browser, served.url, scheme) as (page, _):
        heard(page)
        page.evaluate(AXE.read_text())
        for key in "123456":
            page.keyboard.press(key)
            page.wait_for_timeout(200)
            page.keyboard.press("j")
            page.wait_for_timeout(500)
            found = page.evaluate("axe.run()")["violations"]
            told = [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
            assert told == [], f"panel {key}"


def test_without_an_origin_the_page_says_why_the_map_is_empty(tmp_path: Path, browser: "Browser") -> None:
    nowhere = replace_site(site(0))
    with serving(tmp_path, objects=0, site=nowhere) as served, opened(browser, served.url) as (page, seen):
        has(page, "No mission origin")
        assert seen.complaints == []


def replace_site(one: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(one, latitude_deg=None, longitude_deg=None, assets=[])
