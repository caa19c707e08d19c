"""The log: priorities where the journal listens, none elsewhere, and what is held back."""

import io
import json
import os
import re
from types import SimpleNamespace
from typing import Any

import pytest

from swarmd.brain.eyelink import EyeLink
from swarmd.logs import BURST, PRIORITIES, Logger, is_journal
from tests.support.paths import ROOT


def test_lines_carry_a_priority_exactly_where_the_journal_listens(tmp_path, monkeypatch, capfd):
    with (tmp_path / "stream").open("w+") as stream, (tmp_path / "other").open("w") as other:
        status = os.fstat(stream.fileno())
        name = f"{status.st_dev}:{status.st_ino}"
        assert is_journal(name, stream)
        assert not is_journal(name, other)
        assert not is_journal("", stream)
        assert not is_journal(name, io.StringIO())
        monkeypatch.setenv("JOURNAL_STREAM", name)
        monkeypatch.setattr("sys.stderr", stream)
        log = Logger("drone-1", level="debug")
        for level in PRIORITIES:
            getattr(log, level)(f"a_{level}")
        stream.seek(0)
        lines = stream.read().splitlines()
        monkeypatch.setattr("sys.stderr", other)
        Logger("drone-1").warning("elsewhere")
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>"]
    assert [json.loads(line[3:])["event"] for line in lines] == ["a_debug", "a_info", "a_warning", "a_error"]
    assert (tmp_path / "other").read_text().startswith("{")


def test_an_eye_that_goes_on_fills_no_log() -> None:
    """Its status record is due every ten seconds; of what stays as it is there is one line."""
    out = io.StringIO()
    link: Any = SimpleNamespace(
        telemetry=SimpleNamespace(count=lambda: None, report=lambda *_: {"fps": 10.0}),
        pose=None,
        model="small-320",
        model_digest="ab",
        state="running",
        _log=Logger("n", stream=out),
        _said=None,
        _pilot=SimpleNamespace(tick=lambda: None),
    )
    for state, lines in (("running", 1), ("running", 1), ("failed", 2), ("running", 3)):
        link.state = state
        for _ in range(100):
            EyeLink.tick(link)
        assert out.getvalue().count('"event": "eye"') == lines


def test_a_bridge_that_says_much_holds_back_no_other() -> None:
    out = io.StringIO()
    log = Logger("drone-1", stream=out)
    for _ in range(100):
        log.warning("bridge_problem", where="plugin_talks", text="and")
    log.warning("bridge_problem", where="mqtt", text="the broker has gone")
    said = [json.loads(line)["where"] for line in out.getvalue().splitlines()]
    assert said == [*["plugin_talks"] * BURST, "mqtt"]


def test_a_line_has_what_the_recipe_for_loki_makes_labels_of(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/observability.md").read_text()
    (expressions,) = re.findall(r"stage\.json\s+\{ expressions = \{ (.*?) \} \}", page)
    (labels,) = re.findall(r"stage\.labels \{ values = \{ (.*?) \} \}", page)
    read = dict(re.findall(r'(\w+) = "(\w+)"', expressions))
    assert set(re.findall(r'(\w+) = ""', labels)) <= read.keys()
    Logger("drone-1").warning("bridge_problem", text="x")
    assert set(read.values()) <= json.loads(capsys.readouterr().err).keys()
