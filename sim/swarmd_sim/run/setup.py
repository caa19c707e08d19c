"""A scenario's sections as the configurations of the parts, and what cannot be set up at all."""

import random
from collections.abc import Callable
from dataclasses import replace
from math import isqrt
from pathlib import Path
from typing import Any

from swarmd_protocols.swim.config import SwimConfig
from swarmd_sim.errors import ScenarioError
from swarmd_sim.radio.radio import RadioConfig, Ridge
from swarmd_sim.run.choices import MILLION, Choices, derived_seed
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import Scenario
from swarmd_sim.run.traces import read_link_trace
from swarmd_sim.world import layout as layouts
from swarmd_sim.world.detector import DetectorConfig
from swarmd_sim.world.layout import Place
from swarmd_sim.world.mobility import Mobility
from swarmd_sim.world.motion import DroneConfig
from swarmd_sim.world.site import Site, empty_site, farm_site, file_site

MEMORY_MAX = 13_000_000_000
"""Bytes of all nodes together above which a run is refused: 2,000 nodes with full views, many more with partial."""
_RECORD_BYTES = 3_200
"""A member of a full view, its session included."""
_PARTIAL_NODE_BYTES = 60_000
"""A node beside the members that it held before its view became partial, of `_FORMER_RECORD_BYTES` each."""
_FORMER_RECORD_BYTES = 1_600


def full_view_max(scenario: Scenario) -> int:
    """Above how many members a node of this scenario keeps a partial view.

    Args:
        scenario: Its `[gossip]` may set it.

    Returns:
        `SwimConfig.full_view_max` as the scenario has it.
    """
    return int(scenario.gossip.get("full_view_max", SwimConfig().full_view_max))


