"""`swarmd fleet`: one question to all swarms of a region; missions, notes and agreements, signed by an operator."""

import argparse
import re
import sqlite3
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd.cli import neighbour_desk
from swarmd.cli.common import plain, print_json, print_table
from swarmd.cli.desk import add_passphrase, check_names, passphrases

if TYPE_CHECKING:
    from swarmd.federation.rows import ObjectQuery, ObjectsAnswer

_LIMIT_MAX = 1_000_000
"""Objects of one answer at most."""
_SINCE_MAX_S = 1e11
"""Three thousand years: whatever is longer ago is as long ago."""
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "fleet",
        help="ask a region for all its swarms",
        description="Answers say as of when they are true of each site, and name those that are stale.",
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="fleet_verb", metavar="VERB", required=True)
    objects = verbs.add_parser("objects", help="what all swarms have confirmed", allow_abbrev=False)
    sites = verbs.add_parser("sites", help="the swarms, and as of when they are known", allow_abbrev=False)
    for one in (objects, sites):
        one.add_argument("--region", type=Path, required=True, metavar="DIR", help="the region's folder")
        one.add_argument("--swarm", default="", metavar="NAME", help="of one swarm alone")
        one.add_argument("--json", action="store_true", help="print JSON")
    objects.add_argument("--label", default="", help="with this label alone")
    objects.add_argument("--since", default="", metavar="TIME", help="seen within this: 90s, 30m, 12h, 1d, 2w")
    objects.add_argument("--tier", default="", choices=["confirmed", "reviewed"], help="of this tier alone")
    objects.add_argument("--limit", type=int, default=10_000, metavar="N", help="at most (default: %(default)s)")
    objects.add_argument("--history", metavar="PLACE", help="ask what was exported to this folder or s3:// address")
    objects.add_argument(
        "--live", action="store_true", help="ask the gateways themselves, over Zenoh; who does not answer is stale"
    )
    objects.add_argument(
        "--path", action="append", default=[], metavar="ADDRESS", help="with --live: by this router, not region.toml's"
    )
    mission = verbs.add_parser("mission", help="sign which area a swarm shall survey", allow_abbrev=False)
    note = verbs.add_parser("note", help="sign words for a swarm", allow_abbrev=False)
    neighbour = verbs.add_parser("neighbour", help="sign an agreement with a swarm beside this one", allow_abbrev=False)
    neighbour_desk.add_arguments(neighbour)
    for one, out in ((mission, "fact, for region send"), (note, "fact, for region send"),
                     (neighbour, "agreement, for neighbours agree")):  # fmt: skip
        one.add_argument("name", metavar="NAME", help="of it; a later revision of the name replaces it")
        one.add_argument("--swarm", required=True, help="the own swarm's name")
        one.add_argument("--revision", type=int, default=1, metavar="N", help="one more than what it replaces")
        one.add_argument("--key", required=True, metavar="KEY", help="the operator's key file, or agent:NAME")
        one.add_argument("--out", type=Path, required=True, metavar="FILE", help=f"the signed {out}")
        add_passphrase(one)
    mission.add_argument("--area", type=Path, metavar="FILE", help="GeoJSON with one polygon; none withdraws it")
    mission.add_argument("--cell-m", type=float, default=20.0, metavar="M", help="side of its cells (%(default)s)")
    note.add_argument("text", nargs="?", default="", help="the words; none withdraws it")


def run(args: argparse.Namespace) -> int:
    """Ask, or sign."""
    if args.fleet_verb == "neighbour":
        return neighbour_desk.sign(args)
    return _sign(args) if args.fleet_verb in ("mission", "note") else _ask(args)


def seconds(text: str) -> float:
    """How long "12h" is.

    Raises:
        DaemonError: It is no time.

    >>> seconds("90s"), seconds("1d")
    (90.0, 86400.0)
    """
    from swarmd.errors import DaemonError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if found is None:
        raise DaemonError(f"{text!r} is no time; write 90s, 30m, 12h, 1d or 2w")
    return min(float(found[1]) * _UNITS_S[found[2]], _SINCE_MAX_S)


