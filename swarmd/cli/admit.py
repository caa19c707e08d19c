"""`swarmd keys token|admit|sign-request`: devices that make their own keys are let in, over the network or by file."""

import argparse
import asyncio
import contextlib
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd.cli.common import add_json, print_json, print_table
from swarmd.cli.desk import add_passphrase, check_free, chosen_swarm, passphrases
from swarmd.errors import DaemonError

if TYPE_CHECKING:
    from swarmd.identity.admission import Desk

DEFAULT_PORT = 7990
"""TCP port on which a desk listens; not registered for anything else at IANA."""
CLIENTS_MAX = 64
"""Clients that have not brought their question yet. One more, and of the host that has most of them the first is hung
up on: who only connects keeps no device out, unless it brings so many more within the device's round trip."""
EXCHANGE_S = 10.0
"""Seconds for a question and its answer: some kilobytes over a slow link; whoever is slower is hung up on."""


def add_verbs(verbs: Any) -> None:
    """Add the verbs to those of `keys`."""
    text = "a join token for one device: swarmd enrol takes it there"
    token = verbs.add_parser("token", help=text, description=text)
    token.add_argument("fleet", type=Path, metavar="FLEET", help="the fleet's folder")
    token.add_argument("node", metavar="NODE", help="the name that the device gets")
    token.add_argument("--swarm", help="the swarm it joins (default: the fleet's only one)")
    token.add_argument("--at", action="append", default=[], metavar="HOST:PORT", help="where `keys admit` will listen")
    token.add_argument("--minutes", type=int, default=60, metavar="N", help="how long it is taken (default 60)")
    token.add_argument("--role", action="append", default=[], help="what the certificate allows besides membership")
    token.add_argument("--replace", action="store_true", help="the name is enrolled: its old key is to be void")
    token.add_argument("-o", "--out", type=Path, metavar="FILE", help="a new file, 0600 (default: standard output)")
    text = "join tokens that were made: whose, until when, who used them"
    tokens = verbs.add_parser("tokens", help=text, description=text)
    tokens.add_argument("fleet", type=Path, metavar="FLEET", help="the fleet's folder")
    tokens.add_argument("--take-back", action="append", default=[], metavar="NODE", help="its tokens count no more")
    add_json(tokens)
    text = "listen for devices with join tokens, and let them in"
    admit = verbs.add_parser("admit", help=text, description=text)
    admit.add_argument("fleet", type=Path, metavar="FLEET", help="the fleet's folder")
    admit.add_argument("--listen", default=f"0.0.0.0:{DEFAULT_PORT}", metavar="IP:PORT", help="(default %(default)s)")
    admit.add_argument("--count", type=int, default=0, metavar="N", help="end after so many devices (default: Ctrl-C)")
    admit.add_argument(
        "--key", action="append", default=[], help="an enrol key that signs; without enough, requests wait in pending/"
    )
    add_passphrase(admit)
    text = "let a device in by its request file, where the enrol keys are at this desk"
    sign = verbs.add_parser("sign-request", help=text, description=text)
    sign.add_argument("fleet", type=Path, metavar="FLEET", help="the fleet's folder")
    sign.add_argument("request", type=Path, metavar="REQUEST", help="from `swarmd enrol --request`")
    sign.add_argument("--swarm", help="the swarm it joins (default: the fleet's only one)")
    sign.add_argument("--out", required=True, type=Path, metavar="DIR", help="where NODE.enrolment is written, 0600")
    sign.add_argument("--role", action="append", default=[], help="what the certificate allows besides membership")
    sign.add_argument("--replace", action="store_true", help="the name is enrolled: its old key is to be void")
    sign.add_argument("--key", action="append", default=[], type=Path, metavar="FILE", help="an enrol key")
    add_passphrase(sign)


def run_token(args: argparse.Namespace) -> int:
    """`keys token`."""
    import sys

    from swarmd.config.loading import is_host_port
    from swarmd.identity.files import write_secret_file
    from swarmd.identity.fleet import Fleet
    from swarmd.identity.join_tokens import make_token
    from swarmd.identity.names import check_name

    check_name(args.node, "a node")
    for address in args.at:
        if not is_host_port(address):
            raise DaemonError(f"--at {address[:80]!r}: write it as HOST:PORT, such as 10.0.0.5:{DEFAULT_PORT}")
    if args.out is not None and args.out.exists():
        raise DaemonError(f"{args.out} exists already; nothing was written")
    fleet = Fleet(args.fleet)
    if fleet.is_dev:
        raise DaemonError(f"{args.fleet} is a development fleet; its nodes enrol themselves by --dev-fleet")
    swarm = chosen_swarm(fleet, args.swarm)
    if not fleet.trust_of(swarm).group_keys:
        raise DaemonError(f"swarm {swarm} has no group key; make one first: swarmd keys prepare group-key --first")
    with contextlib.redirect_stdout(sys.stderr):
        check_free(fleet, swarm, args.node, replace=args.replace)
    token = make_token(
        fleet, swarm, args.node, args.at, roles=args.role, life_s=args.minutes * 60, replace=args.replace
    )
    if args.out is not None:
        write_secret_file(args.out, f"{token.text}\n".encode("ascii"))
    else:
        print(token.text)
    where = ", ".join(args.at) or "HOST:PORT, to be given on the device with --at"
    said = (
        f"a secret for one device, which is {args.node} of swarm {swarm} if it comes within {args.minutes} minutes",
        f"here: swarmd keys admit {args.fleet}; the device asks {where}",
        "there: swarmd enrol --identity DIR, and paste it",
    )
    print("\n".join(said), file=sys.stderr)
    return 0


