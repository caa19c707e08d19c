"""`swarmd region`: the place above many swarms: its key, the swarms it lets in, its process, what it sends down."""

import argparse
import asyncio
import contextlib
import signal
import sqlite3
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "region",
        help="hear the gateways of many swarms",
        description="A region hears the gateways of the swarms that its operators have pinned, keeps what holds, and "
        "answers swarmd fleet. See docs/federation.md.",
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="region_verb", metavar="VERB", required=True)
    init = verbs.add_parser("init", help="make the folder with a fresh key", allow_abbrev=False)
    show = verbs.add_parser("show", help="the public key, for federation.region_key of gateways", allow_abbrev=False)
    pin = verbs.add_parser("pin", help="let a swarm in", allow_abbrev=False)
    run_ = verbs.add_parser("run", help="hear, keep and answer until SIGTERM or Ctrl-C", allow_abbrev=False)
    send = verbs.add_parser("send", help="have signed statements, bundles or facts for a swarm", allow_abbrev=False)
    export = verbs.add_parser("export", help="write what was heard as Parquet (swarmd[parquet])", allow_abbrev=False)
    router = verbs.add_parser("router", help="carry frames, as zenohd does (swarmd[zenoh])", allow_abbrev=False)
    router.add_argument(
        "address", metavar="ADDRESS", help="where it listens: zenoh://?listen=HOST:PORT; zenoh://OTHER?… links it"
    )
    router.add_argument("--prefix", default="swarm-fed/1", help="what it carries (default: %(default)s)")
    for name in ("ca", "cert", "key"):
        router.add_argument(f"--{name}-file", default="", metavar="FILE", help="PEM, for zenohs://")
    for one in (init, show, pin, run_, send, export):
        one.add_argument("folder", type=Path, metavar="DIR", help="the region's folder")
    export.add_argument("to", metavar="PLACE", help="where the partitions lie: a folder, or an s3:// address")
    pin.add_argument("name", metavar="NAME", help="what the swarm is called here")
    root = pin.add_mutually_exclusive_group(required=True)
    root.add_argument("--root", type=Path, metavar="FILE", help="the first root of its fleet: FLEET/roots/0001.root")
    root.add_argument("--dev-fleet", type=Path, metavar="DIR", help="of a throw-away development fleet")
    pin.add_argument("--swarm", metavar="SWARM", help="its own name (default: NAME)")
    pin.add_argument("--quota-kib-s", type=int, default=128, metavar="N", help="what it may say (default: %(default)s)")
    run_.add_argument(
        "--path", action="append", default=[], metavar="URL", help="a broker or router, instead of those configured"
    )
    send.add_argument("name", metavar="SWARM", help="as it is called here")
    send.add_argument(
        "what", nargs="+", type=Path, metavar="FILE", help="a signed statement or fact, or a publication's folder"
    )
    send.add_argument(
        "--source", action="append", default=[], metavar="URL", help="where gateways fetch the folder's files"
    )


def run(args: argparse.Namespace) -> int:
    """Do one of them."""
    handlers = {
        "init": _init,
        "show": _show,
        "pin": _pin,
        "run": _run,
        "send": _send,
        "export": _export,
        "router": _router,
    }
    return handlers[args.region_verb](args)


def _init(args: argparse.Namespace) -> int:
    from swarmd.federation.settings import make_region
    from swarmd_protocols.crypto import NaClCrypto

    print(NaClCrypto().public_key(make_region(args.folder)).hex())
    print(f"next: swarmd region pin {args.folder} NAME --root FLEET/roots/0001.root", file=sys.stderr)
    return 0


def _show(args: argparse.Namespace) -> int:
    from swarmd.federation.settings import read_seed
    from swarmd_protocols.crypto import NaClCrypto

    print(NaClCrypto().public_key(read_seed(args.folder)).hex())
    return 0


def _pin(args: argparse.Namespace) -> int:
    from swarmd.errors import ConfigError
    from swarmd.federation.settings import SwarmEntry, add_pin
    from swarmd.identity.files import DEV_SWARM, dev_fleet_secret
    from swarmd_protocols.crypto import NaClCrypto
    from swarmd_protocols.trust.identity import dev_root

    if args.dev_fleet is not None:
        root, swarm = dev_root(dev_fleet_secret(args.dev_fleet), NaClCrypto()), args.swarm or DEV_SWARM
    else:
        try:
            root, swarm = args.root.read_bytes(), args.swarm or args.name
        except OSError as error:
            raise ConfigError(
                f"{args.root}: {error.strerror}; give the fleet's first root, such as FLEET/roots/0001.root"
            ) from error
    add_pin(args.folder, SwarmEntry(args.name, swarm, args.quota_kib_s), root)
    print(f"{args.name}: the swarm {swarm} is let in; a region that runs has to be started again")
    return 0


