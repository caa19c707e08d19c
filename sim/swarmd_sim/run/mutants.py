"""Protocol bugs on purpose: named patches that `--mutant NAME` switches on, to see whether the checkers find them.

The catalogue lies in `tests/mutants/` of a checkout and is not shipped: an installed simulator knows no mutants. Each
entry patches one function or field of the protocols for the length of one run and puts it back.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from swarmd_sim.errors import SimError

_CATALOGUE = Path("tests") / "mutants" / "sim_catalogue" / "__init__.py"


@cache
def catalogue() -> Mapping[str, Any]:
    """All mutants by name; empty outside a checkout.

    Returns:
        Objects with `text` and `apply() -> undo`.
    """
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        path = root / _CATALOGUE
        if path.is_file():
            spec = spec_from_file_location("swarmd_sim_catalogue", path, submodule_search_locations=[str(path.parent)])
            assert spec is not None
            assert spec.loader is not None
            module = module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            found: Mapping[str, Any] = module.MUTANTS
            return found
    return {}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Switch a mutant on for a while.

    Args:
        name: "" for none.

    Raises:
        SimError: There is no such mutant.
    """
    if not name:
        yield
        return
    mutants = catalogue()
    if name not in mutants:
        near = get_close_matches(name, list(mutants), 1)
        hint = f"; did you mean {near[0]}?" if near else "; mutants are known only inside a checkout"
        raise SimError(f"no mutant {name!r}{hint}")
    undo = mutants[name].apply()
    try:
        yield
    finally:
        undo()
