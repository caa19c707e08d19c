"""Who publishes: gateways that live, claim, and bear the role; a member that only says so takes no share."""

from pathlib import Path

import pytest

from swarmd.errors import ConfigError
from swarmd.federation.gateway import Gateway, GatewaySettings
from swarmd.federation.uplink import Place
from swarmd_protocols.effects import MemberState
from swarmd_protocols.federation.shares import CLAIM_KEY, CLAIMED, SHARES, owned
from swarmd_protocols.federation.wire import Way
from tests.support.federation_daemon import MeshDaemon
from tests.support.state_mesh import CRYPTO, Mesh

KEY = CRYPTO.public_key(b"R" * 32)


def settings(**changes: object) -> GatewaySettings:
    values = {"paths": ("0",), "region_key": KEY, "prefix": "p", "outbox_bytes": 1, "retain_s": 1.0, "refresh_s": 1.0}
    return GatewaySettings(**{**values, "health_s": 1.0, **changes})  # type: ignore[arg-type]


def gateway(daemon: MeshDaemon) -> Gateway:
    """As it is once it runs."""
    one = Gateway(settings(), daemon.identity.seed, CRYPTO, lambda: Path(), lambda *_: None)  # type: ignore[arg-type, return-value]
    one._daemon = daemon
    one._place = Place(bytes(16), Way.UP, daemon.identity.node)
    return one


def swarm() -> tuple[Mesh, list[MeshDaemon], list[Gateway]]:
    mesh = Mesh(2)
    daemons = [MeshDaemon(mesh, 0, f"gw{number}") for number in range(3)]
    for daemon in daemons:
        daemon.beside = list(daemons)
        daemon.told[CLAIM_KEY] = CLAIMED
    return mesh, daemons, [gateway(daemon) for daemon in daemons]


def shares(gateways: list[Gateway], works: bool = True) -> list[frozenset[int]]:
    return [owned(one._place.gateway, one._claimants(works)) for one in gateways]


def test_all_agree_and_each_share_has_one_owner() -> None:
    _, _, gateways = swarm()
    assert sorted(share for mine in shares(gateways) for share in mine) == list(range(SHARES))


def test_a_dead_gateway_and_one_without_a_region_lose_their_shares() -> None:
    for lose in ("dies", "loses"):
        _, daemons, gateways = swarm()
        if lose == "dies":
            daemons[0].state = MemberState.FAILED
        else:
            daemons[0].told[CLAIM_KEY] = b""
        assert sorted(share for mine in shares(gateways[1:]) for share in mine) == list(range(SHARES))


def test_where_nobody_claims_every_gateway_keeps_its_shares() -> None:
    _, daemons, gateways = swarm()
    for daemon in daemons:
        daemon.told[CLAIM_KEY] = b""
    assert sorted(share for mine in shares(gateways, works=False) for share in mine) == list(range(SHARES))


def test_who_does_not_bear_the_role_takes_no_share() -> None:
    mesh, daemons, gateways = swarm()
    thief = MeshDaemon(mesh, 1)
    thief.told[CLAIM_KEY] = CLAIMED
    before = shares(gateways)
    for daemon in daemons:
        daemon.beside = [*daemons, thief]
    assert shares(gateways) == before


def test_what_a_gateway_cannot_do_without_is_said() -> None:
    with pytest.raises(ConfigError, match=r"federation\.paths"):
        Gateway(settings(paths=()), bytes(32), CRYPTO, Path, lambda *_: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match=r"federation\.region_key"):
        Gateway(settings(region_key=b""), bytes(32), CRYPTO, Path, lambda *_: None)  # type: ignore[arg-type, return-value]


async def test_a_node_whose_certificate_lacks_the_role_is_no_gateway() -> None:
    mesh = Mesh(1)
    daemon = MeshDaemon(mesh, 0)
    with pytest.raises(ConfigError, match="role gateway"):
        await gateway(daemon).run(daemon)