def _ask(args: argparse.Namespace) -> int:
    import msgspec

    from swarmd.errors import DaemonError
    from swarmd.federation.rows import ObjectQuery
    from swarmd.federation.settings import read_config
    from swarmd.federation.store import FILE_NAME, Store, candidates_of
    from swarmd.sqlite_files import in_words

    now_ms = round(time.time() * 1000)
    config = read_config(args.region)
    for option in ("swarm", "label"):
        try:
            getattr(args, option, "").encode()
        except UnicodeEncodeError:
            raise DaemonError(f"--{option} is no UTF-8; give it as swarmd fleet shows it") from None
    query = ObjectQuery(swarm=args.swarm, limit=1)
    if args.fleet_verb == "objects" and args.live and args.history is not None:
        raise DaemonError("--live asks what stands now and --history what was; give one of them")
    if args.fleet_verb == "objects" and args.path and not args.live:
        raise DaemonError("--path is a way to gateways, and the region's disk is asked; give --live too")
    if args.fleet_verb == "objects":
        since_ms = max(0, now_ms - round(1000 * seconds(args.since))) if args.since else 0
        if not 1 <= args.limit <= _LIMIT_MAX:
            raise DaemonError(f"--limit is {args.limit}; write 1 to {_LIMIT_MAX:,}")
        query = ObjectQuery(args.label, args.swarm, since_ms, 0, args.tier, args.limit)
    if not (args.region / FILE_NAME).exists():
        raise DaemonError(
            f"the region in {args.region} holds nothing yet: start it with swarmd region run {args.region}"
        )
    store = Store(args.region / FILE_NAME, is_reader=True)
    try:
        answer = store.objects(query, now_ms, round(config.stale_s * 1000))
        if args.fleet_verb == "objects" and args.history is not None:
            names = {site.key: site.swarm for site in answer.sites}
            # No key at all would ask for every swarm's.
            more = msgspec.structs.replace(query, limit=query.limit + 1)
            rows = _past(args.history, more, tuple(names)) if names else []
            told = tuple({**row, "name": names[row["swarm"]]} for row in rows[: query.limit])
            count = Counter(row["swarm"] for row in told)
            sites = tuple(msgspec.structs.replace(site, objects=count[site.key]) for site in answer.sites)
            answer = msgspec.structs.replace(answer, sites=sites, objects=told, is_cut=len(rows) > query.limit)
        if args.fleet_verb == "objects" and args.live:
            from swarmd.federation.live import ask_gateways

            over = msgspec.structs.replace(config, paths=tuple(args.path) or config.paths)
            answer = ask_gateways(
                args.region,
                over,
                store,
                query,
                answer,
                say=lambda text: print(f"swarmd fleet: {text}", file=sys.stderr),
            )
        waits = candidates_of(store, args.swarm) if args.fleet_verb == "objects" and not answer.objects else 0
    except sqlite3.Error as error:
        raise DaemonError(f"the region's file {in_words(args.region / FILE_NAME, error)}") from error
    finally:
        store.close()
    if args.swarm and not answer.sites:
        known = ", ".join(one.name for one in config.swarm) or "none"
        raise DaemonError(f"the region pins no swarm {args.swarm!r}; it pins {known}")
    if args.json:
        shown = msgspec.to_builtins(answer)
        print_json(shown if args.fleet_verb == "objects" else {"sites": shown["sites"]})
        return 0
    if args.fleet_verb == "objects":
        print_table(
            ("site", "object", "label", "score", "tier", "latitude", "longitude", "seen"),
            [_object_row(row, now_ms) for row in answer.objects],
        )
    else:
        print_table(
            ("site", "as of", "gateways", "waiting", "dropped"),
            [(one.swarm, _ago(one.as_of_ms, now_ms), one.gateways, one.waiting, one.dropped) for one in answer.sites],
        )
    for site in answer.sites:
        if site.stale:
            known = "never heard" if site.as_of_ms is None else f"last known {_ago(site.as_of_ms, now_ms)}"
            print(f"STALE: {site.swarm} was {known}", file=sys.stderr)
    if args.fleet_verb == "objects":
        _tell_missing(answer, waits, args.limit)
    return 0