def _run(args: argparse.Namespace) -> int:
    from swarmd.errors import ConfigError
    from swarmd.federation.pipes import check_paths, pipe_maker
    from swarmd.federation.region import Region
    from swarmd.federation.settings import alone_with, read_config, read_pins, read_seed
    from swarmd.federation.store import FILE_NAME, Store
    from swarmd.sqlite_files import in_words
    from swarmd_protocols.crypto import NaClCrypto

    config = read_config(args.folder)
    named = args.path or list(config.paths)
    if not named:
        raise ConfigError(
            f'{args.folder}/region.toml names no path: paths = ["mqtt://HOST:1883"], or ["zenoh://HOST:7447"]'
        )
    tls = _tls(config)
    paths = check_paths(named, tls)
    pins, seed = read_pins(args.folder, config), read_seed(args.folder)

    def say(text: str) -> None:
        print(f"swarmd region: {text}", file=sys.stderr, flush=True)

    async def live(store: Store) -> None:
        made = pipe_maker(tls, config.prefix)
        try:
            region = Region(pins, seed, NaClCrypto(), store, paths, config.prefix, made, say)
        except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
            # What it keeps is all that there is of some swarms: it is not moved aside by itself.
            raise ConfigError(f"the region's file {in_words(args.folder / FILE_NAME, error)}") from error
        print(f"swarmd region: {_count(len(pins), 'swarm')}, {_count(len(paths), 'path')}", flush=True)
        await _until_signal(region.run())

    with alone_with(args.folder), contextlib.closing(Store(args.folder / FILE_NAME)) as store:
        asyncio.run(live(store))
    return 0


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _router(args: argparse.Namespace) -> int:
    from swarmd.config.bridges import fed_prefix_problem
    from swarmd.errors import ConfigError
    from swarmd.federation.uplink_zenoh import ZenohUplink, read_address

    address = read_address(args.address)
    if not address.listen:
        raise ConfigError(f"{args.address} listens nowhere: zenoh://?listen=0.0.0.0:7447")

    if problem := fed_prefix_problem(args.prefix):
        raise ConfigError(f"--prefix {problem}")

    async def live() -> None:
        one = ZenohUplink(args.address, address, (), lambda place, frame: None, args.prefix.strip("/"), _tls(args))
        running = asyncio.ensure_future(_until_signal(one.run()))
        told, is_told = one.problem, False
        while not running.done():
            if one.is_open and not is_told:
                is_told = True
                print(f"swarmd region: a router at {', '.join(address.listen)}", flush=True)
            if one.problem not in ("", told):
                told = one.problem
                print(f"swarmd region: {told}", file=sys.stderr, flush=True)
            await asyncio.wait([running], timeout=1.0 if is_told else 0.05)

    asyncio.run(live())
    return 0


