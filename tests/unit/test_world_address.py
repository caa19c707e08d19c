"""`sim://farm` addresses: what is understood, and what is said of what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd_models.errors import SourceError
from swarmd_sim.world.address import FarmUrl, parse_farm_url


def test_defaults_and_values() -> None:
    assert parse_farm_url("sim://farm") == FarmUrl()
    address = parse_farm_url("sim://farm?drone=3&of=4&seed=9&faults=0.02&pace=max&size=640x512&fly=claims")
    assert (address.drone, address.of, address.seed, address.faults) == (3, 4, 9, 0.02)
    assert (address.pace, address.frame_size, address.fly) == ("max", (640, 512), "claims")


def test_all_drones_speak_of_one_farm() -> None:
    farms = [parse_farm_url(f"sim://farm?drone={i}&of=3&seed=5").farm() for i in (1, 2, 3)]
    assert farms[0] == farms[1] == farms[2]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sim://farm?dron=1", "did you mean 'drone'"),
        ("sim://farm?zzz=1", "known keys: "),
        ("sim://farm?drone=5&of=4", "drone is 5 of only 4"),
        ("sim://farm?drone=one", "must be an integer"),
        ("sim://farm?faults=many", "must be a number"),
        ("sim://farm?faults=nan", "must lie between"),
        ("sim://farm?faults=2", "must lie between 0 and 1"),
        ("sim://farm?fps=0", "must lie between 0.1 and 240"),
        ("sim://farm?size=320", "WIDTHxHEIGHT"),
        ("sim://farm?size=9999999x256", "WIDTHxHEIGHT"),
        ("sim://farm?fly=high", "auto, lanes, claims"),
        ("sim://farm?seed=1&seed=2", "given twice"),
        ("sim://forest", "sim://farm"),
        ("http://farm", "sim://farm"),
        ("sim://farm?" + "a" * 3000, "at most"),
        ("sim://[", "no address"),
    ],
)
def test_what_is_wrong_is_said(url: str, said: str) -> None:
    with pytest.raises(SourceError, match=said.replace("?", r"\?")):
        parse_farm_url(url)


@given(st.text(max_size=80), st.sampled_from(["", "sim://farm?", "sim://farm?drone=1&", "sim://"]))
def test_any_text_is_an_address_or_a_source_error(text: str, start: str) -> None:
    said = ""
    try:
        parse_farm_url(start + text)
    except SourceError as error:
        said = str(error)
    assert len(said) < 3000
