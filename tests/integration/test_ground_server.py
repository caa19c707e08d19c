"""`/api/v1` of the ground view on real sockets: what it answers, to whom, and in which pieces."""

import contextlib
import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.errors import TransportError
from swarmd.ground import openapi, rows
from swarmd.ground.connection import CLIENTS_MAX
from swarmd.ground.exports import EXPORTS
from swarmd.ground.guard import ACTS_PATH, POLICY
from swarmd.ground.server import bound_socket
from swarmd_protocols.thumbs.form import name_of
from tests.support.daemons import PATIENCE_S
from tests.support.ground import THUMB, Served, member, position, serving, thing
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as one:
        yield one


class Reply:
    def __init__(self, served: Served, path: str, method: str = "GET", **headers: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()
        connection.close()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Stream:
    """The `data:` lines of `/api/v1/changes`."""

    def __init__(self, served: Served, query: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
        self._connection.request("GET", f"/api/v1/changes?{query}")
        self._answer = self._connection.getresponse()
        assert self._answer.headers["content-type"].startswith("text/event-stream")

    def next(self) -> Any:
        while True:
            line = self._answer.readline()
            if not line:
                return None
            if line.startswith(b"data: "):
                return json.loads(line[6:])

    def close(self) -> None:
        self._connection.close()


# --- who is answered ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7982", "10.0.0.1", "[::1", "", "127.0.0.1:x"],
)
def test_other_names_are_refused(served: Served, host: str) -> None:
    """A page elsewhere that points its own name at loopback reads nothing."""
    for path in ("/", "/app.js", "/api/v1/snapshot", "/nothing"):
        reply = Reply(served, path, Host=host)
        assert reply.status == 403
        assert b"drone" not in reply.body


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "localhost:9", "127.0.0.1:65535"])
def test_names_of_this_machine_are_served_through_any_port(served: Served, host: str) -> None:
    """`ssh -L` ends at another port than the server's."""
    assert Reply(served, "/api/v1/site", Host=host).status == 200


def test_pages_of_other_origins_are_refused(served: Served) -> None:
    here = f"http://127.0.0.1:{served.port}"
    assert Reply(served, "/api/v1/site", Origin=here).status == 200
    for origin in ("http://127.0.0.1:1", "https://evil.example", "null", here + ".evil.example"):
        assert Reply(served, "/api/v1/site", Origin=origin).status == 403
    assert Reply(served, "/api/v1/site", Sec_Fetch_Site="cross-site").status == 403
    assert Reply(served, "/", Sec_Fetch_Site="cross-site").status == 200  # A link from a manual opens the page.


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(served: Served, method: str) -> None:
    assert Reply(served, "/api/v1/snapshot", method).status == 405
    assert Reply(served, "/api/v1/snapshot", method, Origin="https://evil.example").status == 403


def test_every_answer_carries_the_policy_and_none_lets_others_read(served: Served) -> None:
    for path in (
        "/",
        "/app.js",
        "/app.css",
        "/icon.svg",
        "/api/v1/site",
        "/api/v1/snapshot",
        "/api/v1/history",
        "/nothing",
    ):
        headers = Reply(served, path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] in ("no-store", "no-cache")
        assert headers["access-control-allow-origin"] is None
    assert Reply(served, "/", Host="evil.example").headers["content-security-policy"] == POLICY


@pytest.mark.parametrize(
    "listen",
    ["0.0.0.0:0", "[::]:0", "10.0.0.1:80", "example.org:80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", ":80"],
)
def test_only_loopback_is_listened_on(listen: str) -> None:
    with pytest.raises(TransportError, match="--page"):
        bound_socket(listen)


def test_a_port_that_is_taken_is_named(served: Served) -> None:
    with pytest.raises(TransportError, match=f"{served.port}: .*choose another port"):
        bound_socket(f"127.0.0.1:{served.port}")


# --- what is answered -----------------------------------------------------------------------------------------------


def schema(answer: openapi.Answer) -> dict[str, Any]:
    document = openapi.document()
    content = document["paths"][answer.path]["get"]["responses"]["200"]["content"]
    return {**content[answer.media]["schema"], "components": document["components"]}


@pytest.mark.parametrize("answer", openapi.ANSWERS, ids=lambda answer: answer.path)
def test_every_answer_is_what_the_document_says(served: Served, answer: openapi.Answer) -> None:
    path = answer.path.replace("{id}", "0000000000000001").replace("{name}", name_of(THUMB).hex())
    if answer.media == "text/event-stream":
        stream = Stream(served, "epoch=none&after=0")
        told = stream.next()
        stream.close()
    else:
        reply = Reply(served, path)
        assert reply.status == 200
        assert reply.headers["content-type"].split(";")[0] == answer.media
        if answer.struct is None:
            return
        told = reply.json
    jsonschema.validate(told, schema(answer), cls=jsonschema.Draft202012Validator)