async def _until_signal(work: "Coroutine[Any, Any, None]") -> None:
    """Until SIGTERM or Ctrl-C."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _tls(config: Any) -> Any:
    from swarmd.config.bridges import MqttConfig

    return MqttConfig(
        ca_file=config.ca_file,
        cert_file=config.cert_file,
        key_file=config.key_file,
        password_file=getattr(config, "password_file", ""),
    )


def _send(args: argparse.Namespace) -> int:
    from swarmd.errors import ConfigError
    from swarmd.federation.settings import read_config, read_pins
    from swarmd.federation.store import FILE_NAME, Store
    from swarmd.sqlite_files import in_words

    config = read_config(args.folder)
    found = [pin for pin in read_pins(args.folder, config) if pin.name == args.name]
    if not found:
        names = ", ".join(entry.name for entry in config.swarm) or "none"
        raise ConfigError(f"no swarm is called {args.name!r} here; there are: {names}; pin it first: swarmd region pin")
    store = Store(args.folder / FILE_NAME)
    try:
        for path in args.what:
            for kind, key, body, words in _rows(path, args.source):
                remark = _look_at(store, found[0], path, kind, key, body)
                store.send_down(found[0].key.hex(), kind, key, body)
                print(f"{args.name}: {words}")
                if remark:
                    print(f"{path}: {remark}", file=sys.stderr)
    except sqlite3.Error as error:
        raise ConfigError(f"the region's file {in_words(args.folder / FILE_NAME, error)}") from error
    finally:
        store.close()
    return 0


def _look_at(store: Any, pin: Any, path: Path, kind: int, key: bytes, body: bytes) -> str:
    """What a swarm would pass over is refused here; a remark on what it may.

    An older fact would also take the place of the newer one, which a gateway that has neither would never hear of.
    """
    from swarmd.errors import ConfigError
    from swarmd.federation.store import held_down
    from swarmd_protocols.crypto import NaClCrypto
    from swarmd_protocols.federation.facts import open_fact
    from swarmd_protocols.federation.gate import Gate
    from swarmd_protocols.federation.wire import FactKind
    from swarmd_protocols.state.reviews import operators_of

    if kind == FactKind.STATEMENT and _is_another_first(body, pin.root):
        raise ConfigError(f"{path} is the first root of another fleet than {pin.name} is pinned by")
    if kind != FactKind.FACT:
        return ""
    crypto, said = NaClCrypto(), open_fact(body)
    if said.fact.swarm != pin.swarm:
        raise ConfigError(
            f"{path} is for the swarm {said.fact.swarm}, and {pin.name} is the swarm {pin.swarm}: sign it with "
            f"--swarm {pin.swarm}"
        )
    swarm = pin.key.hex()
    operators = operators_of(Gate(pin, bytes(32), crypto, store.trust(swarm)).trust.chain)
    held = held_down(store, swarm, kind, key)
    # What no operator signed, as far as is known here, keeps nothing out.
    if held and said.order < (other := open_fact(held)).order and other.holds(pin.swarm, operators, crypto.verify):
        revision = other.fact.revision
        raise ConfigError(
            f"{pin.name} is sent revision {revision} of the {other.fact.kind} {other.fact.name} already, and this is "
            f"revision {said.fact.revision}: sign it again with --revision {revision + 1}"
        )
    if said.public in operators:
        return ""
    return "no operator of this fleet who is known here has signed it; it counts once a root names who has"


def _is_another_first(statement: bytes, pinned: bytes) -> bool:
    from swarmd_protocols.crypto import NaClCrypto
    from swarmd_protocols.errors import ProtocolError
    from swarmd_protocols.trust.envelopes import decode_envelope
    from swarmd_protocols.trust.roots import RootChain

    envelope = decode_envelope(statement)
    try:
        is_first = envelope.kind == "root" and RootChain.trust(statement, NaClCrypto()).current.version == 1
    except ProtocolError:
        return False
    return is_first and envelope.digest != decode_envelope(pinned).digest


def _export(args: argparse.Namespace) -> int:
    from swarmd.errors import DaemonError
    from swarmd.federation.history import export
    from swarmd.federation.settings import exporting, read_config
    from swarmd.federation.store import FILE_NAME, Store
    from swarmd.federation.stored import is_address, stored, write_stored
    from swarmd.sqlite_files import in_words

    read_config(args.folder)
    with exporting(args.folder):
        store = Store(args.folder / FILE_NAME)
        try:
            place = stored(args.to) if is_address(args.to) else None
            folder = Path(args.to) if place is None else place.folder
            write = partial(write_stored, place) if place is not None and folder is None else None
            words, name = export(store, folder or Path(), write), args.to.partition("?")[0]
            print(f"{words} words are in {name}" if words else "no word has come since the last export")
        except sqlite3.Error as error:
            raise DaemonError(f"the region's file {in_words(args.folder / FILE_NAME, error)}") from error
        finally:
            store.close()
    return 0


def _rows(path: Path, sources: list[str]) -> list[tuple[int, bytes, bytes, str]]:
    """(kind, key, body, words) of what lies at a path."""
    from swarmd.errors import ConfigError
    from swarmd.release.author import read_publication
    from swarmd_protocols.errors import ProtocolError
    from swarmd_protocols.federation.facts import open_fact
    from swarmd_protocols.federation.wire import BundleRow, FactKind, encode_row, read_bundle
    from swarmd_protocols.trust.envelopes import decode_envelope

    if path.is_dir():
        publication = read_publication(path)
        row = BundleRow(publication.digest, tuple(sources or [str(path.resolve())]))
        try:
            read_bundle(encode_row(row))
        except (ProtocolError, UnicodeEncodeError) as error:
            # No gateway would read it, nor the frames that it is in.
            raise ConfigError(
                f"these are no places that gateways can be told of: {error}; give --source 1 to 8 times, each of at "
                "most 512 characters"
            ) from error
        words = f"the release {publication.release.model} {publication.release.version} from {', '.join(row.sources)}"
        return [(FactKind.BUNDLE, publication.digest, encode_row(row), words)]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give what `swarmd region send --help` names") from error
    try:
        envelope = decode_envelope(data)
        return [(FactKind.STATEMENT, envelope.digest, data, f"a {envelope.kind} statement")]
    except ProtocolError:
        pass
    try:
        fact = open_fact(data).fact
    except ProtocolError as error:
        raise ConfigError(
            f"{path} is neither a signed statement nor a signed fact: {error}; sign one by swarmd fleet note or "
            "swarmd fleet mission, or give a release's folder"
        ) from error
    return [(FactKind.FACT, fact.name.encode(), data, f"the {fact.kind} {fact.name}, revision {fact.revision}")]
