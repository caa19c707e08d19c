"""The rules of the house find what breaks them, and say so."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.house import FIELDS_MAX, FILE_LINES_MAX, METHODS_MAX, PACKAGES, breaches, compare
from tests.support.paths import ROOT

METHODS = "".join(f"    def m{n}(self):\n        pass\n" for n in range(METHODS_MAX + 1))
OPTIONS = "".join(f"    f{n}: int = 0\n" for n in range(FIELDS_MAX + 1))
FIELDS = "".join(f"        self.f{n} = 0\n" for n in range(FIELDS_MAX + 1))


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for package in PACKAGES:
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("X = 1\n", {}),
        (f"class Many:\n{METHODS}", {"class_methods": {"swarmd.one.Many": METHODS_MAX + 1}}),
        (f"class Many:\n    # Longer: one diagram.\n{METHODS}", {}),
        (f"class Wide:\n    def __init__(self):\n{FIELDS}", {"class_fields": {"swarmd.one.Wide": FIELDS_MAX + 1}}),
        (f"@dataclass(frozen=True)\nclass Options:\n{OPTIONS}", {}),
        (f"@dataclass\nclass State:\n{OPTIONS}", {"class_fields": {"swarmd.one.State": FIELDS_MAX + 1}}),
        (
            f"@dataclass(frozen=True)\nclass State:\n    a: int\n{OPTIONS}",
            {"class_fields": {"swarmd.one.State": FIELDS_MAX + 2}},
        ),
        ("#\n" * (FILE_LINES_MAX + 1), {"file_lines": {"swarmd.one": FILE_LINES_MAX + 1}}),
        ("# Longer: a table.\n" + "#\n" * FILE_LINES_MAX, {}),
        ("from swarmd.two import x\n", {"circles": {"swarmd.one": 2}}),
        ("def f():\n    import swarmd.two\n", {"circles": {"swarmd.one": 2}}),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from swarmd import two\n",
            {"circles": {"swarmd.one": 2}},
        ),
    ],
)
def test_what_breaks_a_rule_is_found(house: Path, content: str, found: dict[str, dict[str, int]]) -> None:
    (house / "swarmd" / "one.py").write_text(content)
    (house / "swarmd" / "two.py").write_text("from swarmd import one\n")
    assert breaches(house) == found


def test_files_of_tests_that_are_too_long_are_found(house: Path) -> None:
    (house / "tests").mkdir()
    (house / "tests" / "test_one.py").write_text("#\n" * (FILE_LINES_MAX + 1))
    (house / "tests" / "two.py").write_text("# Longer: a table.\n" + "#\n" * FILE_LINES_MAX)
    assert breaches(house) == {"file_lines": {"tests/test_one.py": FILE_LINES_MAX + 1}}


def test_files_of_tests_with_one_name_are_found(house: Path) -> None:
    for folder in ("unit", "integration"):
        (house / "tests" / folder).mkdir(parents=True)
        (house / "tests" / folder / "test_one.py").touch()
    assert breaches(house) == {"namesakes": {"test_one.py": 2}}


def test_long_lines_of_prose_are_found_and_those_of_tables_are_not(house: Path) -> None:
    text = ["word " * 30, "| cell " * 30 + "|", "https://example.org/" + "x" * 120, "```", "x = 1  " * 20, "```"]
    (house / "README.md").write_text("\n".join(text))
    assert breaches(house) == {"markdown_lines": {"README.md": 1}}


def test_what_a_page_names_must_exist(house: Path) -> None:
    (house / "tests").mkdir()
    (house / "tests" / "test_x.py").write_text("def test_a(): ...\n")
    (house / "README.md").write_text("`tests/test_x.py::test_a` `swarmd_sim/__init__.py` `tests/*.py` swarmd/none.py\n")
    assert breaches(house) == {"dead_names": {"README.md: swarmd/none.py": 1}}
    (house / "README.md").write_text("`tests/test_x.py::test_b`\n")
    assert breaches(house) == {"dead_names": {"README.md: tests/test_x.py::test_b": 1}}


def test_the_list_of_exceptions_may_only_shrink() -> None:
    said: list[str] = []
    assert compare({"file_lines": {"a": 600}}, {"file_lines": {"a": 600}}, said.append)
    assert not compare({"file_lines": {"a": 601, "b": 501}}, {"file_lines": {"a": 600, "c": 700}}, said.append)
    assert [line.split(": ")[1:] for line in said] == [
        ["a", "601, and house.toml says 600", "mend it"],
        ["b", "501, and house.toml says 0", "mend it"],
        ["c", "0, and house.toml says 700", "lower or drop its row"],
    ]


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("protocols/swarmd_protocols/x.py", "import swarmd_models"),
        ("protocols/swarmd_protocols/x.py", "import swarmd_sim"),
        ("protocols/swarmd_protocols/x.py", "from swarmd.errors import DaemonError"),
        ("models/swarmd_models/x.py", "import swarmd_protocols"),
        ("models/swarmd_models/x.py", "import swarmd_sim"),
        ("models/swarmd_models/x.py", "from swarmd.errors import DaemonError"),
        ("sim/swarmd_sim/x.py", "from swarmd.errors import DaemonError"),
        ("swarmd/bridges/x.py", "from swarmd.brain.brain import Brain"),
        ("swarmd/bridges/mqtt/x.py", "from swarmd.brain.brain import Brain"),
        ("swarmd/api/x.py", "from swarmd.brain.brain import Brain"),
        ("swarmd/api/node_verbs.py", "from swarmd.brain.brain import Brain"),
        ("swarmd/bridges/record/verbs.py", "from swarmd.brain.brain import Brain"),
        ("swarmd/config/x.py", "from swarmd.eye import ipc"),
        ("swarmd/config/x.py", "import swarmd_protocols.node"),
    ],
)
def test_an_arrow_that_must_not_be_is_refused(place: str, line: str) -> None:
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--no-cache",
        "--select",
        "TID251",
        "--stdin-filename",
        place,
        "-",
    ]
    done = subprocess.run(command, input=line + "\n", cwd=ROOT, capture_output=True, text=True)
    assert "TID251" in done.stdout, (place, line)


def test_a_number_of_the_protocols_has_words(house: Path) -> None:
    text = '_S = 10**9\n"""Unused."""\nKEPT = 4\nGAP_NS = 3 * _S\n"""Why three."""\nNAME = "no number"\n'
    (house / "protocols" / "swarmd_protocols" / "one.py").write_text(text)
    (house / "swarmd" / "one.py").write_text("KEPT = 4\n")
    assert breaches(house) == {"wordless": {"swarmd_protocols.one.KEPT": 1}}