def test_a_picture_that_is_not_to_be_had_is_no_picture(served: Served) -> None:
    """Whatever was asked for, a browser is never given something else to draw, nor what it might keep."""
    reply = Reply(served, f"/api/v1/thumb/{name_of(THUMB).hex()}")
    assert (reply.headers["cache-control"], reply.headers["x-content-type-options"]) == ("no-store", "nosniff")
    missing = Reply(served, "/api/v1/thumb/" + "0" * 32)
    assert (missing.status, missing.headers["content-type"]) == (404, "application/json")
    assert missing.json == {"error": "its author keeps it no more"}
    told = openapi.document()["paths"]["/api/v1/thumb/{name}"]["get"]["responses"]
    assert set(told) == {"200", "400", "404"}
    elsewhere = Reply(served, f"/api/v1/thumb/{name_of(THUMB).hex()}", Sec_Fetch_Site="cross-site")
    assert elsewhere.status == 403


def test_the_document_names_every_address_that_is_served(served: Served) -> None:
    told = Reply(served, "/api/v1/openapi.json").json
    assert told["openapi"] == "3.1.0"
    source = (ROOT / "swarmd" / "ground" / "server.py").read_text()
    exports = {f"/api/v1/export/{name}" for name in EXPORTS}
    acts = (ROOT / "swarmd" / "ground" / "acts.py").read_text()
    deeds = {f"{ACTS_PATH}{name}" for name in re.findall(r'route\("(\w+)"', acts)}
    assert set(told["paths"]) == exports | deeds | set(re.findall(r'Route\("(/api/[^"]+)"', source + acts))


def test_what_changes_reaches_a_reader_who_goes_on_from_the_snapshot(served: Served) -> None:
    snapshot = Reply(served, "/api/v1/snapshot").json
    assert {kind: len(found) for kind, found in snapshot["rows"].items()} == {
        "member": 5, "position": 4, "object": 12, "cell": 8, "alert": 1, "event": 1, "release": 1, "vote": 4,
    }  # fmt: skip
    stream = Stream(served, f"epoch={snapshot['epoch']}&after={snapshot['seq']}")
    first = stream.next()
    assert first["changes"] == []
    assert not first["reset"]
    served.do(lambda ground: ground.picture.put("member", member(0, "failed"), time.time()))
    served.do(lambda ground: ground.picture.drop("object", f"{3:016x}", time.time()))
    told: list[Any] = []
    while len(told) < 2:
        told += stream.next()["changes"]
    stream.close()
    assert [(one["kind"], one["row"] and one["row"]["state"]) for one in told] == [
        ("member", "failed"),
        ("object", None),
    ]
    assert [one["seq"] for one in told] == [snapshot["seq"] + 1, snapshot["seq"] + 2]


def test_a_reader_of_another_life_is_told_to_start_anew(served: Served) -> None:
    for query in ("epoch=other&after=3", "", f"epoch={served.ground.picture.epoch}&after=999999"):
        stream = Stream(served, query)
        assert stream.next()["reset"] is True
        assert stream.next() is None
        stream.close()


def test_a_stream_says_that_it_lives(served: Served) -> None:
    snapshot = Reply(served, "/api/v1/snapshot").json
    stream = Stream(served, f"epoch={snapshot['epoch']}&after={snapshot['seq']}")
    times = [stream.next()["now_s"] for _ in range(3)]
    stream.close()
    assert times == sorted(times)


def test_the_past_is_answered_by_moment_and_by_page(served: Served) -> None:
    before_s = time.time()
    time.sleep(0.02)
    for number in range(30):
        served.do(
            lambda ground, n=number: ground.picture.put("position", position(0, n, 1.0, time.time()), time.time())
        )
    then = Reply(served, f"/api/v1/snapshot?at_s={before_s}").json
    now = Reply(served, "/api/v1/snapshot").json
    assert then["epoch"] == ""
    assert then["rows"]["object"] == now["rows"]["object"]
    assert then["rows"]["position"] != now["rows"]["position"]
    places, cursor = [], ""
    while cursor is not None:
        page = Reply(served, f"/api/v1/history?from_s={before_s}&kind=position&limit=7&cursor={cursor}").json
        assert len(page["changes"]) <= 7
        places += [change["row"]["east_m"] for change in page["changes"]]
        cursor = page["next"]
    assert places == [float(number) for number in range(30)]


@pytest.mark.parametrize(
    "query", ["history?from_s=x", "history?kind=nothing", "history?cursor=x", "snapshot?at_s=nan", "timeline?to_s=1e99",
              "history?limit=", "changes?after=x"],
)  # fmt: skip
def test_wrong_arguments_are_named(served: Served, query: str) -> None:
    reply = Reply(served, f"/api/v1/{query}")
    if query.endswith("limit="):
        assert reply.status == 200  # An empty value is none.
        return
    assert reply.status == 400
    assert query.split("?")[1].split("=")[0] in reply.json["error"]


def test_files_are_asked_for_once(served: Served) -> None:
    for path in ("/", "/app.js", "/api/v1/site"):
        tag = Reply(served, path).headers["etag"]
        again = Reply(served, path, If_None_Match=tag)
        assert (again.status, again.body) == (304, b"")


