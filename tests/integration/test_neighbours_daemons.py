"""Two swarms of real daemons, each with a fleet and a gateway of its own: they agree, share, keep clear, and end it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import Running, wait_for
from tests.support.exclusive import own_port

pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed (extra zenoh)")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ORIGIN = (47.0, 8.0)
NAMES = ("amber", "blue")


def done(*words: object) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "swarmd", *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


class Member(Running):
    """One daemon of one fleet."""

    def __init__(self, folder: Path, swarm: str, role: str, *words: str) -> None:
        super().__init__(f"{swarm}-{role}", folder / f"{swarm}-{role}.sock", folder / f"{swarm}-{role}.out",
                         folder / f"{swarm}-{role}.err")  # fmt: skip
        identity = folder / f"{swarm}-{role}"
        roles = ("--role", "gateway") if role == "gw" else ()
        done("keys", "enrol", folder / swarm, self.name, "--swarm", swarm, *roles, "--out", identity)
        verb = ("gateway",) if role == "gw" else ("run", "--no-eye", "--http", "off")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SWARMD_")}
        self.spawn(
            [
                sys.executable, "-m", "swarmd", *verb, "--identity", str(identity), "--listen", "127.0.0.1:0",
                "--state", str(identity / "state"), "--control", str(self.control), "--log-level", "debug",
                "--set", f"node.origin={ORIGIN[0]},{ORIGIN[1]}", "--set", f"claims.cells={folder / swarm}.csv", *words,
            ],
            environment,
        )  # fmt: skip
        self.wait_up()

    def neighbour(self) -> dict[str, Any]:
        rows = self.ask("neighbours")["neighbours"]
        return rows[0] if rows else {}


@pytest.fixture
def swarms(tmp_path: Path) -> Iterator[dict[str, list[Member]]]:
    """A gateway and a drone of each, over one Zenoh link between the gateways."""
    port = own_port()  # Every daemon here takes one of the kernel's, which might be this one.
    paths = {"amber": f"zenoh://?listen=127.0.0.1:{port}", "blue": f"zenoh://127.0.0.1:{port}"}
    found: dict[str, list[Member]] = {}
    try:
        for name in NAMES:
            done("keys", "root", tmp_path / name, "--name", name)
            # The same ground: who works claims the next cell too, so of three one is left at least.
            (tmp_path / f"{name}.csv").write_text(
                f"cell_id,east_m,north_m\n{name}-a,0,0\n{name}-b,60,0\n{name}-c,120,0\n"
            )
            gate = Member(tmp_path, name, "gw", "--neighbour", paths[name])
            found[name] = [gate]
            found[name].append(Member(tmp_path, name, "drone", "--join", gate.status()["address"]))
            done("keys", "role", tmp_path / name, "operator", "--need", 1, "--keys", 1, "--control", gate.control)
        yield found
    finally:
        for members in found.values():
            for one in members:
                one.close()


def agree(folder: Path, swarms: dict[str, list[Member]], own: str, other: str, *words: object) -> None:
    """An operator of one signs, and hands it over at its drone."""
    [key] = sorted((folder / own / "keys").glob("operator*"))
    out = folder / f"{own}.agreement"
    done(
        "fleet", "neighbour", f"the-{other}", "--swarm", own, "--root", folder / other / "roots" / "0001.root",
        "--other", other, "--key", key, "--out", out, *words,
    )  # fmt: skip
    done("neighbours", "agree", out, "--control", swarms[own][1].control)


def every(swarms: dict[str, list[Member]]) -> list[Member]:
    return [one for members in swarms.values() for one in members]


def test_two_swarms_agree_share_keep_clear_and_end_it(tmp_path: Path, swarms: dict[str, list[Member]]) -> None:
    agree(tmp_path, swarms, "amber", "blue")
    wait_for(lambda: swarms["amber"][0].neighbour(), "the agreement at amber's gateway")
    assert swarms["amber"][0].neighbour()["state"] == "waiting"
    agree(tmp_path, swarms, "blue", "amber")

    def states() -> list[object]:
        return [one.neighbour().get("state") for one in every(swarms)]

    wait_for(lambda: states() == ["agreed"] * 4, "everybody to know that both have agreed", seen=states)

    # Amber's drone works on a cell; blue's drone is told, and takes the cell that lies elsewhere.
    amber, blue = swarms["amber"][1], swarms["blue"][1]
    wait_for(lambda: amber.ask("cell_next", east_m=0, north_m=0)["cells"], "amber's cell")
    wait_for(
        lambda: [one for one in blue.neighbour()["claims"] if one["working"]], "the claim at blue's drone",
        seen=blue.neighbour,
    )  # fmt: skip
    [claim] = [one for one in blue.neighbour()["claims"] if one["working"]]
    assert claim["id"].startswith("the-amber~")
    assert abs(claim["latitude_deg"] - ORIGIN[0]) < 1e-4
    [cell] = wait_for(lambda: blue.ask("cell_next", east_m=0, north_m=0)["cells"], "blue's cell")
    assert cell["id"] != "blue-a", "blue begins where amber works"
    layer = json.loads(done("neighbours", "--geojson", "--control", blue.control))
    assert {one["properties"]["kind"] for one in layer["features"]} >= {"claim"}
    assert "the-amber (amber): agreed" in done("status", "--control", blue.control)

    agree(tmp_path, swarms, "blue", "amber", "--revision", 2, "--end")
    ended = ["refused"] * 2 + ["ended"] * 2
    wait_for(lambda: states() == ended, "everybody to know of the end", seen=states)
    assert not any(one.neighbour()["claims"] or one.neighbour()["positions"] for one in every(swarms))
