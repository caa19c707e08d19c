"""The log: priorities where the journal listens, none elsewhere, and what is held back."""

import io
import json
import os

from swarmd.logs import PRIORITIES, Logger, is_journal


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
