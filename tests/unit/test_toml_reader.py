"""TOML from outside: what it costs goes with its bytes, and what it says is what `tomllib` says."""

import contextlib
import random
import time
import tomllib
from pathlib import Path

import pytest

from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.toml_reader import MAX_KEY_PARTS, TomlReader, parse_toml
from tests.support.bundles import write_bundle

PIECES = ("a", '"', '"""', "'", "'''", ".", ".", "=", "1", "\n", "#", "\\", "[", "]", "{", "}", " ", ",", '"a"')


@pytest.mark.parametrize(
    "line", ["{}a = 1", "[{}a]", "[[{}a]]", "x = {{ {}a = 1 }}", 's = "#" # \'\n{}a = 1', 's = """\\""""\n{}a = 1']
)
@pytest.mark.parametrize("part", ["a.", '"." . ', "''.\t"])
def test_a_key_of_many_parts_is_refused_before_it_is_read(line: str, part: str, tmp_path: Path) -> None:
    assert parse_toml(line.format(part * (MAX_KEY_PARTS - 1)))
    before_s = time.process_time()
    with pytest.raises(ArtefactError, match=f"a key has more than {MAX_KEY_PARTS} parts"):
        load_bundle(write_bundle(tmp_path, None, extra=line.format(part * 20_000)))
    assert time.process_time() - before_s < 1.0


def test_dots_that_part_no_key_are_read() -> None:
    dots = "." * 99
    three = "'" * 3
    text = f'a = "{dots}" # {dots}\n' + f"b = '{dots}'\nc = {three}'{dots}\n'{three}\n"
    text += f'd = """{dots}\\"""""\ne = [{"1.5, " * 99}]'
    assert parse_toml(text) == tomllib.loads(text)


def test_law_it_says_what_tomllib_says() -> None:
    rng, good = random.Random(7), 0
    for _ in range(5_000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 24)))
        try:
            wanted = tomllib.loads(text)
        except ValueError:
            with pytest.raises(ValueError, match=r"."):
                parse_toml(text)
            continue
        assert parse_toml(text) == wanted
        good += 1
    assert good > 50


@pytest.mark.parametrize("piece", ['x\\"""\n', '"a\\', "'''", '""""', "#.", ". ", '"" .'])
def test_strings_that_do_not_end_are_looked_through_once(piece: str) -> None:
    before_s = time.process_time()
    with contextlib.suppress(ValueError):
        parse_toml(piece * 40_000)
    assert time.process_time() - before_s < 2.0


def test_values_that_nest_deeply_are_no_toml() -> None:
    with pytest.raises(ValueError, match="nest too deeply"):
        parse_toml("a = " + "[" * 5_000)


def test_of_many_unknown_keys_the_first_have_a_hint() -> None:
    reader = TomlReader({f"width{at:05}": 1 for at in range(20_000)}, "")
    reader.integer("width", 1, 1, 9)
    before_s = time.process_time()
    problems = reader.finish()
    assert time.process_time() - before_s < 0.5
    assert problems[0] == "unknown key width00000; did you mean width?"
    assert len(problems) == 20_000
