"""What a stranger reads first holds together: links lead somewhere, the film is what its target writes."""

import re
import subprocess

import pytest

from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()
_LINK = re.compile(r"\]\(([^)#\s]+)")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_every_link_of_a_front_page_leads_to_a_file_of_this_tree(page: str) -> None:
    links = [link for link in _LINK.findall((ROOT / page).read_text()) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_film_is_what_its_target_writes_and_small() -> None:
    image = pytest.importorskip("PIL.Image", reason="no Pillow here (pip install 'swarmd[ground]')")
    from tests.support.recording import FILM, FILM_MAX_BYTES, FRAMES_MAX, HEIGHT, WIDTH

    (shown,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    assert ROOT / shown == FILM
    recipe = subprocess.run(["make", "-n", "recording"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "-m tests.support.recording" in recipe
    assert FILM.stat().st_size <= FILM_MAX_BYTES
    with image.open(FILM) as film:
        assert (film.format, film.size) == ("GIF", (WIDTH, HEIGHT))
        assert 10 <= film.n_frames <= FRAMES_MAX + 1


def test_the_comparison_has_a_source_or_a_figure_in_each_row() -> None:
    table = README.partition("## What you would use otherwise")[2].partition("\n\n")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    assert len(rows) == 5
    assert all(_LINK.findall(row) for row in rows)


def test_the_three_commands_are_three_and_there() -> None:
    block = README.partition("## Three commands")[2].split("```")[1]
    commands = [line.partition("  ")[0].strip() for line in block.strip().splitlines()]
    assert commands == ["make demo", ". .venv/bin/activate", "swarmd quickstart"]


def test_each_guarantee_has_a_command_that_is_there() -> None:
    page = (ROOT / "docs/guarantees.md").read_text()
    rows = [line.strip("| ").rsplit("|", 1)[1] for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for row in rows:
        commands = re.findall(r"`([^`]+)`", row)
        assert commands, row
        for command in commands:
            first, *words = command.split()
            assert first in ("make", "pytest", "swarmd", "python"), command
            if first == "make":
                assert words[0] in targets, command
            for word in words:
                if word.startswith("tests/"):
                    assert (ROOT / word).is_file(), word
