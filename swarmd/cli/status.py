"""`swarmd status`: what the daemon does right now."""

import argparse

from swarmd.cli.common import add_read_flags, ask, print_json


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    add_read_flags(subparsers.add_parser("status", help="what the daemon does right now"))


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    status = ask(args, "status")
    if args.json:
        print_json(status)
        return 0
    states = ", ".join(f"{name} {state}" for name, state in status["members"].items())
    print(f"{status['node']} of swarm {status['swarm']}, up {status['uptime_s']:.0f} s, swarmd {status['version']}")
    for alert in status["alerts"]:
        word = "PROBLEM" if alert["level"] == "error" else "ALERT"
        about = f" {alert['subject']}" if alert["subject"] else ""
        print(f"  {word:11} {alert['code']}{about}: {alert['text']}, since {alert['since']}")
        print(f"              {alert['remedy']}")
        if seen := alert.get("acknowledged"):
            note = f": {seen['note']}" if seen["note"] else ""
            print(f"              seen by {seen['by']}, {seen['at']}{note}")
    print(f"  members     {states}")
    if status["partial"]:
        print(f"              neighbours only (partial view); about {status['estimated_members']} members in all")
    if status["mesh"]:
        print("              over several radio hops (mesh view)")
    print(f"  knows       {status['objects']} objects, {status['detections']} detections, digest {status['digest']}")
    eye = status["eye"]
    if eye is not None:
        model = status["model"] or "no model yet"
        print(f"  eye         {eye['state']}, {model}, {status['fps']:.1f} fps, {eye['frames']} frames")
        if eye["problem"]:
            print(f"              {eye['problem']}")
    pilot = status["autopilot"]
    if pilot is not None:
        fix = {None: "no position yet", True: "fix", False: "no fix"}[pilot["fix"]]
        if pilot["heard_s"] is None:
            print(f"  autopilot   not heard yet on {pilot['connection']}")
        else:
            heard = f"system {pilot['system_id']} on {pilot['connection']}, heard {pilot['heard_s']:.0f} s ago"
            print(f"  autopilot   {heard}, {fix}, mode {pilot['mode']}")
    served = status["inference"]
    if served is not None:
        models = ", ".join(sorted(served["models"])) or "no model yet"
        print(f"  inference   {served['address'] or 'not served yet'}, {models}, {served['answered']} answered")
        if served["problem"]:
            print(f"              {served['problem']}")
    lending = status.get("lending")
    if lending is not None:
        offers = ", ".join(f"{name} ({len(digests)})" for name, digests in sorted(lending["lenders"].items()))
        print(f"  lenders     {offers or 'nobody lends'}")
        for name, key in sorted(lending.get("left_out", {}).items()):
            print(f"              {name} lends, and is left out by {key}")
    gateway = status.get("gateway")
    if gateway:
        heard = "the region answers by" if gateway["works"] else "the region does not answer by"
        waits = f"{gateway['waiting']} rows wait, {gateway['dropped']} were dropped, {gateway['refused']} refused"
        print(f"  gateway     {heard} {gateway['path']}, {waits}")
        for path, problem in gateway.get("paths", {}).items():
            if problem:
                print(f"              {problem if path in problem else f'{path}: {problem}'}")
    for one in status.get("neighbours", ()):
        what = f"{one['positions']} positions, {one['claims']} claims"
        spent = f", {one['spent_cells']} cells kept too long" if one["spent_cells"] else ""
        print(f"  neighbour   {one['name']} ({one['swarm']}): {one['state']}, {what}{spent}")
    for plugin in status.get("plugins", ()):
        runs = f"process {plugin['pid']}" if plugin["pid"] else "not running"
        print(f"  plug-in     {plugin['name']} of {plugin['package']}, {runs}, started {plugin['starts']} times")
        if plugin["problem"]:
            print(f"              {plugin['problem']}")
    print(f"  address     {status['address']}, control {status['control']}, http {status['http'] or 'off'}")
    return 0
