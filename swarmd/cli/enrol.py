"""`swarmd enrol`: on a device: make its key, and join a fleet by a token or by a request that an officer signs.

The private key never leaves the device. A run that was stopped is completed by the next one.
"""

import argparse
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from swarmd.errors import DaemonError

if TYPE_CHECKING:
    from swarmd.identity.join_channel import Answer
    from swarmd.identity.join_tokens import Token

EXCHANGE_S = 10.0
"""Seconds for a question and its answer."""
AGAIN_S = 2.0
"""Seconds between two questions while officers sign."""
WAIT_S = 600.0
"""Seconds that a device waits for officers by default."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    text = "on a device: make its key, and join a fleet by a token or by a request that an officer signs"
    parser = subparsers.add_parser("enrol", help=text, description=text)
    parser.add_argument("--identity", type=Path, required=True, metavar="DIR", help="where the identity will lie")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--token-file", type=Path, metavar="FILE", help="holds the join token (default: it is asked for)")
    way.add_argument("--request", type=Path, metavar="FILE", help="write a request for officers; needs --name")
    way.add_argument("--install", type=Path, metavar="FILE", help="the enrolment that the officer gave back")
    parser.add_argument("--name", help="the name that a request asks for")
    parser.add_argument(
        "--at", action="append", default=[], metavar="HOST:PORT", help="where the desk is (default: the token says)"
    )
    parser.add_argument("--wait", type=float, default=WAIT_S, metavar="S", help="for officers to sign (default 600)")


def run(args: argparse.Namespace) -> int:
    """Join."""
    from swarmd.identity.enrolment import install
    from swarmd.identity.files import IDENTITY_FILE, read_secret_file
    from swarmd.identity.node_requests import make_request

    if (args.request is None) != (args.name is None):
        raise DaemonError("--request FILE and --name NAME go together; a token brings its name")
    if args.request is not None:
        half = make_request(args.identity, args.name, args.request)
        print(f"{args.request}: hand it to an officer (swarmd keys sign-request), and tell the fingerprint:")
        print(f"  {half.fingerprint}")
        print(f"then: swarmd enrol --identity {args.identity} --install {args.name}.enrolment")
        return 0
    if args.install is not None:
        data = read_secret_file(args.install, "give the file that the officer gave back")
    else:
        found = _join(args)
        if found is None:
            return 1
        data = found
    identity = install(args.identity, data)
    print(f"{args.identity / IDENTITY_FILE}: {identity.name} is node {identity.node.hex()} of swarm {identity.swarm}")
    print(f"start it with: swarmd run --identity {args.identity}; or: swarmd install --identity {args.identity}")
    return 0


def _join(args: argparse.Namespace) -> bytes | None:
    """The enrolment; None where officers have not signed in time."""
    from swarmd.identity.enrolment import decode_enrolment, read_node_key
    from swarmd.identity.files import IDENTITY_FILE
    from swarmd.identity.node_requests import device_key
    from swarmd_protocols.trust.roots import root_digest

    if (args.identity / IDENTITY_FILE).exists() and not (args.identity / "node.seed").exists():
        raise DaemonError(f"{args.identity / IDENTITY_FILE} exists already; remove it if the node is to get a new key")
    token = _token(args.token_file)
    places = args.at or list(token.addresses)
    if not places:
        raise DaemonError("the token does not say where the desk listens; give --at HOST:PORT")
    half = device_key(args.identity, token.name)
    print(f"this device's key: {half.fingerprint}; it stays here", flush=True)
    until_s = time.monotonic() + args.wait
    said = ""
    while True:
        answer = _ask(places, token, read_node_key(args.identity))
        if answer.kind == "enrolled":
            break
        if answer.kind != "waiting":
            raise DaemonError(f"the desk refuses: {_plain(answer.text)}")
        if answer.text != said:
            said = answer.text
            print(f"waits: {_plain(said)}", flush=True)
        if time.monotonic() + AGAIN_S > until_s:
            print("officers have not signed yet; run it again with the same token when they have", file=sys.stderr)
            return None
        time.sleep(AGAIN_S)
    roots = decode_enrolment(answer.payload).roots
    if not roots or root_digest(roots[0]) != token.root:
        raise DaemonError("the desk's fleet is not the one that made the token; nothing was installed")
    return answer.payload


def _token(path: Path | None) -> "Token":
    from swarmd.identity.join_tokens import TEXT_MAX_CHARS, parse_token

    if path is not None:
        try:
            with path.open("rb") as file:
                return parse_token(file.read(TEXT_MAX_CHARS + 1).decode("ascii", "replace"))
        except OSError as error:
            raise DaemonError(f"cannot read {path}: {error.strerror}") from error
    if sys.stdin.isatty():
        print("join token: ", end="", flush=True)
    return parse_token(sys.stdin.readline(TEXT_MAX_CHARS + 1))


def _ask(places: list[str], token: "Token", seed: bytes) -> "Answer":
    from swarmd.identity.join_channel import ask, open_answer

    problems = []
    for place in places:
        host, _, port = place.rpartition(":")
        question = ask(token, seed)
        try:
            frame = exchange(host.strip("[]"), int(port), question.frame)
        except (OSError, ValueError) as error:
            problems.append(f"{place}: {error}")
            continue
        return open_answer(token, question, frame)
    raise DaemonError(f"no desk answers: {'; '.join(problems)}; is `swarmd keys admit` running there?")


def exchange(host: str, port: int, frame: bytes) -> bytes:
    """Send one frame to a desk, and read one back.

    Raises:
        OSError: It does not answer in time, or says too much.
    """
    from swarmd.identity.join_channel import ANSWER_MAX_BYTES

    until_s = time.monotonic() + EXCHANGE_S
    with socket.create_connection((host, port), timeout=EXCHANGE_S) as channel:
        channel.sendall(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(_read(channel, 4, until_s), "big")
        if not 0 < size <= ANSWER_MAX_BYTES:
            raise OSError("it is no desk of swarmd")
        return _read(channel, size, until_s)


def _read(channel: socket.socket, size: int, until_s: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        channel.settimeout(max(0.01, until_s - time.monotonic()))
        piece = channel.recv(min(65_536, size - len(data)))
        if not piece:
            raise OSError("it hung up")
        data += piece
    return bytes(data)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
