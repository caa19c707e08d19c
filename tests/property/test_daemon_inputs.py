"""Whatever stands in a file or comes over a socket: an answer or one of our errors, never anything else.

`SWARMD_EXAMPLES` sets how many examples each test tries (default 100; `make fuzz` asks for more).
"""

import asyncio
import contextlib
import io
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import h11
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from swarmd.api.control import ControlServer
from swarmd.api.events import _take
from swarmd.api.http import HttpServer, Reply
from swarmd.api.verbs import Verbs
from swarmd.brain.journal import Journal
from swarmd.config.loading import load
from swarmd.errors import ConfigError
from swarmd.logs import Logger
from swarmd_models.errors import SiteError
from swarmd_models.geo.positions import Plane
from swarmd_models.geo.sitemap import load_site_map
from swarmd_models.geo.survey import load_cells

EXAMPLES = int(os.environ.get("SWARMD_EXAMPLES", "100"))
many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
words = st.sampled_from(
    [
        "node",
        "name",
        "eye",
        "listen",
        "[",
        "]",
        "=",
        '"',
        "\n",
        "true",
        "1",
        "nan",
        "origin",
        "log",
        "level",
        ".",
        ",",
        "#",
        "x",
        " ",
    ]
)
toml = st.lists(words, max_size=40).map("".join)


def quiet() -> Logger:
    return Logger("n", stream=io.StringIO())


EMPTY = "an error without a word"


def problem_of(call: Callable[[], object]) -> str:
    """The message of the error for people that a call raises, "" when it raises none."""
    try:
        call()
    except (ConfigError, SiteError) as error:
        return str(error) or EMPTY
    return ""


async def silence() -> AsyncIterator[Mapping[str, Any]]:
    for notice in ():
        yield notice


@many
@given(st.one_of(toml.map(str.encode), st.binary(max_size=300)))
def test_any_configuration_loads_or_names_its_problems(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.toml"
        path.write_bytes(content)
        assert problem_of(lambda: load(path)) != EMPTY


@many
@given(
    st.dictionaries(
        st.sampled_from(["SWARMD_NODE__ORIGIN", "SWARMD_X__Y", "SWARMD_EYE__MAX_FRAMES"]), st.text(max_size=30)
    )
)
def test_any_environment_loads_or_names_its_problems(environment: dict[str, str]) -> None:
    problem = problem_of(lambda: load(None, environment))
    assert not problem or "environment SWARMD_" in problem


@many
@given(
    st.sampled_from(["a.csv", "a.csv.gz", "a.geojson"]),
    st.one_of(
        st.binary(max_size=300),
        st.lists(st.sampled_from('asset,east_m,north_m\n1.5-9e"xnainf,'), max_size=120).map(
            lambda c: "".join(c).encode()
        ),
        json_values.map(lambda value: json.dumps({"features": value}).encode()),
        json_values.map(
            lambda value: json.dumps({"features": [{"properties": {"asset": "x"}, "geometry": value}]}).encode()
        ),
    ),
)
def test_any_map_and_survey_load_or_name_their_problem(name: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        for problem in (problem_of(lambda: load_site_map(path, Plane(1.0, 2.0))), problem_of(lambda: load_cells(path))):
            assert not problem or str(path) in problem


@many
@given(st.one_of(st.binary(max_size=200), json_values.map(lambda value: json.dumps(value).encode())))
def test_any_control_request_gets_an_answer(line: bytes) -> None:
    verbs = Verbs()
    verbs.add("echo", lambda arguments: {"got": len(arguments)})
    server = ControlServer(Path("/nonexistent"), verbs.answer, silence, quiet())
    _, answer = asyncio.run(server._one(line, "a test", lambda verb: ""))
    assert answer["ok"] in (True, False)
    json.dumps(answer)
    _take(line, lambda name: None, quiet())


@many
@given(
    st.one_of(
        st.binary(max_size=200),
        st.lists(st.sampled_from(["GET ", "/", " HTTP/1.1", "\r\n", "Host: ", "::1", "[", ":", "\0"]), max_size=20).map(
            lambda p: "".join(p).encode()
        ),
    )
)
def test_any_http_request_gets_an_answer_or_a_closed_connection(data: bytes) -> None:
    server = HttpServer("127.0.0.1:0", {"/": lambda: Reply(200, "text/plain", b"x")}, quiet())

    async def talk() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        sink = _Sink()
        with contextlib.suppress(h11.RemoteProtocolError):
            await server._talk(reader, sink)  # type: ignore[arg-type]
        assert sink.data == b"" or sink.data.startswith(b"HTTP/1.1 ")

    asyncio.run(talk())


class _Sink:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        return


@pytest.mark.slow
@many
@given(st.binary(max_size=2000), st.integers(0, 8000), st.integers(0, 3))
@example(b"\x00\x00\x00\x00\x00\x00\x00<\x04\x05", 4889, 1)
@example(b"\x00\x00\x00\x00\x00\x00\x00:\x04\x04", 4889, 1)
def test_any_damage_to_the_journal_leaves_a_working_store(damage: bytes, place: int, kind: int) -> None:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        store = Journal(folder)
        store.commit([(b"k%d" % i, b"v" * 50) for i in range(60)])
        store.close()
        target = folder / ("journal.sqlite" if kind < 3 else "journal.sqlite-wal")
        content = bytearray(target.read_bytes()) if target.exists() else bytearray()
        if kind == 0:
            del content[place:]
        else:
            content[place : place + len(damage)] = damage
        target.write_bytes(content)
        again = Journal(folder)
        again.commit([(b"new", b"1")])
        assert not again.degraded
        again.close()
        last = Journal(folder)
        assert last.records[b"new"] == b"1"
        last.close()
