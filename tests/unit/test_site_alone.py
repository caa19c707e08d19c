"""The check of `make docs` finds what a page would ask of another host, and nothing else."""

from pathlib import Path

import pytest

from tests.support.site import asks_elsewhere


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script src="https://cdn.example/x.js"></script>'),
        ("a.html", '<link rel="stylesheet" href="//fonts.example/css">'),
        ("a.html", '<img alt="" src="http://badge.example/ok.svg">'),
        ("a.html", "<div style=\"background: url('https://x.example/y.png')\"></div>"),
        ("b/a.css", '@import "https://fonts.example/inter.css";'),
        ("b/a.css", "body { background: url(//x.example/y.png) }"),
    ],
)
def test_what_is_loaded_from_elsewhere_is_found(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert len(asks_elsewhere(tmp_path)) == 1


def test_links_that_somebody_may_click_are_no_requests(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://example.org">there</a><script src="_static/x.js"></script><img src="data:image/png;base64,A">'
        '<link rel="canonical" href="https://example.org/a.html"><link rel="stylesheet" href="_static/y.css">'
    )
    (tmp_path / "y.css").write_text("body { background: url(data:image/svg+xml;base64,AA) }")
    assert asks_elsewhere(tmp_path) == []