def _tell_missing(answer: "ObjectsAnswer", waits: int, limit: int) -> None:
    """What an answer lacks, and why."""
    if waits:
        print(
            f"{waits} are not shown: fewer nodes saw them than confirm_observers of region.toml says", file=sys.stderr
        )
    if any(row["latitude_deg"] is None and row["east_m"] is not None for row in answer.objects):
        print("where no latitude stands the site's gateways know no origin: give them node.origin", file=sys.stderr)
    if answer.is_cut:
        print(f"there are more than {limit}; --limit N shows more", file=sys.stderr)


def _past(place: str, query: "ObjectQuery", keys: tuple[str, ...]) -> list[dict[str, Any]]:
    from swarmd.federation.asking import ask
    from swarmd.federation.stored import ask_stored, is_address, stored

    return ask_stored(stored(place), query, keys) if is_address(place) else ask(Path(place), query, keys)


def _object_row(row: dict[str, Any], now_ms: int) -> tuple[object, ...]:
    latitude, longitude = row["latitude_deg"], row["longitude_deg"]
    place = ("", "") if latitude is None else (f"{latitude:.7f}", f"{longitude:.7f}")
    score = f"{row['score']:.2f}"
    return (row["name"], row["object"], plain(row["label"]), score, row["tier"], *place, _ago(row["last_ms"], now_ms))


def _ago(at_ms: int | None, now_ms: int) -> str:
    """How long ago, for people.

    >>> _ago(None, 0), _ago(0, 5_000), _ago(0, 90 * 60_000)
    ('never', '5 s ago', '90 min ago')
    """
    if at_ms is None:
        return "never"
    ago_s = max(0, (now_ms - at_ms) // 1000)
    for limit_s, unit_s, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if ago_s < limit_s:
            return f"{ago_s // unit_s} {unit} ago"
    return f"{ago_s // 86_400} days ago"


def _sign(args: argparse.Namespace) -> int:
    from swarmd.errors import DaemonError
    from swarmd.identity.files import write_named_file
    from swarmd.identity.signers import open_signer
    from swarmd_protocols.federation.facts import (
        CELL_MAX_CM,
        CELL_MIN_CM,
        TEXT_MAX_BYTES,
        Fact,
        encode_fact,
        message_of,
        seal_fact,
    )
    from swarmd_protocols.state.crdt.reviews import BY_MAX_CHARS, REVISION_MAX

    signer = open_signer(args.key, passphrases(args))
    if signer.role not in ("", "operator"):
        raise DaemonError(f"{args.key} is a key of the role {signer.role}; this takes one of the role operator")
    is_mission = args.fleet_verb == "mission"
    check_names(args.name, args.swarm)
    if not is_mission and len(args.text.encode("utf-8", "surrogateescape")) > TEXT_MAX_BYTES:
        raise DaemonError(f"the words take more than {TEXT_MAX_BYTES} bytes; write fewer")
    corners = _corners(args.area) if is_mission and args.area is not None else ()
    cell_m = args.cell_m if corners else 0.0
    if corners and not CELL_MIN_CM <= cell_m * 100 <= CELL_MAX_CM:
        raise DaemonError(f"--cell-m is {cell_m}; write {CELL_MIN_CM // 100} to {CELL_MAX_CM // 100:,}")
    if not 1 <= args.revision <= REVISION_MAX:
        raise DaemonError(f"--revision is {args.revision}; write 1 to {REVISION_MAX:,}")
    made = Fact(
        args.swarm,
        args.fleet_verb,
        args.name,
        args.revision,
        time.time_ns() // 1_000_000,
        signer.half.name[:BY_MAX_CHARS],
        "" if is_mission else args.text,
        corners,
        round(cell_m * 100),
    )
    payload = encode_fact(made)
    write_named_file(args.out, seal_fact(payload, signer.half.public, signer.sign(message_of(payload))))
    print(f"{args.out}: the {made.kind} {made.name} for {made.swarm}, revision {made.revision}, by {signer.half.name}")
    return 0


def _corners(path: Path) -> tuple[tuple[int, int], ...]:
    from swarmd_models.geo.survey import outline

    corners = [(round(latitude * 1e7), round(longitude * 1e7)) for longitude, latitude in outline(path)]
    return tuple(corners[:-1] if len(corners) > 1 and corners[0] == corners[-1] else corners)
