"""The pages for operators name real paths, tests that are there, and verbs that there are."""

import argparse
import ast
import re
from pathlib import Path

import pytest

from swarmd.cli import keys
from swarmd.cli.main import VERBS
from swarmd.identity.files import IDENTITY_FILE
from tests.support.paths import ROOT

PAGES = ("security.md", "keys.md", "remote.md")
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_PATH = re.compile(r"/(?:etc|run)/swarmd[\w./@-]*")
_VERB = re.compile(r"^ *swarmd ([a-z-]+)(?: ([a-z-]+))?", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_is_named_is_there(page: str) -> None:
    named = _TEST.findall((ROOT / "docs" / page).read_text())
    assert named or page != "security.md"
    for path, name in named:
        assert (ROOT / path).exists(), path
        assert Path(path).name.startswith("test_"), f"{path} is collected"
        assert not name or name in collected(ROOT / path), f"{path}::{name} is collected, and skipped nowhere"


def collected(path: Path) -> set[str]:
    """Names of the tests of a file that pytest runs: at its top, with a test's name, without a mark that skips."""
    return {
        one.name
        for one in ast.parse(path.read_text()).body
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        and one.name.startswith("test_")
        and not any("skip" in ast.unparse(mark) or "xfail" in ast.unparse(mark) for mark in one.decorator_list)
    }


@pytest.mark.parametrize("page", PAGES)
def test_every_path_is_one_of_an_installed_device(page: str) -> None:
    unit = (ROOT / "systemd" / "swarmd.service").read_text()
    assert "LoadCredential=swarmd:/etc/swarmd/credentials" in unit
    assert "RuntimeDirectory=swarmd\n" in unit
    real = {"/etc/swarmd/credentials", f"/etc/swarmd/credentials/{IDENTITY_FILE}", "/etc/swarmd/swarmd.toml"}
    real |= {"/etc/swarmd", *(f"/etc/swarmd/{name}" for name in ("credentials/door.key", "door.pem", "operators.pem"))}
    for path in _PATH.findall((ROOT / "docs" / page).read_text()):
        path = path.rstrip(".")
        assert path in real or re.fullmatch(r"/run/swarmd/(I/)?[\w-]+\.sock", path), path


@pytest.mark.parametrize("page", PAGES)
def test_every_verb_is_one(page: str) -> None:
    parser = argparse.ArgumentParser()
    keys.add_parser(parser.add_subparsers())
    (chosen,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    (inner,) = (a for a in chosen.choices["keys"]._actions if isinstance(a, argparse._SubParsersAction))
    for verb, second in _VERB.findall((ROOT / "docs" / page).read_text()):
        assert verb in VERBS, verb
        assert verb != "keys" or second in inner.choices, f"swarmd keys {second}"
