"""Operators at `swarmd ground`, beside real daemons: they sign in, review, act on members, and all of it is written."""

import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.identity.role_keys import read_role_key
from swarmd.release.audit import verify_folder
from swarmd_protocols.crypto import NaClCrypto
from tests.integration.test_ground_swarm import GroundProcess
from tests.support.daemons import PATIENCE_S, Daemon, wait_for

pytestmark = pytest.mark.slow
CRYPTO = NaClCrypto()
PLACE = {"label": "hot-spot", "score": 0.9, "track": "x", "event": "new", "east_m": 3.0, "north_m": 4.0}


class Refused(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def by_loopback(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)


class Operator:
    """What the page does for somebody who holds a key."""

    def __init__(
        self,
        ground: GroundProcess,
        key: Path | bytes,
        name: str,
        connect: Callable[[int], http.client.HTTPConnection] = by_loopback,
    ) -> None:
        self.connect = connect
        self.port, self.name, self.token = ground.port, name, ""
        self.seed = key if isinstance(key, bytes) else read_role_key(key).seed

    def post(self, path: str, body: Mapping[str, object], **headers: str) -> Any:
        connection = self.connect(self.port)
        sent = {"Content-Type": "application/json", "Origin": f"http://127.0.0.1:{self.port}"}
        sent |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", f"/api/v1/operator/{path}", json.dumps(body), {k: v for k, v in sent.items() if v})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
        if answer.status != 200:
            raise Refused(answer.status, told["error"])
        return told

    def sign(self, message: str) -> str:
        return CRYPTO.sign(self.seed, bytes.fromhex(message)).hex()

    def login(self) -> "Operator":
        asked = self.post("challenge", {})
        answer = {"challenge": asked["challenge"], "signature": self.sign(asked["message"]), "name": self.name}
        self.token = self.post("login", {**answer, "public_key": CRYPTO.public_key(self.seed).hex()})["token"]
        return self

    def draft(self, thing: Mapping[str, Any], verdict: str, text: str = "") -> dict[str, Any]:
        shown = [said["digest"] for said in thing["reviews"]]
        wish = {"object": thing["id"], "verdict": verdict, "text": text, "shown": shown}
        made: dict[str, Any] = self.post("draft", wish)
        return {"object": thing["id"], "payload": made["payload"], "signature": self.sign(made["message"])}

    def review(self, thing: Mapping[str, Any], verdict: str, text: str = "") -> str:
        return str(self.post("review", self.draft(thing, verdict, text))["text"])


@pytest.fixture
def field(tmp_path: Path) -> Iterator[tuple[Daemon, GroundProcess, list[Path]]]:
    drone = Daemon(tmp_path, "drone-1", "--no-eye", "--set", "node.origin=48.0,11.0").up()
    ground = GroundProcess(tmp_path, drone.status()["address"])
    try:
        ground.begin()
        command = ["keys", "role", tmp_path / "fleet", "operator", "--need", 1, "--keys", 2, "--control", drone.control]
        subprocess.run([sys.executable, "-m", "swarmd", *map(str, command)], check=True, timeout=120)
        yield drone, ground, sorted((tmp_path / "fleet" / "keys").glob("operator*"))
    finally:
        ground.close()
        drone.close()


def signed_in(operator: Operator) -> bool:
    try:
        operator.login()
    except Refused:
        return False
    return True


def test_two_operators_review_at_once_and_lose_nothing(
    tmp_path: Path, field: tuple[Daemon, GroundProcess, list[Path]]
) -> None:
    drone, ground, keys = field
    alice, bob = Operator(ground, keys[0], "alice"), Operator(ground, keys[1], "bob")
    # The root reaches the laptop by gossip; until then the key is nobody's.
    wait_for(lambda: signed_in(alice) and signed_in(bob), "both are operators", seen=ground.log)
    drone.ask("observe", detections=[PLACE])
    thing = wait_for(lambda: ground.rows("object"), "the object")[0]

    # Both look at the same picture and sign; one is first, the other is told to look again, and nothing is lost.
    first, second = alice.draft(thing, "relabel", "crack"), bob.draft(thing, "reject")
    alice.post("review", first)
    with pytest.raises(Refused, match="meanwhile") as stale:
        bob.post("review", second)
    assert stale.value.status == 409
    with pytest.raises(Refused, match="meanwhile"):
        bob.review(thing, "reject")
    thing = wait_for(lambda: [row for row in ground.rows("object") if row["reviews"]], "what alice said")[0]
    assert (thing["tier"], thing["label"], thing["detected"]) == ("reviewed", "crack", "hot-spot")
    bob.review(thing, "reject")
    row = wait_for(lambda: [row for row in drone.ask("objects")["objects"] if row["review"] == "disputed"], "both")[0]
    assert {(said["operator"], said["verdict"]) for said in row["reviews"]} == {("alice", "relabel"), ("bob", "reject")}

    # What a third says at another node, by a command, is in the audit too.
    command = ["review", thing["id"], "note", "=1+1", "--key", keys[0], "--control", drone.control]
    subprocess.run([sys.executable, "-m", "swarmd", *map(str, command)], check=True, timeout=120)

    def lines(what: str) -> list[dict[str, Any]]:
        return [line for line in ground.get("audit?limit=500")["lines"] if line["what"] == what]

    assert wait_for(lambda: lines("heard"), "what was said elsewhere")[0]["text"] == "=1+1"
    said = {(line["by"], line["verdict"], line["outcome"]) for line in lines("review")}
    refused = ("bob", "reject", "refused: others have said something meanwhile")
    assert said == {("alice", "relabel", "taken"), ("bob", "reject", "taken"), refused}
    assert {line["by"] for line in lines("login") if line["outcome"] == "taken"} == {"alice", "bob"}
    told = ground.get("audit")
    assert told["problem"] == ""
    assert verify_folder(tmp_path / "laptop" / "operators")[:2] == (told["sound"], told["newest"])

    # A restart forgets tokens, and neither what was said nor that it was written down.
    before = told["sound"]
    ground.close()
    ground.begin()
    shown = wait_for(lambda: [row for row in ground.rows("object") if len(row["reviews"]) == 3], "all three again")
    with pytest.raises(Refused, match="sign in"):
        Operator.draft(_at(bob, ground), shown[0], "confirm")
    again = ground.get("audit?limit=500")
    assert (again["sound"], again["problem"]) == (before, "")


def _at(operator: Operator, ground: GroundProcess) -> Operator:
    operator.port = ground.port
    return operator


def test_only_an_operator_acts_and_only_while_the_root_names_the_key(
    tmp_path: Path, field: tuple[Daemon, GroundProcess, list[Path]]
) -> None:
    drone, ground, keys = field
    alice = Operator(ground, keys[0], "alice")
    wait_for(lambda: signed_in(alice), "alice is an operator", seen=ground.log)
    act = {"what": "away", "member": "laptop", "seconds": 30}
    for headers, status in (
        ({"Origin": ""}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Authorization": ""}, 403),
        ({"Authorization": "Bearer x"}, 403),
        ({"Content_Type": "text/plain"}, 415),
    ):
        with pytest.raises(Refused) as refused:
            alice.post("act", act, **headers)
        assert refused.value.status == status, headers
    stranger = Operator(ground, bytes(32), "mallory")
    with pytest.raises(Refused, match="does not name the key"):
        stranger.login()
    asked = alice.post("challenge", {})
    false = {"challenge": asked["challenge"], "public_key": CRYPTO.public_key(alice.seed).hex()}
    with pytest.raises(Refused, match="not signed"):
        alice.post("login", {**false, "signature": stranger.sign(asked["message"]), "name": ""})
    with pytest.raises(Refused, match="unknown or too old"):
        alice.post("login", {**false, "signature": alice.sign(asked["message"]), "name": ""})
    with pytest.raises(Refused, match="at most 8192"):
        alice.post("act", {**act, "member": "x" * 9_000})

    # A member that fails is dismissed with the operator's name on it; an eye that is not there is said.
    drone.kill()
    wait_for(lambda: ground.states().get("drone-1") == "failed", "the loss", seen=ground.states)
    with pytest.raises(Refused, match="door does not open"):
        alice.post("act", {"what": "eye_stop", "member": "drone-1"})
    with pytest.raises(Refused, match="no eye"):
        alice.post("act", {"what": "eye_start", "member": "laptop"})
    alice.post("act", {"what": "dismiss", "member": "drone-1"})
    wait_for(lambda: "drone-1" not in ground.states(), "it is off the list", seen=ground.states)
    alice.post("act", act)
    wait_for(lambda: ground.states() == {"laptop": "away"}, "it is away", seen=ground.states)
    lines = [line for line in ground.get("audit")["lines"] if line["what"] in ("dismiss", "eye_stop", "away")]
    done = {(line["what"], line["by"], line["member"], line["outcome"].partition(":")[0]) for line in lines}
    assert done >= {("dismiss", "alice", "drone-1", "done"), ("eye_stop", "alice", "drone-1", "refused")}

    # A root without the key ends what its token could do.
    command = ["keys", "role", tmp_path / "fleet", "operator", "--need", 1, "--keys", 1, "--control", ground.control]
    subprocess.run([sys.executable, "-m", "swarmd", *map(str, command)], check=True, timeout=120)
    with pytest.raises(Refused, match="does not name this key"):
        alice.post("act", act)
    with pytest.raises(Refused, match="sign in"):
        alice.post("act", act)
