"""CycloneDDS's settings: found by whatever ROS 2 runs on this device, heard by nobody beyond it.

A ROS 2 shell without settings of its own listens for multicast announcements on one interface that is not loopback. So
the participant stands on that interface, which CycloneDDS chooses as the shell's does, and on loopback, for shells with
`ROS_LOCALHOST_ONLY` or a discovery range of `LOCALHOST`. It announces itself by multicast with a time to live of 0,
which the kernel hands to the device's own programs and to no interface; those answer by unicast. It does not listen
where others announce themselves (its own multicast port is another one), so it hears of no participant on the network
and never writes to one. What crosses the device's edge is the group's IGMP report.
"""

from importlib.metadata import version

from swarmd.transports.address import is_ipv6
from swarmd.transports.interfaces import own_addresses

WIRE_SAMPLE_MAX_BYTES = 16 << 20
"""CycloneDDS forgets larger samples before they are put together."""
_PORT_BASE, _DOMAIN_GAIN = 7_400, 250
"""Source: DDSI-RTPS 2.5, 9.6.2.3."""
_OWN_MULTICAST_OFFSET = 5
"""Where the participant listens for multicast; 0 is where all others announce themselves."""
_SPDP_GROUP = "239.255.0.1"
"""Source: DDSI-RTPS 2.5, 9.6.2.4.1."""
_IGNORES_TYPES_SINCE = 11
"""Major version of CycloneDDS that has the setting; one before refuses settings that it does not know."""
_FAST_DDS = "1.15"
"""eProsima's vendor id, in decimal. Source: DDSI-RTPS 2.5, 9.3.1, and the Object Management Group's list of vendors."""
AUTO = "auto"
"""The interface that CycloneDDS itself would choose."""
LOOPBACK = "lo"


def network_xml(interface: str, domain: int) -> str:
    """The settings for one participant.

    Args:
        interface: "auto", "lo" for loopback alone, or a name.
        domain: 0 to 232.

    Returns:
        CycloneDDS's XML.
    """
    if interface == AUTO and not hosts_of(interface):
        interface = LOOPBACK
    if interface == LOOPBACK:
        return loopback_xml(interface)
    chosen = 'autodetermine="true"' if interface == AUTO else f'name="{interface}"'
    group = f"{_SPDP_GROUP}:{_PORT_BASE + _DOMAIN_GAIN * domain}"
    return (
        f'<CycloneDDS><Domain id="any"><General><Interfaces><NetworkInterface {chosen}/>'
        '<NetworkInterface name="lo" multicast="false"/></Interfaces>'
        "<AllowMulticast>spdp</AllowMulticast><MulticastTimeToLive>0</MulticastTimeToLive></General>"
        f"{_by_name()}"
        f"<Internal><MaxSampleSize>{WIRE_SAMPLE_MAX_BYTES} B</MaxSampleSize></Internal>"
        "<Discovery><SPDPInterval>1s</SPDPInterval>"
        "<ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>60</MaxAutoParticipantIndex>"
        f"<Ports><MulticastMetaOffset>{_OWN_MULTICAST_OFFSET}</MulticastMetaOffset></Ports>"
        f'<Peers><Peer address="{group}"/><Peer address="127.0.0.1"/></Peers></Discovery></Domain></CycloneDDS>'
    )


def loopback_xml(interface: str) -> str:
    """Settings that keep all traffic on one interface and discover without multicast."""
    return (
        '<CycloneDDS><Domain id="any"><General><Interfaces>'
        f'<NetworkInterface name="{interface}" multicast="false"/></Interfaces>'
        f"<AllowMulticast>false</AllowMulticast></General>{_by_name()}"
        f"<Internal><MaxSampleSize>{WIRE_SAMPLE_MAX_BYTES} B"
        "</MaxSampleSize></Internal><Discovery><SPDPInterval>1s</SPDPInterval>"
        "<ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>60</MaxAutoParticipantIndex>"
        '<Peers><Peer address="127.0.0.1"/></Peers></Discovery></Domain></CycloneDDS>'
    )


def _by_name() -> str:
    """To Fast DDS a type is the same where its name is, as to ROS 2: its description of it is not read.

    That of Fast DDS 3 (ROS 2 Kilted) is no valid one to CycloneDDS, so that nothing would be exchanged.
    """
    if int(version("cyclonedds").partition(".")[0]) < _IGNORES_TYPES_SINCE:
        return ""
    return f"<Compatibility><IgnoreTypeInformation>{_FAST_DDS}</IgnoreTypeInformation></Compatibility>"


def hosts_of(interface: str) -> frozenset[str]:
    """The IPv4 addresses that a participant may stand on, as configured: a radio out of range keeps its own."""
    patterns = ("*",) if interface == AUTO else (interface,)
    return frozenset(own.host for own in own_addresses(patterns, carrier=False) if not is_ipv6(own.host))


def is_outdated(begun: frozenset[str], interface: str) -> bool:
    """Whether a participant that began with these hosts is to begin anew: one went, or the first came."""
    hosts = hosts_of(interface)
    return bool(begun - hosts) or (not begun and bool(hosts))
