"""`swarmd fleet objects` and `sites`: a slip is said in one line with what to do."""

from pathlib import Path

import pytest

from swarmd.cli.main import main
from swarmd.federation.store import FILE_NAME, Store


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "holds nothing yet: start it with swarmd region run"),
        (["--limit", "0"], "--limit is 0; write 1 to 1,000,000"),
        (["--limit", "-1"], "--limit is -1; write 1 to 1,000,000"),
        (["--since", "soon"], "'soon' is no time; write 90s"),
        (["--live", "--history", "past"], "give one of them"),
    ],
)
def test_a_slip_is_said_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["region", "init", str(tmp_path / "region")]) == 0
    assert main(["fleet", "objects", "--region", str(tmp_path / "region"), *words]) == 1
    assert said in capsys.readouterr().err


def test_gateways_are_asked_over_zenoh_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region = tmp_path / "region"
    assert main(["region", "init", str(region)]) == 0
    Store(region / FILE_NAME).close()
    assert main(["fleet", "objects", "--region", str(region), "--live", "--path", "mqtt://broker"]) == 1
    assert "names no zenoh:// path" in capsys.readouterr().err


def test_a_swarm_that_is_not_pinned_is_no_empty_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region = tmp_path / "region"
    assert main(["region", "init", str(region)]) == 0
    Store(region / FILE_NAME).close()
    assert main(["fleet", "objects", "--region", str(region)]) == 0
    assert main(["fleet", "sites", "--region", str(region), "--swarm", "lake"]) == 1
    assert "pins no swarm 'lake'; it pins none" in capsys.readouterr().err
