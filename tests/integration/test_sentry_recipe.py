"""The lines of `docs/observability.md` that pass alerts on to Sentry: its own program, and a server that reads it."""

import gzip
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import Start, wait_for
from tests.support.paths import ROOT

BIN = Path(sys.executable).parent
pytestmark = [
    pytest.mark.skipif(not (BIN / "sentry-cli").exists(), reason="sentry-cli is not installed (make setup-extras)"),
    pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed (apt install jq)"),
]


@contextmanager
def sentry() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An address for `SENTRY_DSN`, and the events that came there."""
    events: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            text = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            head, item, event = text.decode().split("\n")[:3]
            assert json.loads(head)["event_id"]
            assert json.loads(item)["type"] == "event"
            events.append(json.loads(event))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://key@127.0.0.1:{server.server_address[1]}/1", events
        server.shutdown()
        thread.join()


def test_what_happens_reaches_sentry_and_the_shells_secrets_do_not(start: Start, tmp_path: Path) -> None:
    (block,) = re.findall(r'```sh title="sentry"\n(.*?)```', (ROOT / "docs/observability.md").read_text(), re.DOTALL)
    assert "--kind alert-raised " in block
    # A member that joins is an event like an alert, and can be had at will.
    lines = block.replace("--kind alert-raised ", f"--kind joined --control {tmp_path / 'a.sock'} ")
    a = start("a", "--no-eye").up()
    lines = lines.replace(str(tmp_path / "a.sock"), str(a.control))
    with sentry() as (address, events):
        known = {"PATH": f"{BIN}:{os.environ['PATH']}", "SENTRY_DSN": address, "BROKER_PASSWORD": "not-for-everybody"}
        shell = subprocess.Popen(["bash", "-c", lines], env=os.environ | known, start_new_session=True)
        try:
            for turn in range(1, 20):  # Who follows is known to nobody: somebody joins until it is told.
                start(f"b{turn}", "--no-eye", join=a.status()["address"]).up()
                try:
                    wait_for(lambda: events, "an event", 10)
                    break
                except AssertionError:
                    continue
            assert events
        finally:
            os.killpg(shell.pid, 15)
            shell.wait(60)
    told = events[0]
    assert told["level"] == "warning"
    assert re.fullmatch(r"a: b\d+", told["logentry"]["message"])
    assert json.loads(told["extra"]["event"])["kind"] == "joined"
    assert "not-for-everybody" not in json.dumps(events)
