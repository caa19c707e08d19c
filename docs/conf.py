"""The pages as a site: `make docs` builds it with Sphinx into `out/site`, where a warning is an error.

The reference of the command line is printed by the program itself, that of Python by its docstrings; both are written
to `docs/reference/` while the site is built, and not committed.
"""

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

import swarmd
from swarmd.cli.main import VERBS, main

project, author, version = "swarmd", "the developers of swarmd", swarmd.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["Thumbs.db", "reference/front-pages.md"]
html_theme = "furo"
html_title = f"swarmd {version}"
html_static_path: list[str] = []
html_copy_source = html_show_sphinx = False
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring, napoleon_numpy_docstring = True, False
# `make links`: places that documentation may name and nobody answers at (RFC 2606) are no links.
linkcheck_ignore = [r"https?://([\w-]+\.)*(example|invalid)([:/].*)?$"]
linkcheck_timeout, linkcheck_retries, linkcheck_anchors = 20, 3, False
linkcheck_report_timeouts_as_broken = True

_FOLDER = Path(__file__).parent


def _command_line() -> str:
    """Every verb's `--help`, as `swarmd` prints it."""
    os.environ["COLUMNS"] = "110"

    def told(*words: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([*words, "--help"])
        return out.getvalue().rstrip()

    parts = ["# Command line\n\nPrinted by `swarmd VERB --help`.\n"]
    parts += [f"## {f'swarmd {verb}'.strip()}\n\n```text\n{told(*verb.split())}\n```\n" for verb in ("", *VERBS)]
    return "\n".join(parts)


def _python() -> str:
    names = "\n".join(f"```{{eval-rst}}\n.. auto{_kind(name)}:: swarmd.{name}\n```\n" for name in swarmd.__all__)
    return f"# Python API\n\nWhat `import swarmd` gives, from its docstrings.\n\n{names}"


def _kind(name: str) -> str:
    thing: Any = getattr(swarmd, name)
    if not isinstance(thing, type):
        return "function" if callable(thing) else "data"
    return "exception" if issubclass(thing, BaseException) else "class"


def _front_pages() -> str:
    """Every address that a page beside `docs/` names, for `make links`."""
    pages = "".join(page.read_text() for page in sorted(_FOLDER.parent.glob("*.md")))
    links = "\n".join(f"- <{link}>" for link in sorted(set(re.findall(r"\]\((https?://[^)\s]+)\)", pages))))
    return f"---\norphan: true\n---\n\n# What the front pages link to\n\n{links}\n"


def setup(app: Any) -> None:
    """Write the pages that are made of code, unless they are as they were."""
    (_FOLDER / "reference").mkdir(exist_ok=True)
    pages = {"cli.md": _command_line, "python-api.md": _python}
    if app.tags.has("links"):
        app.config.exclude_patterns.remove("reference/front-pages.md")
        pages["front-pages.md"] = _front_pages
    for name, write in pages.items():
        text = write()
        page = _FOLDER / "reference" / name
        if not page.exists() or page.read_text() != text:
            page.write_text(text)
