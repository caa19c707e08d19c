"""What every test shares."""

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from swarmd.api import control
from tests.support import skips
from tests.support.again import keep_status as pytest_sessionfinish  # noqa: F401  # A hook, by its name.
from tests.support.daemons import Daemon, Start
from tests.support.exclusive import own_domain

if TYPE_CHECKING:
    from playwright.sync_api import Browser

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell's background job ignores the signal, and so would every child that a test interrupts."""

# No law is about how long an example takes: a busy machine would break it, and never the same one twice.
# A gate judges a change, so its examples are the same each time. Everywhere else (`make test`, `make laws`, `make
# soak`) Hypothesis draws afresh: that is the search, and what it finds is a bug, whoever changed the code last.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", settings.get_profile("search"), derandomize=True, database=None)
settings.load_profile("gate" if os.environ.get("SWARMD_GATE") else "search")

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"

gc.set_threshold(100_000, 20, 100)
"""Simulations make and drop much, hardly any of it in circles: looking for those as usual is 7 % of the suite."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One more than there are cores: a third of what the suite takes is waiting, for processes and for clocks."""
    is_asked = "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ  # Then xdist reads it.
    return None if is_asked else len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mutants show that laws can fail, and search until they do: for the full run, not at each save."""
    for item in items:
        if "mutant" in item.name.partition("[")[0]:
            item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Each reason of a skip once, with its count; kept for `.ci/run` where SWARMD_SKIPS names a file."""
    stats = terminalreporter.stats
    reasons = Counter(skips.reason_of(report.longrepr) for report in stats.get("skipped", []))
    if reasons:
        terminalreporter.section("skipped, and why")
        for line in skips.folded(reasons):
            terminalreporter.write_line(line)
    if (path := os.environ.get("SWARMD_SKIPS")) and not hasattr(terminalreporter.config, "workerinput"):  # Once a run.
        failed = len(stats.get("failed", [])) + len(stats.get("error", []))
        skips.keep(Path(path), len(stats.get("passed", [])), failed, reasons)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real input data beside the checkout; skips, and says so, when it is absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip("no ../shared beside this checkout (its data)")
    return SHARED


@pytest.fixture(autouse=True)
def _own_runtime_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test meets a daemon, a configuration or a systemd of this machine."""
    for name in list(os.environ):
        is_setting = name.startswith("SWARMD_") and "__" in name  # The others set how long the soaks are.
        if is_setting or name in ("NOTIFY_SOCKET", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY"):
            monkeypatch.delenv(name)
    folder = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(control, "LAST_FOLDER", folder / "last")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts daemons of a development fleet in the test's folder; they end with it."""
    running: list[Daemon] = []

    def begin(name: str, *flags: str, **more: Any) -> Daemon:
        running.append(Daemon(tmp_path, name, *flags, **more))
        return running[-1]

    yield begin
    for daemon in running:
        daemon.close()


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """A Chromium of the module's own."""
    from tests.support.browser import chromium

    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def dds_domain() -> Iterator[int]:
    """A DDS domain that no other module, process or test suite on this machine uses meanwhile."""
    with own_domain() as number:
        yield number
