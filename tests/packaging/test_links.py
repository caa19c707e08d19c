"""Dead links are found: inside the pages by `make docs`, on other hosts by `make links`, with the site's settings."""

import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytest.importorskip("sphinx", reason="no Sphinx here (make docs)")


class _Site(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(200 if self.path == "/there" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def host() -> Iterator[str]:
    """A host with one page, `/there`."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def built(folder: Path, page: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Build one page with the settings of `docs/`."""
    source = folder / "pages"
    source.mkdir()
    (source / "index.md").write_text(f"# Pages\n\n{page}\n")
    command = [sys.executable, "-m", "sphinx", *words, "-q", "-c", str(ROOT / "docs"), str(source), str(folder / "out")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.slow
def test_a_dead_link_to_another_host_fails_and_is_named(host: str, tmp_path: Path) -> None:
    page = f"[there]({host}/there), [nobody](https://registry.invalid/x), [gone]({host}/gone)."
    done = built(tmp_path, page, "-b", "linkcheck")
    assert done.returncode != 0
    told = (tmp_path / "out/output.txt").read_text()
    assert f"{host}/gone" in told
    assert f"{host}/there" not in told


@pytest.mark.slow
def test_links_that_answer_are_well(host: str, tmp_path: Path) -> None:
    done = built(tmp_path, f"[there]({host}/there), [nobody](https://otel.example/v1).", "-b", "linkcheck")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("link", ["gone.md", "index.md#nowhere", "#nowhere"])
def test_a_dead_link_within_the_pages_fails_as_make_docs_builds_them(link: str, tmp_path: Path) -> None:
    done = built(tmp_path, f"[dead]({link})", "-W", "--keep-going", "-b", "html")
    assert done.returncode != 0
    assert link.strip("#").split("#")[-1] in done.stderr


def test_make_docs_and_make_links_are_built_so() -> None:
    recipe = subprocess.run(["make", "-n", "-B", "docs", "links"], cwd=ROOT, capture_output=True, text=True, check=True)
    (site,) = re.findall(r".*-m sphinx .*-b html.*", recipe.stdout)
    assert " -W " in site
    (links,) = re.findall(r".*-m sphinx .*-b linkcheck.*", recipe.stdout)
    assert "-t links" in links
