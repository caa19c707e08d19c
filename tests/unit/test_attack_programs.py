"""The attacks of the review as programs (`make attacks`): those that take no second have no effect, and one is said."""

import pytest

from tests.bench.attacks import __main__ as programs
from tests.bench.attacks.seen import Seen

QUICK = sorted(
    programs.ATTACKS.keys() - {"decoded_rows_memory", "dedup_stall", "accuse_again", "hello_flood", "junk_flood_real"}
)


@pytest.mark.parametrize("name", QUICK)
def test_it_has_no_effect(name: str) -> None:
    seen = programs.ATTACKS[name]()
    assert not seen.worked, seen.text


def test_an_effect_is_said_and_told_to_who_runs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"one": lambda: Seen("much", False, "nothing"), "other": lambda: Seen("much", True, "much")}
    monkeypatch.setattr(programs, "ATTACKS", found)
    assert programs.main([]) == 1
    assert "other: HAS ITS EFFECT" in (said := capsys.readouterr().out)
    assert "one: no effect" in said
    assert programs.main(["one"]) == 0
    with pytest.raises(SystemExit, match="no attack is called three"):
        programs.main(["three"])
