"""Versions of a name: the newest answers who names none, a digest answers as itself, nothing in use is closed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from swarmd.worker.process import WorkerProcess
from swarmd.worker.residency import NAMES_MAX, VERSIONS_MAX, NotResidentError, Residency, Resident
from swarmd.worker.words import Serve
from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.service import DETECT, GRAPH, Service
from tests.support.bundles import write_bundle
from tests.support.mutants import assert_found


def service(name: str, digest: str, lanes: tuple[str, ...] = (GRAPH, DETECT)) -> Any:
    return SimpleNamespace(bundle=SimpleNamespace(name=name, digest=digest), lanes=lanes)


class Releases(RuleBasedStateMachine):
    """Bundles come and go while requests are answered."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[Resident] = []
        self.residency = Residency(self.closed.append)
        self.newest: dict[str, list[str]] = {}
        self.taken: list[Resident] = []

    @rule(name=st.sampled_from(["m", "n"]), digest=st.sampled_from("abcd"))
    def release(self, name: str, digest: str) -> None:
        self.residency.add(service(name, digest))
        known = self.newest.setdefault(name, [])
        if digest in known:
            known.remove(digest)
        known.append(digest)

    @rule(
        name=st.sampled_from(["m", "n"]), digest=st.sampled_from(["", *"abcd"]), lane=st.sampled_from([GRAPH, DETECT])
    )
    def ask(self, name: str, digest: str, lane: str) -> None:
        served = self.newest.get(name, [])[-VERSIONS_MAX:]
        wanted = name if lane == GRAPH else f"{name}.detect"
        try:
            found, in_lane = self.residency.find(wanted, digest)
        except NotResidentError:
            assert not served or (digest and digest not in served), "a bundle that is served was not found"
            return
        assert in_lane == lane
        assert found.service.bundle.name == name
        assert found.digest == (digest or served[-1]), "another version than the one asked for"
        assert not found.is_retired, "a retired bundle took a request"
        self.residency.acquire(found)
        self.taken.append(found)

    @precondition(lambda self: self.taken)
    @rule(at=st.integers(0, 100))
    def answer(self, at: int) -> None:
        self.residency.release(self.taken.pop(at % len(self.taken)))

    @invariant()
    def nothing_in_use_is_closed(self) -> None:
        assert not set(map(id, self.taken)) & set(map(id, self.closed)), "a bundle was closed under a request"
        assert len(self.closed) == len(set(map(id, self.closed))), "a bundle was closed twice"

    @invariant()
    def what_nobody_needs_is_closed(self) -> None:
        open_ = [one for versions in self.residency._versions.values() for one in versions]
        assert all(not one.is_retired for one in open_)
        for versions in self.residency._versions.values():
            assert len(versions) <= VERSIONS_MAX


def laws(phases: tuple[Phase, ...] = tuple(Phase), examples: int = 60) -> None:
    run_state_machine_as_test(
        Releases,
        settings=settings(
            max_examples=examples, stateful_step_count=40, deadline=None, report_multiple_bugs=False, phases=phases
        ),
    )


def test_laws_of_versions() -> None:
    laws()


def found_at_all() -> None:
    """The laws for a mutant: many examples, since it ends with the first that fails, which is not made small."""
    laws((Phase.generate,), 1_000)


def test_names_are_bounded_and_told() -> None:
    residency = Residency(lambda resident: None)
    for index in range(NAMES_MAX):
        residency.add(service(f"m{index}", "a"))
    with pytest.raises(NotResidentError, match="one too many"):
        residency.add(service("another", "a"))
    with pytest.raises(NotResidentError, match=r"there are m0, m0\.detect, m1"):
        residency.find("x" * 10_000)
    assert residency.add(service("m0", "b")).digest == "b", "a new version of a name that is there has room"


def test_a_name_that_ends_like_a_lane_is_that_bundle() -> None:
    residency = Residency(lambda resident: None)
    residency.add(service("m.detect", "a", (GRAPH,)))
    assert residency.find("m.detect")[1] == GRAPH
    assert residency.names() == ["m.detect"]


def _closed_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Residency, "_retire", lambda self, resident: self._close(resident))


def _any_version_will_do(patch: pytest.MonkeyPatch) -> None:
    whole = Residency.find
    patch.setattr(Residency, "find", lambda self, name, version="": whole(self, name))


def _the_oldest_answers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd.worker.residency.reversed", lambda versions: iter(versions), raising=False)


@pytest.mark.parametrize("fault", [_closed_at_once, _any_version_will_do, _the_oldest_answers])
def test_mutants(fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(fault, found_at_all, monkeypatch)


def test_a_bundle_that_changes_while_it_is_loaded_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digest is of what was read first, its answers would be of what the runtime opened."""
    path = write_bundle(tmp_path)
    model = load_bundle(path).model_path
    opened = Service.open

    def replaced(bundle: Any, *rest: Any) -> Service:
        data = bytearray(model.read_bytes())
        data[len(data) // 2] ^= 1
        model.write_bytes(data)
        return opened(bundle, *rest)

    loader: Any = SimpleNamespace(_config=Serve("127.0.0.1:0"))
    WorkerProcess._open(loader, str(path), "").close()
    monkeypatch.setattr(Service, "open", replaced)
    with pytest.raises(ArtefactError):
        WorkerProcess._open(loader, str(path), "")
