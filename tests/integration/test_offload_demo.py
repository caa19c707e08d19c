"""`swarmd demo --offload`, short: three real daemons; what the station sees for the drones is counted as theirs."""

import json

import pytest

from swarmd.cli.main import main


@pytest.mark.timeout(400)
def test_the_station_finds_for_the_drones(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import swarmd.demo.offload as offload

    short = offload.OffloadOptions
    monkeypatch.setattr(offload, "OffloadOptions", lambda seed: short(frames=24, seed=seed))
    assert main(["demo", "--offload", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    alone, asked = rows["drone-1 alone"], rows["drone-1 with the station"]
    assert alone["found"] == 0 < asked["found"]
    assert rows["drone-2 alone"]["found"] < rows["drone-2 with the station"]["found"] <= asked["faults"]
    assert [row["unanswered"] for row in rows.values()] == [0] * 4
    assert asked["lenders"] == {"station": 24}
    assert rows["drone-2 with the station"]["lenders"] == {"station": 8}
    assert asked["mib_sent"] == 7.5
