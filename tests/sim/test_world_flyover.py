"""The real chain over rendered farms: world, eye with the zoo's model on LiteRT, tracker, position, asset."""

from pathlib import Path

import pytest

from swarmd_models.bundle import load_bundle
from swarmd_models.eye import Eye
from swarmd_models.types import TrackEvent
from swarmd_sim.world.source import open_source
from tests.support.bundles import unhurried


def assets_found(url: str, folder: Path) -> tuple[set[str], set[str]]:
    """(assets of the truth, assets that tracks ended on) of one fly-over."""
    source = open_source(url)
    eye = Eye.open(load_bundle(unhurried(folder)), intrinsics=source.intrinsics)
    found: set[str] = set()

    def take(events: "list[TrackEvent] | tuple[TrackEvent, ...]") -> None:
        for event in events:
            if event.kind == "end" and event.position is not None:
                east, north = source.farm.to_plane(event.position.latitude_deg, event.position.longitude_deg)
                found.add(source.farm.asset_at(east, north) or f"soil at {east:.1f}, {north:.1f}")

    while (frame := source.read()) is not None:
        take(list(eye.see(frame).events))
    take(eye.finish())
    return {fault.asset for fault in source.farm.truth()}, found


@pytest.mark.parametrize("seed", [7, 4711])
def test_a_fly_over_finds_the_faults_and_nothing_else(seed: int, tmp_path: Path) -> None:
    truth, found = assets_found(f"sim://farm?pace=max&seed={seed}&tables=12&faults=0.05", tmp_path)
    assert len(truth) == 24
    assert len(found & truth) >= 0.95 * len(truth), truth - found
    assert len(found - truth) <= 1, found - truth


def test_larger_frames_are_seen_as_well(tmp_path: Path) -> None:
    truth, found = assets_found("sim://farm?pace=max&seed=3&size=640x512&tables=4&faults=0.1", tmp_path)
    assert len(found & truth) >= 0.9 * len(truth), truth - found
    assert len(found - truth) <= 1, found - truth


def test_a_healthy_farm_stays_healthy(tmp_path: Path) -> None:
    truth, found = assets_found("sim://farm?pace=max&seed=5&faults=0&tables=6", tmp_path)
    assert not truth
    assert len(found) <= 1, found
