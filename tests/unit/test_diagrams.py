"""The diagrams of the pages are those of the transition tables, and show every state and every step."""

import re
from xml.etree import ElementTree

from swarmd_protocols.releases.agent import TRANSITIONS
from tests.support.diagrams import RELEASE_AGENT, drawn, layers, pages
from tests.support.paths import ROOT


def test_every_diagram_is_current() -> None:
    for path, text in pages().items():
        assert path.read_text() == text, "run: python -m tests.support.diagrams"
    assert RELEASE_AGENT.name in (ROOT / "docs/protocols/releases.md").read_text()


def test_a_diagram_shows_each_state_and_each_step() -> None:
    text = RELEASE_AGENT.read_text()
    words = {element.text for element in ElementTree.fromstring(text).iter() if element.tag.endswith("text")}
    assert {str(state) for state in TRANSITIONS} <= words
    steps = set(re.findall(r"<title>(\w+) to (\w+)</title>", text))
    wanted = {(str(a), str(b)) for a, following in TRANSITIONS.items() for b in following if str(b) != "idle"}
    assert steps == wanted


def test_a_table_that_changes_changes_its_diagram() -> None:
    table = {"idle": {"busy"}, "busy": {"idle"}}
    assert layers(table, "idle") == [["idle"], ["busy"]]
    assert drawn(table, "idle") != drawn(table | {"idle": {"busy", "idle"}, "busy": set()}, "idle")
