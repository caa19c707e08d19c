"""What docs/architecture.md names exists under that name: classes, their methods, functions and files."""

import ast
import re
from functools import cache

import pytest

from tests.support.house import ROOT, sources

PAGE = "docs/architecture.md"
_TOKEN = re.compile(r"`([^`\n]+)`")
_NAME = re.compile(r"([A-Z]\w*[a-z]\w*)(?:\.(\w+))?(?:\(.*\))?|([a-z]\w*_\w+)")
"""A class, `Class.member`, either with arguments; or a function of several words."""
_FILE = re.compile(r"[\w./]+\.py")


@cache
def defined() -> tuple[dict[str, set[str]], set[str]]:
    """Classes with their members, and functions and constants, of all rooms."""
    classes: dict[str, set[str]] = {}
    others: set[str] = set()
    for path in sources().values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                members = classes.setdefault(node.name, set())
                members |= {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
                members |= {
                    one.target.id
                    for one in node.body
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                }
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                others.add(node.name)
    return classes, others


def missing(page: str) -> list[str]:
    """Names of the page that the code does not have."""
    classes, others = defined()
    files = [str(path.relative_to(ROOT)) for path in [*sources().values(), *(ROOT / "tests").rglob("*.py")]]
    roots = {name.split(".")[0] for name in sources()} | {part for name in sources() for part in name.split(".")}
    found = []
    for token in _TOKEN.findall(page):
        if _FILE.fullmatch(token):
            if not any(f"/{file}".endswith(f"/{token}") for file in files):
                found.append(token)
        elif (match := _NAME.fullmatch(token)) is not None:
            class_, member, function = match.groups()
            if class_ is not None and (class_ not in classes or (member and member not in classes[class_])):
                found.append(token)
            if function is not None and function not in others and function not in roots:
                found.append(token)
    return found


def test_what_the_page_names_exists() -> None:
    assert missing((ROOT / PAGE).read_text()) == []


@pytest.mark.parametrize("token", ["NodeThatNever", "Node.never_there", "channel/nowhere.py", "never_a_function"])
def test_a_name_that_is_nowhere_is_found(token: str) -> None:
    assert missing(f"the step `{token}` of the walk") == [token]
