"""Which view is asked is decided in one place: the rest of membership cannot tell which one answers."""

import ast
from pathlib import Path

import pytest

from swarmd_protocols import swim
from tests.support.partial_net import SMALL, partial_net
from tests.support.swim_net import Net

SWIM = Path(swim.__file__).parent
FILES = {path.relative_to(SWIM).as_posix(): path.read_text() for path in sorted(SWIM.rglob("*.py"))}


def asks_which(source: str) -> bool:
    """Whether code reads the flag `partial` of anything."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == "partial" and isinstance(node.ctx, ast.Load)
        for node in ast.walk(ast.parse(source))
    )


def switches(source: str) -> bool:
    """Whether code gives a core its view."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == "view" and isinstance(node.ctx, ast.Store)
        for node in ast.walk(ast.parse(source))
    )


def for_types_only(source: str) -> list[str]:
    """Modules of membership that code imports for types alone: that is how circles are hidden."""
    return [
        inner.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in node.body
        if isinstance(inner, ast.ImportFrom) and inner.module and inner.module.startswith("swarmd_protocols.swim")
    ]


@pytest.mark.parametrize("name", FILES)
def test_membership_does_not_ask_which_view_it_has(name: str) -> None:
    assert not asks_which(FILES[name])
    assert not for_types_only(FILES[name])


def test_the_views_are_switched_in_one_file() -> None:
    # The core declares it, the overlay sets it.
    assert [name for name, source in FILES.items() if switches(source)] == ["core.py", "overlay.py"]
    assert FILES["core.py"].count("self.view: View\n") == 1


def test_a_branch_and_a_hidden_import_would_be_seen() -> None:
    assert asks_which("if core.view.partial:\n    pass")
    assert switches("core.view = full")
    assert for_types_only("if TYPE_CHECKING:\n    from swarmd_protocols.swim.core import Core") != []


def test_beyond_the_limit_the_partial_view_answers() -> None:
    few = Net(4, 1, swim=SMALL)
    few.run(5)
    assert all(host.node._core.view is host.node._swim.membership.overlay.full_view for host in few.hosts)
    many = partial_net(count=16, seconds=15.0)
    for host in many.hosts:
        view, reachable = host.node._core.view, len(host.node._core.table.reachable)
        assert view is host.node._swim.membership.overlay.partial_view
        assert (view.push_fanout(), view.size() > reachable, view.probes_ring) == (reachable, True, False)
