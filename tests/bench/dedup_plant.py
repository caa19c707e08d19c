"""The dedup table of docs/protocols/dedup.md: a real plant's geometry, drones with position errors, what is left.

For each share of faulty modules, position error and rule: objects, duplicates left (objects beyond one for a fault) and
distinct faults lost (faults without an object of their own). Three drones pass every table once; the error of a pass is
common to all its frames (that is how GPS errs), plus 5 cm for each report.

    python -m tests.bench.dedup_plant [--json] [--seeds N]        needs ../shared/data/site
"""

import argparse
import csv
import gzip
import json
import random
import sys
from collections import Counter
from pathlib import Path

from swarmd_models.geo.sitemap import Asset, SiteMap
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.own import OwnSightings
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.observations import LocalDetection

SITE = Path(__file__).resolve().parents[3] / "shared" / "data" / "site" / "pampa_panels.csv.gz"
DRONES = 3
OWN_ERROR_M = 0.05
TABLES = 200
SURE = 0.95
"""How sure the site map must be to name an asset."""


def plant() -> list[tuple[str, str, float, float, float, float]]:
    """(table, asset, east, north, width, height) of the first tables of the plant, in order."""
    with gzip.open(SITE, "rt") as packed:
        rows = list(csv.DictReader(packed))
    out = []
    tables: dict[str, None] = {}
    for row in rows:
        table = f"{row['zone']}/{row['table']}"
        tables.setdefault(table, None)
        if len(tables) > TABLES:
            break
        asset = f"{table}/{row['panel']}"
        numbers = [float(row[name]) for name in ("east_m", "north_m", "width_m", "height_m")]
        out.append((table, asset, *numbers))
    return out  # type: ignore[return-value]


def survey(
    modules: list[tuple[str, str, float, float, float, float]],
    share: float,
    error_m: float,
    config: DedupConfig,
    site: SiteMap | None,
    seed: int,
) -> dict[str, float]:
    """Fly, share, decide, count."""
    rng = random.Random(seed)
    faults = [module for module in modules if rng.random() < share]
    by_table: dict[str, list[int]] = {}
    for index, module in enumerate(faults):
        by_table.setdefault(module[0], []).append(index)
    view = DedupView(config)
    drones = [NodeId(bytes([n]) * 16) for n in range(DRONES)]
    owns = [OwnSightings(node, config, view) for node in drones]
    truth: dict[object, Counter[int]] = {}
    now = dot = 0
    for table in sorted(by_table):
        for drone, own in zip(drones, owns, strict=True):
            bias = (rng.gauss(0, error_m), rng.gauss(0, error_m))
            ours = sorted(by_table[table], key=lambda index: faults[index][3])
            low, high = faults[ours[0]][3], faults[ours[-1]][3]
            at = low - 5.0
            while at < high + 5.0:
                now += 500_000_000
                frame = [i for i in ours if abs(faults[i][3] - at) <= 5.0]
                seen = [_report(faults[i], i, bias, error_m, site, rng, now) for i in frame]
                changed = own.observe(seen, 1, lambda ns: (ns // 1_000_000) << 16)
                for i in frame:
                    key = own.key_of(i)
                    truth.setdefault((drone, key), Counter())[i] += 1
                rows, joins = own.to_say(changed, frozenset())
                for row in rows:
                    dot += 1
                    view.put(drone, row, (1, dot))
                view.settle()
                for join in joins:
                    for fault, times in truth[drone, own_key(own, join)].items():
                        truth.setdefault((join.origin, join.key), Counter())[fault] += times
                at += 2.5
    owners = Counter()
    for leader in view.leaders():
        votes: Counter[int] = Counter()
        for member in leader.members or ():
            votes.update(truth.get((member.origin, member.row.key), Counter()))
        owners[votes.most_common(1)[0][0]] += 1
    objects = len(view.leaders())
    return {
        "faults": len(faults),
        "objects": objects,
        "duplicates": sum(count - 1 for count in owners.values()),
        "lost": len(faults) - len(owners),
    }


def own_key(own: OwnSightings, join: object) -> object:
    """The register that a join stands for."""
    return next(key for key, register in own.registers.items() if register.joined is join)


def _report(
    module: tuple[str, str, float, float, float, float],
    track: int,
    bias: tuple[float, float],
    error_m: float,
    site: SiteMap | None,
    rng: random.Random,
    now: int,
) -> LocalDetection:
    east = module[2] + bias[0] + rng.gauss(0, OWN_ERROR_M)
    north = module[3] + bias[1] + rng.gauss(0, OWN_ERROR_M)
    variance = error_m**2 + OWN_ERROR_M**2
    asset = "" if site is None else site.asset_of(east, north, (variance, 0.0, variance), SURE)
    square = round(variance * 10_000)
    return LocalDetection(
        "new", track, "fault", 800, round(east * 100), round(north * 100), (square, 0, square), asset, False, now, b""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if not SITE.exists():
        sys.exit("../shared/data/site is absent: this table needs the real plant's geometry")
    modules = plant()
    site = SiteMap([Asset(asset, east, north, width, height) for _, asset, east, north, width, height in modules])
    rules = {
        "5 m alone": (DedupConfig(use_covariance=False, beside_min_cm=10**6), None),
        "5 m and same frame": (DedupConfig(use_covariance=False), None),
        "covariance": (DedupConfig(beside_min_cm=10**6), None),
        "covariance and same frame (default)": (DedupConfig(), None),
        "site map": (DedupConfig(), site),
    }
    table = []
    for share in (0.02, 0.085):
        for error_m in (0.05, 0.1, 0.2, 0.3, 1.5, 3.0):
            for name, (config, sites) in rules.items():
                totals = Counter()
                for seed in range(arguments.seeds):
                    totals.update(survey(modules, share, error_m, config, sites, seed))
                table.append({"share": share, "error_m": error_m, "rule": name, **totals})
    if arguments.json:
        print(json.dumps(table, indent=1))
        return
    print("| faulty | error | rule | faults | objects | duplicates left | distinct faults lost |")
    print("|---:|---:|---|---:|---:|---:|---:|")
    for row in table:
        print(
            f"| {row['share']:.1%} | {row['error_m']} m | {row['rule']} | {row['faults']} | {row['objects']} "
            f"| {row['duplicates']} | {row['lost']} |"
        )


if __name__ == "__main__":
    main()
