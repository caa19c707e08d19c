"""`swarmd bundle show MODEL`: what a bundle says of itself, and its operating points.

With `--false-per-1000 R` it shows the thresholds that `eye.false_alarms_per_1000 = R` would take.
"""

import argparse
from typing import TYPE_CHECKING, Any

from swarmd.cli.common import add_json, plain, print_json, print_table
from swarmd.errors import EyeError

if TYPE_CHECKING:
    from swarmd_models.bundle import Bundle


def add_show(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser("show", help="what a bundle says of itself: digest, labels, thresholds, curve")
    parser.add_argument("model", metavar="MODEL", help="a bundle (zoo:NAME, .toml)")
    parser.add_argument(
        "--false-per-1000", type=float, default=0.0, metavar="R", help="thresholds for so many false alarms"
    )
    add_json(parser)


def show(args: argparse.Namespace) -> int:
    """Print it; raises `EyeError` where the bundle cannot be read, or its curve does not reach the rate."""
    from swarmd_models.bundle import at_rate, load_bundle
    from swarmd_models.errors import ModelError

    try:
        bundle = load_bundle(args.model)
        chosen = at_rate(bundle, args.false_per_1000) if args.false_per_1000 > 0.0 else bundle
    except ModelError as error:
        raise EyeError(str(error)) from error
    if bundle.decoder in ("series", "ensemble"):
        return _show_blind(bundle, args)
    curve = bundle.curve
    # The labels of a language model are its vocabulary: no piece of text has a threshold.
    is_text = bundle.decoder == "text"
    thresholds = {} if is_text else {label: chosen.threshold_of(label) for label in bundle.labels}
    if args.json:
        points = None if curve is None else {"false_per_1000": curve.rates, "thresholds": dict(curve.thresholds)}
        print_json(
            {
                "name": bundle.name,
                "version": bundle.version,
                "digest": bundle.digest,
                "decoder": bundle.decoder,
                "input": [bundle.input.width, bundle.input.height, bundle.input.channels],
                "second_stage": bundle.second is not None,
                "thresholds": thresholds,
                "curve": points,
            }
        )
        return 0
    if is_text:
        print(f"{plain(bundle.name)} {plain(bundle.version)}: text, a vocabulary of {len(bundle.labels)} pieces")
        print(f"digest {bundle.digest}")
        return 0
    stages = "two stages" if bundle.second is not None else "one stage"
    size = f"{bundle.input.width} x {bundle.input.height} {bundle.input.channels}"
    print(f"{plain(bundle.name)} {plain(bundle.version)}: {bundle.decoder or 'read when it runs'}, {size}, {stages}")
    print(f"digest {bundle.digest}")
    rates = curve.rates if curve is not None else ()
    if not rates:
        print("no curve: eye.false_alarms_per_1000 cannot be set for it")
    own = "threshold" if not args.false_per_1000 else f"at {args.false_per_1000:g}"
    columns = ("label", own, *(f"{rate:g} in 1,000" for rate in rates))
    rows = [
        (label, f"{value:.5f}", *(f"{one:.5f}" for one in (curve.thresholds[label] if curve is not None else ())))
        for label, value in thresholds.items()
    ]
    print_table(columns, rows)
    return 0


def _show_blind(bundle: "Bundle", args: argparse.Namespace) -> int:
    """A model of series, or an ensemble: it has no thresholds."""
    ensemble, rule = bundle.ensemble, bundle.series
    told: dict[str, Any] = {"name": bundle.name, "version": bundle.version, "digest": bundle.digest,
                            "decoder": bundle.decoder, "labels": bundle.labels}  # fmt: skip
    if ensemble is not None:
        told |= {
            "lane": ensemble.lane, "router": ensemble.router.name, "least": ensemble.least,
            "experts": [{"name": e.bundle.name, "digest": e.bundle.digest, "when": e.when} for e in ensemble.experts],
        }  # fmt: skip
    else:
        told |= {"task": rule.task, "rate_hz": rule.rate_hz, "window": rule.window, "hop": rule.hop,
                 "channels": rule.channels, "features": rule.features, "unit": rule.unit}  # fmt: skip
    if args.json:
        print_json(told)
        return 0
    if ensemble is None:
        what = f"series, {rule.task}, {rule.window} samples at {rule.rate_hz:g} Hz, {rule.features}"
    else:
        what = f"an ensemble of {len(ensemble.experts)}, lane {ensemble.lane}, router {plain(ensemble.router.name)}"
    print(f"{plain(bundle.name)} {plain(bundle.version)}: {what}")
    print(f"digest {bundle.digest}")
    print("labels " + ", ".join(map(plain, bundle.labels)))
    if ensemble is not None:
        rows = ([e.bundle.name, " ".join(e.when) or "else", e.bundle.digest[:16]] for e in ensemble.experts)
        print_table(("expert", "when", "digest"), rows)
    return 0
