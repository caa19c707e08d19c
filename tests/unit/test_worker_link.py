"""The brain's side of the inference worker, without a process: what it asks for, and what it says is wrong."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from swarmd.brain import workerlink
from swarmd.brain.workerlink import RETRY_S, WorkerLink
from swarmd.config.sections import Config
from swarmd.worker import words

LOADED = words.Loaded("a.toml", "a", "1", "ab" * 32, "litert")
PULSE = words.Pulse(0, {}, {})


class Log:
    def __init__(self) -> None:
        self.warned: list[str] = []

    def warning(self, event: str, **more: Any) -> None:
        self.warned.append(more["text"])

    def info(self, event: str, **more: Any) -> None: ...


def link_of(*models: str) -> tuple[WorkerLink, Log, list[str]]:
    config, log, asked = Config(), Log(), list[str]()
    config = replace(config, inference=replace(config.inference, models=models))
    link = WorkerLink(config, lambda: None, log)  # type: ignore[arg-type]
    link._process = SimpleNamespace(pid=1, stdin=SimpleNamespace(write=lambda line: asked.append(line.decode())))  # type: ignore[assignment]
    return link, log, asked


def test_what_could_not_be_loaded_is_asked_for_again_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    link, log, asked = link_of("a.toml", "b.toml")
    link._take(words.Serving("127.0.0.1:7983"))
    link._take(PULSE)
    assert len(asked) == 2
    link._take(words.Problem("a.toml has changed while it was loaded", "a.toml"))
    for _ in range(5):
        link._take(PULSE)
    assert len(asked) == 2, "not at each pulse"
    for number in range(1, 4):
        monkeypatch.setattr(workerlink.time, "monotonic", lambda now=link._retried_s + RETRY_S: now)
        link._take(PULSE)
        assert ['"a.toml"' in line for line in asked[2:]] == [True] * number
        link._take(words.Problem("a.toml has changed while it was loaded", "a.toml"))
    assert link.status()["problem"] == "a.toml has changed while it was loaded"
    assert log.warned == ["a.toml has changed while it was loaded"]
    link._take(LOADED)
    assert link.status()["problem"] == ""
    monkeypatch.setattr(workerlink.time, "monotonic", lambda now=link._retried_s + RETRY_S: now)
    link._take(PULSE)
    assert len(asked) == 5


def test_a_worker_that_reads_nothing_is_told_nothing_more() -> None:
    """What others want of it must not pile up in the brain."""
    link, _, asked = link_of()
    unread = [0]
    transport = SimpleNamespace(get_write_buffer_size=lambda: unread[0])
    link._process.returncode = None  # type: ignore[union-attr,misc]
    link._process.stdin.transport = transport  # type: ignore[union-attr,misc]
    assert not link.say(words.Drop(1)), "it does not serve yet"
    link._take(words.Serving("127.0.0.1:7983"))
    assert link.say(words.Drop(1))
    unread[0] = workerlink.UNREAD_MAX_BYTES + 1
    assert not link.say(words.Drop(2))
    assert len(asked) == 1


def test_the_problem_of_one_bundle_stays_when_another_is_loaded() -> None:
    link, _, _ = link_of("a.toml", "b.toml")
    link._take(words.Problem("no such file: b.toml", "b.toml"))
    link._take(LOADED)
    assert link.problem == "no such file: b.toml"


def test_why_an_address_cannot_be_bound_ends_the_life() -> None:
    async def scenario() -> None:
        link, _, _ = link_of()
        link._take(words.Problem("inference.listen 127.0.0.1:1: in use; choose another port"))
        out = asyncio.StreamReader()
        out.feed_eof()

        async def wait() -> int:
            return words.CANNOT_BIND_STATUS

        assert "choose another port" in await link._listen(SimpleNamespace(stdout=out, wait=wait))  # type: ignore[arg-type]

    asyncio.run(scenario())
