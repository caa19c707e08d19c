"""What a device must offer a member, checked one thing at a time, each with the remedy where it is missing.

Every check looks and changes nothing: ports are bound and released, one multicast packet stays on its own interface.
"""

import ctypes
import errno
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from swarmd.cli import installed
from swarmd.config.sections import Config
from swarmd.transports.address import is_ipv6, parse_address
from swarmd.transports.base import MAX_DATAGRAM_BYTES
from swarmd.transports.interfaces import interface_addresses
from swarmd.transports.reach import Reach
from swarmd.transports.udp_socket import usable_wildcard
from swarmd_protocols.ids import WAYS

Verdict = Literal["ok", "warn", "fail"]

_HEADERS_BYTES = 48
"""Bytes of IPv6 and UDP headers in front of a datagram. Source: RFC 8200, RFC 768."""
_FILES_WANTED = 1_024
"""Open files: two connections for each of 256 members, and as much again."""
_RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
"""Bytes of socket buffer that the daemon asks the kernel for (`transports/udp_socket.py`)."""
_MULTICAST_GROUP = "239.255.79.46"
_MULTICAST_WAIT_S = 1.0
"""Seconds until a datagram to the own host must have come round; on loopback it takes microseconds."""
_BUILT_AFTER_S = 1_760_000_000
"""UNIX seconds, October 2025: a clock before it was never set."""
_TIME_ERROR = 5
"""What adjtimex returns while the clock is not synchronised. Source: adjtimex(2), TIME_ERROR."""
_ADJTIMEX_BYTES = 512
"""Bytes of room for `struct timex`, which has 208 on 64-bit Linux."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


def diagnose(config: Config, *, runs: bool = False) -> Iterator[Finding]:
    """Look at everything that this configuration needs, in the order in which a person would repair it.

    Args:
        config: The merged configuration.
        runs: Whether a daemon runs with it, so that its port is taken by itself.

    Yields:
        A finding for each check; a check that breaks is a finding too.
    """

    def ports(config: Config) -> Iterator[Finding]:
        return _ports(config, runs=runs)

    checks: list[Callable[[Config], Iterator[Finding]]] = [
        _listen_address,
        ports,
        _mtu,
        _multicast,
        _clock,
        _limits,
        _curve,
        _dds,
        _identity,
        _membership,
        _state_folder,
        _units,
        _models_key,
        _learning,
        _judge,
        _lending,
    ]
    for check in checks:
        try:
            yield from check(config)
        except Exception as error:  # A doctor that dies of what it finds helps nobody.
            name = check.__name__.strip("_").replace("_", " ")
            yield Finding(name, "fail", f"the check itself broke: {type(error).__name__}: {error}", "report this line")


def _listen_address(config: Config) -> Iterator[Finding]:
    listen = config.transport.listen
    try:
        parse_address(listen)
    except ValueError as error:
        yield Finding("address", "fail", f"transport.listen: {error}", "write it as ip:port, such as [::]:7946")
        return
    reach = _reach(config)
    yield Finding(
        "address",
        "warn" if reach.problem else "ok",
        f"listens on {listen}, peers are told {reach.address}",
        reach.problem,
    )


def _ports(config: Config, *, runs: bool) -> Iterator[Finding]:
    host, port = _host_port(config)
    kinds = {"udp": ("udp", "tcp"), "zmq": ("tcp",), "dds": ()}[config.transport.gossip]
    for kind in kinds:
        number = _try_bind(kind, host, port)
        if number == 0:
            yield Finding(f"{kind} port", "ok", f"{host}:{port} can be bound")
        elif number == errno.EADDRINUSE and runs:
            yield Finding(f"{kind} port", "ok", f"{host}:{port} is in use, as the running daemon's should be")
        elif number == errno.EADDRINUSE:
            yield Finding(
                f"{kind} port",
                "warn",
                f"{host}:{port} is in use, by a running swarmd or by another program",
                f"see who it is: ss -lnp 'sport = :{port}'; or choose another --listen",
            )
        elif number == errno.EADDRNOTAVAIL:
            yield Finding(f"{kind} port", "fail", f"no interface has {host}", "see `ip address`; set transport.listen")
        else:
            yield Finding(f"{kind} port", "fail", f"{host}:{port}: {os.strerror(number)}", "choose a port above 1023")


def _mtu(config: Config) -> Iterator[Finding]:
    needed = MAX_DATAGRAM_BYTES + _HEADERS_BYTES
    for host in _told_hosts(config):
        interface = interface_of(host)
        if interface is None:
            yield Finding("mtu", "warn", f"no interface found for {host}", "see `ip address`")
            continue
        mtu = int(Path(f"/sys/class/net/{interface}/mtu").read_text())
        if mtu >= needed:
            yield Finding("mtu", "ok", f"{interface} carries {mtu} bytes a packet, {needed} are needed")
        else:
            yield Finding(
                "mtu",
                "fail",
                f"{interface} carries {mtu} bytes a packet, {needed} are needed: datagrams would be cut in pieces",
                f"ip link set {interface} mtu {max(needed, 1_280)}",
            )


def _multicast(config: Config) -> Iterator[Finding]:
    for host in _told_hosts(config):
        remedy = f"ip link set {interface_of(host) or 'INTERFACE'} multicast on; or give --join and list dds peers"
        if is_ipv6(host):
            yield Finding("multicast", "warn", "not checked over IPv6", "give --join where members are not found")
            continue
        try:
            heard = _hear_own_multicast(host)
        except OSError as error:
            yield Finding("multicast", "warn", f"no multicast on {host}: {error.strerror}", remedy)
            continue
        if heard:
            yield Finding("multicast", "ok", f"a packet to {_MULTICAST_GROUP} came back on {host}")
        else:
            yield Finding("multicast", "warn", f"a packet to {_MULTICAST_GROUP} on {host} did not come back", remedy)


def _clock(config: Config) -> Iterator[Finding]:
    now_s = time.time()
    if now_s < _BUILT_AFTER_S:
        shown = time.strftime("%Y-%m-%d", time.gmtime(now_s))
        yield Finding(
            "clock",
            "warn",
            f"it shows {shown}: it was never set; order and leases do not need it, people who read logs do",
            "run an NTP client (systemd-timesyncd, chrony), or take time from GPS",
        )
        return
    state = _clock_state()
    if state == _TIME_ERROR:
        yield Finding("clock", "warn", "it runs free of any NTP server", "systemctl enable --now systemd-timesyncd")
    else:
        yield Finding("clock", "ok", "disciplined by NTP" if state is not None else "set; whether by NTP is not known")


def _limits(config: Config) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft >= _FILES_WANTED
    yield Finding(
        "open files",
        "ok" if enough else "warn",
        f"{soft} of at most {hard}; a member takes up to three a peer",
        "" if enough else f"LimitNOFILE={_FILES_WANTED} in the unit, or ulimit -n {_FILES_WANTED}",
    )
    path = Path("/proc/sys/net/core/rmem_max")
    if path.exists():
        most = int(path.read_text())
        enough = most >= _RECEIVE_BUFFER_BYTES
        yield Finding(
            "receive buffer",
            "ok" if enough else "warn",
            f"a socket may buffer {most} bytes",
            "" if enough else f"sysctl -w net.core.rmem_max={_RECEIVE_BUFFER_BYTES}: bursts are lost otherwise",
        )


def _curve(config: Config) -> Iterator[Finding]:
    import zmq

    if zmq.has("curve"):
        yield Finding("zeromq", "ok", f"libzmq {zmq.zmq_version()} with CURVE")
    else:
        yield Finding(
            "zeromq",
            "fail",
            f"libzmq {zmq.zmq_version()} was built without CURVE",
            "pip install --force-reinstall pyzmq",
        )


def _dds(config: Config) -> Iterator[Finding]:
    needed = config.transport.gossip == "dds"
    try:
        from swarmd.transports import dds_raw
    except ImportError as error:
        yield Finding(
            "cyclonedds",
            "fail" if needed else "ok",
            f"not installed ({error})" if needed else "not installed, and not needed by this configuration",
            "pip install 'swarmd[dds]'; on Arm see docs/transports.md" if needed else "",
        )
        return
    raw = dds_raw.HAS_RAW_CALLS
    version = metadata.version("cyclonedds")
    yield Finding(
        "cyclonedds",
        "ok" if raw else "warn",
        f"{version}, {'with' if raw else 'without'} raw calls",
        "" if raw else "frames go through the slow codec; use cyclonedds 11 or 0.10.5",
    )
    uri = os.environ.get("CYCLONEDDS_URI", "")
    if needed and uri:
        yield Finding("cyclonedds", "warn", f"CYCLONEDDS_URI={uri} rules instead of swarmd's own settings", "unset it")


def _identity(config: Config) -> Iterator[Finding]:
    from swarmd.errors import DaemonError

    if config.swarm.dev_fleet:
        yield Finding(
            "identity",
            "warn",
            f"development fleet {config.swarm.dev_fleet}: whoever reads it owns the swarm",
            "`swarmd keys` and --identity for anything that flies",
        )
        return
    try:
        identity = installed.identity_of(config)
    except PermissionError:
        found = f"what is in {installed.CREDENTIALS} is root's alone, as it should be"
        yield Finding("identity", "warn", found, "run it as root: sudo swarmd doctor")
        return
    except DaemonError as error:
        yield Finding("identity", "fail", str(error), "see docs/security.md")
        return
    if identity is None:
        yield Finding("identity", "fail", "none is configured", "swarmd enrol, then swarm.identity or --identity")
    else:
        yield Finding("identity", "ok", f"{identity.name}, node {identity.node.hex()[:8]} of swarm {identity.swarm}")


def _membership(config: Config) -> Iterator[Finding]:
    from swarmd.cli.membership_check import not_reaching, remembered_problem, running_alerts
    from swarmd.errors import DaemonError
    from swarmd.events.kinds import ALERTS

    identity = None
    if not config.swarm.dev_fleet:
        try:
            identity = installed.identity_of(config)
        except (DaemonError, PermissionError):  # Told by its own check.
            return
    name = config.node.name if identity is None else identity.name
    alerts = running_alerts(config.node.control, name) if name else None
    for alert in alerts or ():
        told = f"{alert['code']} {alert['subject']}".strip()
        verdict: Verdict = "fail" if alert["level"] == "error" else "warn"
        yield Finding("alert", verdict, f"{told}: {alert['text']}, since {alert['since']}", alert["remedy"])
    if lost := not_reaching(config.node.control, name) if alerts is not None else []:
        yield Finding(
            "reach",
            "warn",
            f"{', '.join(lost[:4])}{', …' if len(lost) > 4 else ''} hear it, and say that it does not hear them",
            "let UDP and TCP of its port through; behind a router that translates addresses forward it that port, and "
            "set transport.advertise to the router's address",
        )
    state = installed.state_of(config)
    if identity is not None and alerts is None:
        text, code = remembered_problem(identity, state)
        if text:
            yield Finding("member", "fail", text, ALERTS[code].remedy)


def _state_folder(config: Config) -> Iterator[Finding]:
    folder = installed.state_of(config)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if folder == installed.STATE and not os.access(there, os.W_OK):
        yield Finding("state", "warn", f"{folder} is the service's alone", "run it as root: sudo swarmd doctor")
        return
    if not os.access(there, os.W_OK):
        yield Finding(
            "state", "fail", f"{there} cannot be written", "chown it to the user that runs swarmd, or --state"
        )
        return
    status = os.statvfs(there)
    free_mb = status.f_bavail * status.f_frsize / 1e6
    enough = free_mb >= 100
    yield Finding(
        "state",
        "ok" if enough else "warn",
        f"{folder}: {free_mb:.0f} MB free",
        "" if enough else "free some space: with a full disk the daemon keeps its facts in memory alone",
    )


def _units(config: Config) -> Iterator[Finding]:
    for path in installed.hidden_units():
        remedy = "`swarmd install` puts it out of the way; keep changes in a drop-in: systemctl edit swarmd"
        yield Finding("unit", "warn", f"{path} hides the unit of the installed version", remedy)


def _models_key(config: Config) -> Iterator[Finding]:
    from swarmd.release.sealing import protection

    if not config.models.encrypt:
        return
    folder = installed.state_of(config)
    is_apart, how = protection(folder / "releases")
    remedy = (
        ""
        if is_apart
        else "`swarmd model key --from` that file, as root: it seals the key to the TPM where there is one"
    )
    yield Finding("models' key", "ok" if is_apart else "warn", how, remedy)


# --- how it is looked at ---------------------------------------------------------------------------------------------


def interface_of(host: str) -> str | None:
    """The name of the interface that has a numeric address."""
    bare = host.partition("%")[0]
    named = next((own.interface for own in interface_addresses() if own.host == bare), None)
    return named or ("lo" if host.startswith("127.") else None)


def _host_port(config: Config) -> tuple[str, int]:
    try:
        return parse_address(config.transport.listen)
    except ValueError:  # Told by its own check.
        return "::", 0


def _reach(config: Config) -> Reach:
    """What a daemon with this configuration would tell its peers; the port 0 stays one."""
    host, port = _host_port(config)
    settings = config.transport
    return Reach(usable_wildcard(host), port, settings.advertise, settings.interfaces)


def _told_hosts(config: Config) -> list[str]:
    return [parse_address(way)[0] for way in _reach(config).address.split(WAYS)]


def _try_bind(kind: str, host: str, port: int) -> int:
    family = socket.AF_INET6 if is_ipv6(host) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as sock:
        if kind == "tcp":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            if kind == "tcp":
                sock.listen(1)
        except OSError as error:
            return error.errno or errno.EIO
    return 0


def _learning(config: Config) -> Iterator[Finding]:
    """What `[learning]` needs, where it is on: a head that can be taught, and labels."""
    section = config.learning
    if not section.enabled:
        return
    from swarmd.learner.teaching import describe, sets_below
    from swarmd_models.bundle import DEFAULT_MODEL
    from swarmd_models.choose import AUTO
    from swarmd_models.errors import ModelError

    model = section.model or config.eye.model
    try:
        found = describe(DEFAULT_MODEL if model == AUTO else model)
    except ModelError as error:
        yield Finding("learning", "warn", str(error), "name one of the project's own detectors in learning.model")
        return
    yield Finding("learning", "ok", f"the head of {found.name} has {found.weights} weights to teach")
    problems: list[str] = []
    sets = sets_below(Path(section.labels), problems) if section.labels else []
    for text in problems:
        yield Finding("labels", "warn", text, "swarmd frames import makes a set; learning.labels names their folder")
    if sets:
        pictures = sum(len(one.pictures) for one in sets)
        yield Finding("labels", "ok", f"{len(sets)} sets, {pictures} pictures below {section.labels}")
    elif not problems and not (section.reviews and config.eye.keep_frames):
        yield Finding("labels", "warn", "none: this node merges what others teach", "set learning.labels")


def _judge(config: Config) -> Iterator[Finding]:
    from swarmd.cli.judge_check import judge

    for verdict, found, remedy in judge(config):
        yield Finding("judge", verdict, found, remedy)


def _lending(config: Config) -> Iterator[Finding]:
    from swarmd.cli.lending_check import rules

    for key, text in rules(config):
        yield Finding("lending", "fail", f"{key} {text}", "see docs/lending.md, or leave the key out")


def _hear_own_multicast(host: str) -> bool:
    token = os.urandom(16)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        listener.bind((_MULTICAST_GROUP, 0))
        request = socket.inet_aton(_MULTICAST_GROUP) + socket.inet_aton(host)
        listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, struct.pack("b", 0))
        sender.sendto(token, (_MULTICAST_GROUP, listener.getsockname()[1]))
        until_s = time.monotonic() + _MULTICAST_WAIT_S
        while (left_s := until_s - time.monotonic()) > 0:
            listener.settimeout(left_s)
            try:
                if listener.recv(64) == token:
                    return True
            except TimeoutError:
                break
    return False


def _clock_state() -> int | None:
    """adjtimex(2)'s verdict; None where it cannot be asked."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        answer = int(ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_ADJTIMEX_BYTES)))
    except (OSError, AttributeError):
        return None
    return answer if answer >= 0 else None
