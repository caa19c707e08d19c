"""`make check`: the rules of the house that no other tool holds; ruff's `banned-api`, a file a room, holds the arrows.

- No import circle between files, whether the import runs at load, later in a function, or for types only.
- No class above 30 methods or 25 fields, no file above 500 lines (tests and helpers too): a comment that begins
  `# Longer:` (above a class's first statement, or among the first lines of a file) says why splitting would hide the
  story. A frozen struct or dataclass whose every field has a default may have as many as it needs: options are not
  state, nothing changes them, and no reader has to hold more than one of them in mind.
- A number of the protocols that has a name has words under it: its unit, and why this value.
- No line of Markdown above 120 characters, rows of tables, code and addresses apart.
- What a page names of the tree (a file, a folder, a test as `tests/….py::name`) exists.
- No two files of tests have one name.

`house.toml` beside this file lists what does not hold yet, with its measure. It must match exactly: what gets better
leaves the list, nothing joins it.
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.paths import ROOT

PACKAGES = ("protocols/swarmd_protocols", "models/swarmd_models", "sim/swarmd_sim", "recipes/swarmd_recipes", "swarmd")
METHODS_MAX, FIELDS_MAX, FILE_LINES_MAX, MARKDOWN_COLUMNS_MAX = 30, 25, 500, 120
EXCEPTIONS = Path(__file__).with_suffix(".toml")
EXCUSE = "# Longer:"
_UNITS = ("_S", "_MS", "_US", "_NS_PER_S", "_MASK")
"""Names that are their own words."""
_NAMED = re.compile(
    r"(?<![\w/.~-])((?:protocols|models|sim|swarmd|recipes|tests|docs|systemd|monitoring|requirements"
    r"|swarmd_(?:protocols|models|sim|recipes))/[\w./*-]*\w)(?![\w{<…])(?:::(\w+))?"
)
"""A path of the tree in prose, and a test in it."""


def sources(root: Path = ROOT) -> dict[str, Path]:
    """Every module of the rooms, by its import name."""
    found = {}
    for package in PACKAGES:
        top = root / package
        for path in sorted(top.rglob("*.py")):
            parts = [top.name, *path.relative_to(top).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.Module, modules: dict[str, Path]) -> set[str]:
    """The modules of ours that a file names in its imports, wherever they stand."""
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                named.add(inner if inner in modules else node.module)
    return named & modules.keys()


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected parts of more than one node, each sorted (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            part = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(part) > 1:
                found.append(sorted(part))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return sorted(found)


def fields(node: ast.ClassDef) -> set[str]:
    """Annotated names of the class body and what methods assign to `self`."""
    declared = {
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    for part in ast.walk(node):
        match part:
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute, ctx=ast.Store()):
                declared.add(attribute)
    return declared


def is_options(node: ast.ClassDef) -> bool:
    """Whether a class only lists options: a frozen struct or dataclass whose every field has a default."""
    is_frozen = any(word.arg == "frozen" for word in node.keywords) or any(
        isinstance(mark, ast.Call)
        and isinstance(mark.func, ast.Name)
        and mark.func.id == "dataclass"
        and any(
            word.arg == "frozen" and isinstance(word.value, ast.Constant) and word.value.value for word in mark.keywords
        )
        for mark in node.decorator_list
    )
    return is_frozen and all(item.value is not None for item in node.body if isinstance(item, ast.AnnAssign))


def sizes(name: str, path: Path, tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """What is too large in one file: rule, place, measure."""
    lines = path.read_text().splitlines()
    if len(lines) > FILE_LINES_MAX and not any(line.startswith(EXCUSE) for line in lines[:60]):
        yield "file_lines", name, len(lines)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not any(
            line.strip().startswith(EXCUSE) for line in lines[node.lineno : node.body[0].end_lineno or 0]
        ):
            methods = sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
            if methods > METHODS_MAX:
                yield "class_methods", f"{name}.{node.name}", methods
            if (count := len(fields(node))) > FIELDS_MAX and not is_options(node):
                yield "class_fields", f"{name}.{node.name}", count


def wordless(name: str, tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """Constants of the protocols with a number and no words under them: rule, place, 1."""
    if not name.startswith("swarmd_protocols."):
        return
    for item, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        targets = (
            item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
        )
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if not names or not names[0].strip("_").isupper() or names[0] in _UNITS:
            continue
        has_number = any(isinstance(node, ast.Constant) and type(node.value) in (int, float) for node in ast.walk(item))
        has_words = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if has_number and not has_words:
            yield "wordless", f"{name}.{names[0]}", 1


def is_there(named: re.Match[str], page: Path, root: Path) -> bool:
    """Whether what a page names exists: from the root, beside the page, or inside one of the rooms."""
    path, test = named[1], named[2]
    for folder in (root, page.parent, *((root / package).parent for package in PACKAGES)):
        for found in folder.glob(path.rstrip(".")):
            if test is None or f"def {test}(" in found.read_text():
                return True
    return False


def markdown(root: Path = ROOT) -> Iterator[tuple[str, str, int]]:
    """Pages whose prose has lines that are too long, or names what does not exist: rule, place, how many."""
    for path in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "models").rglob("*.md")]):
        text = path.read_text()
        for named in _NAMED.finditer(text) if path.name != "CHANGELOG.md" else ():
            if not is_there(named, path, root):
                yield "dead_names", f"{path.relative_to(root)}: {named[0]}", 1
        count, is_code = 0, False
        for line in text.splitlines():
            is_code ^= line.lstrip().startswith("```")
            is_prose = not (is_code or line.startswith("|") or re.fullmatch(r"\S*\s*\S*//\S+", line))
            count += is_prose and len(line) > MARKDOWN_COLUMNS_MAX
        if count:
            yield "markdown_lines", str(path.relative_to(root)), count


def tests_too_long(root: Path) -> Iterator[tuple[str, str, int]]:
    """Files of tests and of their helpers that are too long: rule, place, lines."""
    for path in sorted((root / "tests").rglob("*.py")):
        lines = path.read_text().splitlines()
        if len(lines) > FILE_LINES_MAX and not any(line.startswith(EXCUSE) for line in lines[:60]):
            yield "file_lines", str(path.relative_to(root)), len(lines)


def namesakes(root: Path = ROOT) -> Iterator[tuple[str, str, int]]:
    """Files of tests with one name, which pytest refuses as soon as it collects both."""
    counts = Counter(path.name for path in (root / "tests").rglob("test_*.py"))
    yield from (("namesakes", name, count) for name, count in counts.items() if count > 1)


def breaches(root: Path = ROOT) -> dict[str, dict[str, int]]:
    """Everything that breaks a rule: rule to place to measure."""
    modules = sources(root)
    trees = {name: ast.parse(path.read_text()) for name, path in modules.items()}
    graph = {name: imports(tree, modules) - {name} for name, tree in trees.items()}
    found: dict[str, dict[str, int]] = {}
    rows: list[tuple[str, str, int]] = [("circles", part[0], len(part)) for part in circles(graph)]
    for name, tree in trees.items():
        rows += [*sizes(name, modules[name], tree), *wordless(name, tree)]
    for rule, place, measure in [*rows, *markdown(root), *namesakes(root), *tests_too_long(root)]:
        found.setdefault(rule, {})[place] = measure
    return found


def compare(found: dict[str, dict[str, int]], allowed: dict[str, dict[str, int]], say: Callable[[str], object]) -> bool:
    """Say each difference between what is and what is excepted; whether there is none."""
    good = True
    for rule in sorted(found.keys() | allowed.keys()):
        is_now, may_be = found.get(rule, {}), allowed.get(rule, {})
        for place in sorted(is_now.keys() | may_be.keys()):
            if (measure := is_now.get(place, 0)) != (limit := may_be.get(place, 0)):
                good = False
                hint = "mend it" if measure > limit else "lower or drop its row"
                say(f"{rule}: {place}: {measure}, and {EXCEPTIONS.name} says {limit}: {hint}")
    return good


def main() -> int:
    """Exit status: 0 when the house is as `house.toml` says."""
    found = breaches()
    if sys.argv[1:] == ["--write"]:
        text = "# What breaks a rule of house.py, with its measure; `python -m tests.support.house --write`.\n"
        for rule, places in sorted(found.items()):
            text += f"\n[{rule}]\n" + "".join(f'"{place}" = {measure}\n' for place, measure in sorted(places.items()))
        EXCEPTIONS.write_text(text)
        return 0
    return 0 if compare(found, tomllib.loads(EXCEPTIONS.read_text()), print) else 1


if __name__ == "__main__":
    sys.exit(main())
