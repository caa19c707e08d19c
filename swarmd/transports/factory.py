"""Makes the transport that the configuration names, importing only what that one needs."""

from collections.abc import Sequence

from swarmd.errors import TransportError
from swarmd.transports.address import resolve
from swarmd.transports.base import Transport
from swarmd.transports.casting import CastOptions
from swarmd.transports.curve import CurveKeys
from swarmd.transports.dds_options import DdsOptions

__all__ = ["KINDS", "make_transport", "resolve"]

KINDS = ("udp", "zmq", "dds")


def make_transport(
    kind: str,
    listen: str,
    keys: CurveKeys,
    *,
    advertise: str = "",
    interfaces: Sequence[str] = (),
    casts: CastOptions | None = None,
    dds: DdsOptions | None = None,
) -> Transport:
    """A transport that has not been started.

    Args:
        kind: "udp", "zmq" or "dds".
        listen: "ip:port" or "[ipv6]:port"; port 0 for any free one.
        keys: CURVE keys; `dds` needs none of them.
        advertise: The address that peers should use, "" for what the interfaces have.
        interfaces: Patterns of the interfaces whose addresses peers are told; none: all but those of containers.
        casts: How `udp` and `zmq` cast; None: not.
        dds: Options of `dds`; the defaults when None.

    Returns:
        A transport to `start`.

    Raises:
        TransportError: The kind is unknown, or its library is not installed.
    """
    match kind:
        case "udp":
            from swarmd.transports.udp import UdpTransport

            return UdpTransport(listen, keys, advertise, interfaces, casts)
        case "zmq":
            from swarmd.transports.zmq import ZmqTransport

            return ZmqTransport(listen, keys, advertise, interfaces, casts)
        case "dds":
            from swarmd.transports.dds import DdsTransport

            return DdsTransport(listen, dds or DdsOptions(), interfaces)
        case _:
            raise TransportError(f"unknown transport {kind!r}; transport.gossip is one of {', '.join(KINDS)}")