def run_tokens(args: argparse.Namespace) -> int:
    """`keys tokens`."""
    from swarmd.identity.fleet import Fleet
    from swarmd.identity.join_tokens import kept_tokens, take_back
    from swarmd.identity.names import check_known
    from swarmd.identity.officers import PublicHalf

    folder = Fleet(args.fleet).folder
    for name in args.take_back:
        check_known(name, {kept.name for kept in kept_tokens(folder)}, "token for a node")
        take_back(folder, name)
    rows = []
    for kept in kept_tokens(folder):
        used = PublicHalf(bytes.fromhex(kept.public), kept.name).fingerprint if kept.public else ""
        left_s = kept.expires_s - int(time.time())
        state = "used" if used else "open" if left_s > 0 else "over"
        rows.append({"node": kept.name, "swarm": kept.swarm, "state": state, "minutes": left_s // 60, "key": used})
    if args.json:
        print_json({"tokens": rows})
        return 0
    cells = [[row[name] for name in ("node", "swarm", "state", "minutes", "key")] for row in rows]
    print_table(("node", "swarm", "state", "minutes left", "used by"), cells)
    return 0


def run_admit(args: argparse.Namespace) -> int:
    """`keys admit`."""
    from swarmd.identity.admission import Desk
    from swarmd.identity.signers import FileSigner, open_signer
    from swarmd.transports.address import parse_address

    try:
        host, port = parse_address(args.listen)
    except ValueError as error:
        raise DaemonError(f"--listen: {error}") from error
    source = passphrases(args)
    signers = [open_signer(one, source) for one in args.key]
    in_folder = [open_signer(str(path), source) for path in sorted((args.fleet / "keys").glob("enrol-*.key"))]
    for signer in signers:
        if isinstance(signer, FileSigner):
            signer.unlock()  # Its passphrase is asked for here, not while a device waits.
    desk = Desk(args.fleet, [*signers, *in_folder])
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Listener(desk, args.count).run(host, port))
    return 0


def run_sign_request(args: argparse.Namespace) -> int:
    """`keys sign-request`."""
    from swarmd.cli.node_keys import enrol_public
    from swarmd.identity.fleet import Fleet
    from swarmd.identity.node_requests import read_request

    half = read_request(args.request)
    args.node, args.public = half.name, args.request
    args.swarm = chosen_swarm(Fleet(args.fleet), args.swarm)
    return enrol_public(args)


class Listener:
    """The desk's port: a question in, an answer out, and the connection ends."""

    def __init__(self, desk: "Desk", count: int = 0) -> None:
        """Answer with this desk; end after `count` devices where it is above 0."""
        self.desk = desk
        self.address = ""
        self._count = count
        self._silent: dict[asyncio.StreamWriter, str] = {}
        """Clients whose question has not come, the first one first, and their hosts."""
        self._done = asyncio.Event()
        self._enrolled: set[bytes] = set()

    async def run(self, host: str, port: int) -> None:
        """Listen until enough devices are in, or for ever.

        Raises:
            DaemonError: The address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        try:
            server = await asyncio.start_server(self._serve, host, port, backlog=2 * CLIENTS_MAX)
        except OSError as error:
            raise DaemonError(f"--listen {host}:{port}: {error.strerror or error}") from error
        bound = server.sockets[0].getsockname()
        self.address = f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"
        print(f"listens on {self.address} for devices with join tokens", flush=True)
        if threading.current_thread() is threading.main_thread():  # Elsewhere who called it cancels it.
            loop.add_signal_handler(signal.SIGTERM, self._done.set)
        async with server:
            await self._done.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(EXCHANGE_S):
                await self._exchange(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # It was too slow, was one too many, or has gone; nothing was promised.
        finally:
            self._silent.pop(writer, None)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from swarmd.identity.join_channel import QUESTION_MAX_BYTES

        host = str((writer.get_extra_info("peername") or ("?",))[0])
        self._make_room()
        self._silent[writer] = host
        size = int.from_bytes(await reader.readexactly(4), "big")
        if not 0 < size <= QUESTION_MAX_BYTES:
            return
        question = await reader.readexactly(size)
        del self._silent[writer]
        outcome = self.desk.answer(question)
        print(f"{host}: {outcome.told}", flush=True)
        writer.write(len(outcome.frame).to_bytes(4, "big") + outcome.frame)
        await writer.drain()
        if outcome.enrolled:
            self._enrolled.add(outcome.enrolled)
            if 0 < self._count <= len(self._enrolled):
                self._done.set()

    def _make_room(self) -> None:
        if len(self._silent) >= CLIENTS_MAX:
            crowd, _ = Counter(self._silent.values()).most_common(1)[0]
            first = next(writer for writer, host in self._silent.items() if host == crowd)
            del self._silent[first]
            first.transport.abort()
