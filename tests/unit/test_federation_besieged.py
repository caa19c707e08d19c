"""Pipes, clocks, copies of files, stolen keys: laws of `tests/support/federation_besieged.py`, a mutant for each."""

from pathlib import Path

import pytest

from swarmd.federation.publisher import Publisher
from tests.support import federation_besieged as besieged


async def test_a_statement_that_overtakes_its_root_arrives(tmp_path: Path) -> None:
    await besieged.a_statement_that_overtakes_its_root_arrives(tmp_path)


async def test_a_gateway_that_lets_refused_statements_be_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Publisher, "on_refused", lambda self, rows: None)
    with pytest.raises(AssertionError, match="never arrives"):
        await besieged.a_statement_that_overtakes_its_root_arrives(tmp_path)