def refuse_too_large(scenario: Scenario) -> None:
    """Refuse at once what would run for hours and then out of memory."""
    nodes, whole = scenario.swarm.nodes, full_view_max(scenario)
    if nodes <= whole:
        each, most = nodes * _RECORD_BYTES, isqrt(MEMORY_MAX // _RECORD_BYTES)
        what = f"every node holds a record of every other, {nodes * nodes:,} in all"
        way_out = f"; lower gossip.full_view_max ({whole}) below the number of nodes, so that views are partial, or run"
    else:
        each = _PARTIAL_NODE_BYTES + whole * _FORMER_RECORD_BYTES
        most = MEMORY_MAX // each
        what = f"every node holds up to gossip.full_view_max ({whole}) members until its view becomes partial"
        way_out = "; lower it, or run"
    if nodes * each > MEMORY_MAX:
        raise ScenarioError(
            f"swarm.nodes is {nodes}: {what}, some {nodes * each >> 30} GiB{way_out} at most {most} nodes (--nodes)"
        )


def busy_ns(scenario: Scenario) -> list[int]:
    """When releases are published: moments at which faults are worth more than at others."""
    release = scenario.release
    times = (release.publish_at_s, release.bad_at_s, release.next_at_s)
    return [int(at_s * NS_PER_S) for at_s in times if at_s]


def drone_config(scenario: Scenario) -> DroneConfig:
    """How the drones of a scenario fly."""
    drones = scenario.drones
    return DroneConfig(
        round(drones.speed_m_s * 100),
        round(drones.drain_per_s * MILLION),
        round(drones.reserve * MILLION),
        round(drones.charge_s * NS_PER_S),
    )


def detector_config(scenario: Scenario) -> DetectorConfig:
    """How its statistical eyes see."""
    detector = scenario.detector
    return DetectorConfig(
        footprint_cm=round(detector.footprint_m * 100),
        recall_ppm=round(detector.recall * MILLION),
        edge_recall_ppm=round(detector.edge_recall * MILLION),
        confusion_ppm=round(detector.confusion * MILLION),
        false_alarms_ppm=round(detector.false_alarms_per_look * MILLION),
        sigma_cm=round(detector.sigma_m * 100),
        edge_sigma_cm=round(detector.edge_sigma_m * 100),
        latency_ms=detector.latency_ms,
        asset_probability=detector.asset_probability,
        drift_cm=round(detector.drift_m * 100),
        looks=detector.looks,
    )


def radio_config(scenario: Scenario) -> RadioConfig:
    """Its air."""
    radio = scenario.radio
    return RadioConfig(
        model=radio.model,
        range_cm=round(radio.range_m * 100),
        rate_bit_s=round(radio.rate_mbit_s * MILLION),
        latency_ns=round(radio.latency_ms * 1e6),
        jitter_ns=round(radio.jitter_ms * 1e6),
        loss_ppm=round(radio.loss * MILLION),
        shared_air=radio.shared_air,
        retries=radio.retries,
        tx_power_mdb=round(radio.tx_power_dbm * 1_000),
        exponent_milli=round(radio.exponent * 1_000),
        shadowing_mdb=round(radio.shadowing_db * 1_000),
        carrier_sense_cm=round(radio.carrier_sense_m * 100),
        ridges=tuple(Ridge(_cm(r.from_m), _cm(r.to_m), round(r.loss_db * 1_000)) for r in radio.ridge),
    )


def _cm(metres: tuple[float, float]) -> tuple[int, int]:
    return round(metres[0] * 100), round(metres[1] * 100)


def drawn(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with a layout and a way to move for what it leaves to the seed; two of three stand still.

    Args:
        scenario: Any.
        seed: Of the run.

    Returns:
        One without a kind "drawn".
    """
    rng, layout, moves = random.Random(derived_seed(seed, "shape")), scenario.layout, scenario.mobility
    kind, degree = rng.choice(("line", "grid", "random")), rng.uniform(3.0, 6.0)
    if layout.kind == "drawn":
        layout = replace(layout, kind=kind, degree=degree)
    kind, speed_m_s = rng.choice(("none", "none", "waypoint")), rng.uniform(2.0, 15.0)
    if moves.kind == "drawn":
        moves = replace(moves, kind=kind, speed_m_s=speed_m_s)
    return replace(scenario, layout=layout, mobility=moves)


def places(scenario: Scenario, seed: int) -> list[Place]:
    """Where the nodes of a layout stand, by index; empty where each stands at its home."""
    count, layout = scenario.swarm.nodes, scenario.layout
    range_cm, spacing_cm = round(scenario.radio.range_m * 100), round(layout.spacing_m * 100)
    match layout.kind:
        case "line":
            return layouts.line(count, spacing_cm)
        case "grid":
            return layouts.grid(count, spacing_cm)
        case "random":
            rng = random.Random(derived_seed(seed, "layout"))
            return layouts.scattered(count, range_cm, layout.degree, rng)
        case "islands":
            return layouts.islands(count, spacing_cm, range_cm)
        case _:
            return []


def seeds_of(scenario: Scenario, seed: int, addresses: list[str]) -> list[list[str]]:
    """By index, whom each node is told to join."""
    stand, wanted = places(scenario, seed), scenario.swarm.seeds
    if not stand:
        return [addresses[:wanted]] * len(addresses)
    range_cm = round(scenario.radio.range_m * 100)

    def nearest(index: int) -> list[str]:
        east, north = stand[index]
        others = [
            ((stand[other][0] - east) ** 2 + (stand[other][1] - north) ** 2, other)
            for other in range(len(stand))
            if other != index and layouts.are_near(stand[index], stand[other], range_cm)
        ]
        return [addresses[other] for _, other in sorted(others)[:wanted]]

    return [nearest(index) for index in range(len(stand))]


def mobility(scenario: Scenario, stand: list[Place], choices: Choices, place: Callable[[int, Place], None]) -> Mobility:
    """How its nodes move.

    Args:
        scenario: Its `[mobility]`.
        stand: Where the nodes are.
        choices: All randomness.
        place: Told where a node is.
    """
    moves = scenario.mobility
    return Mobility(
        moves.kind,
        stand,
        round(scenario.radio.range_m * 100),
        round(moves.speed_m_s * 100),
        moves.period_s,
        moves.groups,
        moves.connected and moves.kind == "waypoint",
        choices,
        place,
    )


def link_trace(scenario: Scenario) -> Any:
    """Measured links, where the scenario names a file of them."""
    if not scenario.radio.trace:
        return None
    return read_link_trace(Path(scenario.folder) / scenario.radio.trace, scenario.swarm.nodes)


def make_site(scenario: Scenario, choices: Choices) -> Site:
    """The ground."""
    site = scenario.site
    faults_ppm, cell_cm = round(site.faults * MILLION), round(site.cell_m * 100)
    if site.kind == "farm":
        return farm_site(site.seed, site.tables, site.modules, faults_ppm, cell_cm)
    if site.kind == "file":
        return file_site(Path(scenario.folder) / site.file, faults_ppm, cell_cm, choices)
    return empty_site(_cm(site.extent_m))
