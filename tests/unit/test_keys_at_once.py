"""Two desks at work in one fleet's folder at once: one decides after the other, and nothing is written over."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from swarmd.cli.main import main
from swarmd.errors import DaemonError
from swarmd.identity import desk as identity_desk
from swarmd.identity import fleet as fleets
from swarmd.identity import renewal
from swarmd.identity.files import curve_keys, load_identity
from swarmd.identity.fleet import Fleet, create_fleet
from swarmd_protocols.trust.identity import read_certificate

WAIT_S = 0.5
"""Seconds that one desk gives the other to come as far as itself: without a lock it does, and does the same."""


@contextmanager
def meeting(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """Two desks have both decided before either writes, where nothing keeps them apart."""
    both, real = threading.Barrier(2), getattr(fleets, name)

    def meet(*given: Any, **named: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            both.wait(WAIT_S)
        return real(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(fleets, name, meet)
        yield


def at_once(*acts: Callable[[], object]) -> list[object]:
    """What each comes to: what it gives, or what it refuses."""
    found: list[object] = [None] * len(acts)

    def run(number: int) -> None:
        try:
            found[number] = acts[number]()
        except DaemonError as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_the_first_nodes_of_a_swarm_that_are_enrolled_at_once_share_its_group_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`for name in …; do swarmd keys enrol fleet $name … & done`: each was in a swarm of its own."""
    create_fleet(tmp_path / "fleet", "acme")
    one, other = Fleet(tmp_path / "fleet"), Fleet(tmp_path / "fleet")
    with meeting(monkeypatch, "sign_statement"):
        a, b = at_once(lambda: one.enrol("a", "farm"), lambda: other.enrol("b", "farm"))
    keys = [path for path in (tmp_path / "fleet" / "swarms" / "farm").iterdir() if path.name.startswith("group")]
    assert len(keys) == 1
    assert curve_keys(a).group_public == curve_keys(b).group_public  # type: ignore[arg-type]


def test_two_group_keys_that_are_made_at_once_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_fleet(tmp_path / "fleet", "acme").enrol("a", "farm")
    one, other = Fleet(tmp_path / "fleet"), Fleet(tmp_path / "fleet")
    with meeting(monkeypatch, "sign_statement"):
        signed = at_once(lambda: one.rotate("farm"), lambda: other.rotate("farm"))
    assert all(made.path.read_bytes() == made.data for made in signed)  # type: ignore[attr-defined]


def test_of_two_roots_that_are_made_at_once_none_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_fleet(tmp_path / "fleet", "acme")
    one, other = Fleet(tmp_path / "fleet"), Fleet(tmp_path / "fleet")
    with meeting(monkeypatch, "sign_statement"):
        signed = at_once(lambda: one.change_role("floor", 1, 1), lambda: other.change_role("heartbeat", 1, 1))
    assert all(made.path.read_bytes() == made.data for made in signed)  # type: ignore[attr-defined]
    assert {one.root().version for one in (one, other)} == {3}


def test_of_two_fleets_that_are_begun_at_once_in_one_folder_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with meeting(monkeypatch, "sign_statement"):
        found = at_once(*(lambda name=name: create_fleet(tmp_path / "fleet", name) for name in ("acme", "other")))  # type: ignore[misc]
    begun = [one for one in found if isinstance(one, Fleet)]
    assert len(begun) == 1
    assert len(begun[0].seeds("root")) == 2


@pytest.mark.parametrize("replace", [False, True])
def test_one_name_that_is_enrolled_twice_at_once_has_one_certificate_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    """Two certificates with one counter: nobody could say which of the two keys is void."""
    fleet = create_fleet(tmp_path / "fleet", "acme")
    fleet.enrol("other", "farm")

    def enrols(out: str) -> int:
        words = ["keys", "enrol", str(fleet.folder), "a", "--swarm", "farm", "--out", str(tmp_path / out)]
        return main([*words, *(["--replace"] if replace else [])])

    with meeting(monkeypatch, "enrol"):
        ended = at_once(lambda: enrols("one"), lambda: enrols("two"))
    paths = sorted((fleet.folder / "swarms" / "farm").glob("node-a-*"))
    counters = {read_certificate(path.read_bytes()).counter for path in paths}
    assert len(counters) == len(paths) == (2 if replace else 1)
    assert sorted(map(bool, ended)) == [False, not replace]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("other", ["a device", "this desk"])
def test_a_devices_key_that_is_enrolled_beside_another_has_a_number_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, replace: bool
) -> None:
    fleet = create_fleet(tmp_path / "fleet", "acme")
    fleet.enrol("other", "farm")
    for device in ("one", "two"):
        assert main(["keys", "node", "new", str(tmp_path / device), "--name", "a"]) == 0

    def enrols(device: str, *, is_public: bool) -> int:
        words = ["keys", "enrol", str(fleet.folder), "a", "--swarm", "farm", "--out", str(tmp_path / device / "out")]
        key = ["--public", str(tmp_path / device / "a.pub")] if is_public else []
        return main([*words, *key, *(["--replace"] if replace else [])])

    both, real = threading.Barrier(2), fleets.next_counter

    def meet(used: Any) -> int:
        found = real(used)
        with suppress(threading.BrokenBarrierError):
            both.wait(WAIT_S)
        return found

    for module in (fleets, identity_desk):
        monkeypatch.setattr(module, "next_counter", meet)
    ended = at_once(lambda: enrols("one", is_public=True), lambda: enrols("two", is_public=other == "a device"))
    paths = sorted((fleet.folder / "swarms" / "farm").glob("node-a-*"))
    counters = {read_certificate(path.read_bytes()).counter for path in paths}
    assert len(counters) == len(paths) == (2 if replace else 1)
    assert sorted(map(bool, ended)) == [False, not replace]


def test_a_key_that_is_replaced_while_its_certificate_is_renewed_stays_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred are renewed while one of them is enrolled with a new key: the old one came back above it."""
    fleet = create_fleet(tmp_path / "fleet", "acme")
    for name in ("a", "b"):
        fleet.enrol(name, "farm")
    begun, replaced, real = threading.Event(), threading.Event(), renewal.sign_statement

    def sign(*given: Any) -> bytes:
        begun.set()
        replaced.wait(WAIT_S)
        monkeypatch.setattr("time.time", lambda now=time.time: now() + 5)
        return real(*given)

    monkeypatch.setattr(renewal, "sign_statement", sign)

    def replaces() -> object:
        begun.wait(10)
        words = [
            "keys",
            "enrol",
            str(fleet.folder),
            "a",
            "--swarm",
            "farm",
            "--replace",
            "--out",
            str(tmp_path / "new"),
        ]
        ended = main(words)
        replaced.set()
        return ended

    found = at_once(lambda: list(renewal.renew(fleet, "farm", ["b", "a"])), replaces)
    assert found[1] == 0
    newest = max(
        (read_certificate(path.read_bytes()) for path in (fleet.folder / "swarms" / "farm").glob("node-a-*")),
        key=lambda one: one.counter,
    )
    assert newest.node == load_identity(tmp_path / "new").node