def test_exports_carry_no_formula(served: Served) -> None:
    evil = '=HYPERLINK("http://evil.example","x")'
    served.do(lambda ground: ground.picture.put("object", thing(77, 1.0, 2.0, 3.0, evil, "+1"), 1.0))
    served.do(lambda ground: ground.picture.put("member", member(9, name="@SUM(A1)"), 1.0))
    objects = Reply(served, "/api/v1/export/objects.csv").body.decode()
    assert "'=HYPERLINK" in objects
    assert not re.search(r'(^|,)"?[=+@]', objects, re.M)
    assert "'@SUM" in Reply(served, "/api/v1/export/members.csv").body.decode()
    features = Reply(served, "/api/v1/export/objects.geojson").json["features"]
    assert len(features) == 13
    assert features[0]["geometry"]["type"] == "Point"


# --- many, slow and hostile clients ---------------------------------------------------------------------------------


def test_clients_that_do_not_read_hold_nobody_up(served: Served) -> None:
    """Forty streams whose readers sleep, while changes go on; others are answered, and who wakes up starts anew."""
    epoch = served.ground.picture.epoch
    asleep = []
    for _ in range(40):
        one = socket.create_connection(("127.0.0.1", served.port))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(f"GET /api/v1/changes?epoch={epoch}&after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        asleep.append(one)
    for burst in range(5):
        served.do(
            lambda ground, b=burst: [
                ground.picture.put("object", thing(n, float(b), 0.0, 1.0), 1.0) for n in range(1_000, 1_500)
            ]
        )
    assert len(Reply(served, "/api/v1/snapshot").json["rows"]["object"]) == 512
    for one in asleep:
        one.close()


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET /api/v1/site HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_clients_that_ask_nothing_keep_nobody_out(served: Served, said: bytes) -> None:
    """More than there are places, for as long as they like; who comes is answered."""
    silent = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(CLIENTS_MAX + 6)]
    try:
        for one in silent:
            with contextlib.suppress(ConnectionError):
                one.sendall(said)
        for _ in range(3):
            assert Reply(served, "/api/v1/site").status == 200
    finally:
        for one in silent:
            one.close()


def test_streams_that_nobody_reads_keep_nobody_out(served: Served) -> None:
    """A stream that is read stays; of those that are not the oldest give way."""
    epoch = served.ground.picture.epoch
    reader = Stream(served, f"epoch={epoch}&after={served.ground.picture.seq}")
    asleep = []
    for _ in range(CLIENTS_MAX - 2):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", served.port))
        one.sendall(f"GET /api/v1/changes?epoch={epoch}&after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        asleep.append(one)
    try:
        seen = 0
        for burst in range(40):
            served.do(
                lambda ground, b=burst: [
                    ground.picture.put("object", thing(n, float(b), 0.0, 1.0), 1.0) for n in range(1_000, 1_400)
                ]
            )
            while seen < 400 * (burst + 1):
                seen += len(reader.next()["changes"])
        for _ in range(6):
            held = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
            asleep.append(held)  # type: ignore[arg-type]
            held.request("GET", "/api/v1/site")
            assert held.getresponse().status == 200
        assert reader.next() is not None
    finally:
        for one in asleep:
            one.close()
        reader.close()


def test_a_plant_of_objects_is_sent_in_small_pieces(tmp_path: Path) -> None:
    """The event loop never holds more than a piece: by count, since a time would judge the machine."""
    with serving(tmp_path, drones=200, objects=5_000) as served:
        pieces = list(served.ground.picture.snapshot(1.0))
        assert max(map(len, pieces)) < 128 << 10
        assert len(Reply(served, "/api/v1/snapshot").json["rows"]["object"]) == 5_000


@pytest.mark.parametrize(
    "raw", [b"\x00\xff\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"GET /" + b"a" * 200_000, b"\x16\x03\x01\x02\x00"]
)
def test_what_is_no_request_ends_no_server(served: Served, raw: bytes) -> None:
    where = ("127.0.0.1", served.port)
    with socket.create_connection(where, timeout=PATIENCE_S) as one, contextlib.suppress(ConnectionError):
        one.sendall(raw)
        while one.recv(65_536):
            pass
    assert Reply(served, "/api/v1/site").status == 200


# --- the page and the server speak of the same things ---------------------------------------------------------------


def test_the_page_knows_every_field_and_no_other() -> None:
    """`ui/src/api.ts` is written by hand: its names are the structs' names."""
    source = (ROOT / "ui" / "src" / "api.ts").read_text()
    pairs = {"Thing": rows.Object, "Happening": rows.Event}
    pairs |= {
        name: getattr(rows, name)
        for name in ("Asset", "Site", "Member", "Position", "Cell", "Alert", "Evidence", "Rows", "Change", "Snapshot",
                     "Changes", "History", "Mark", "Timeline", "Signed", "Release", "Vote", "Prepared")
    }  # fmt: skip
    for name, struct in pairs.items():
        body = re.search(rf"interface {name} {{(.*?)}}", source, re.S)
        assert body, name
        assert tuple(re.findall(r"(\w+):", body.group(1))) == struct.__struct_fields__, name
