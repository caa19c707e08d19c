"""Every example in a docstring does what it says. Those of `swarmd.client` need a daemon: `test_python_api.py`."""

import doctest
import importlib
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.paths import ROOT

ROOMS = {"swarmd": ".", "swarmd_protocols": "protocols", "swarmd_models": "models", "swarmd_sim": "sim"}
ELSEWHERE = {"swarmd.client"}


def with_examples() -> list[str]:
    """Names of the modules that have some."""
    found = []
    for package, room in ROOMS.items():
        for path in (ROOT / room / package).rglob("*.py"):
            if ">>> " in path.read_text():
                words = path.relative_to(ROOT / room).with_suffix("").parts
                found.append(".".join(words).removesuffix(".__init__"))
    return sorted(set(found) - ELSEWHERE)


def faults(module: ModuleType) -> list[str]:
    """What is not as an example says."""
    told: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder().find(module):
        runner.run(test, out=told.append)
    return told


@pytest.mark.parametrize("name", with_examples())
def test_what_a_docstring_shows_is_so(name: str) -> None:
    module = pytest.importorskip(name, reason=f"what {name} imports is not installed")
    assert faults(module) == []


def test_many_modules_have_some() -> None:
    assert len(with_examples()) > 40


def test_a_wrong_example_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_example.py").write_text(
        'def twice(x):\n    """Twice.\n\n    >>> twice(2)\n    5\n    """\n    return 2 * x\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    (told,) = faults(importlib.import_module("planted_example"))
    assert "Expected:\n    5\nGot:\n    4" in told
