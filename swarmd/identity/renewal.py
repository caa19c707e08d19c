"""Certificates signed anew: after the enrol keys were replaced, nodes keep their keys, their ids and their places.

A root that replaces enrol keys names the certificates that stay right (`kept`), so nobody falls at once; but a root can
name only so many, and what the folder does not hold falls. A certificate that the keys in force have signed needs no
root to name it. It reaches its node through the swarm: members pass it on, and show it to a node that is shut out.
"""

from swarmd.identity.desk import prepare_again, submit
from swarmd.identity.fleet import Fleet, Statement
from swarmd.identity.officers import PublicHalf
from swarmd.identity.prepared import add_signature, missing
from swarmd.identity.signers import SeedSigner
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.trust.envelopes import decode_envelope, signers
from swarmd_protocols.trust.identity import read_certificate
from swarmd_protocols.trust.trust import Certificate

_CRYPTO = NaClCrypto()


def due(fleet: Fleet, swarm: str) -> list[str]:
    """Names whose newest certificate the keys in force have not signed: a root keeps it by name, or it is void."""
    trust = fleet.trust_of(swarm)
    keys, threshold = trust.role("enrol")
    newest = {one.name: one for one in fleet.nodes(swarm) if one.node not in trust.revoked}
    right: set[str] = set()
    for path in sorted((fleet.folder / "swarms" / swarm).glob("node-*")):
        statement = path.read_bytes()
        certificate: Certificate = read_certificate(statement)
        is_newest = newest.get(certificate.name) == certificate
        if is_newest and len(signers(decode_envelope(statement), keys, _CRYPTO.verify)) >= threshold:
            right.add(certificate.name)
    return sorted(set(newest) - right)


def renew(fleet: Fleet, swarm: str, name: str) -> Statement:
    """Sign the newest certificate of a name anew, where enough enrol keys are at this desk.

    Raises:
        FleetError: Nobody is enrolled by the name, the node is revoked, or the enrol keys are not here.
    """
    prepared = prepare_again(fleet, swarm, name)
    for seed in fleet.seeds("enrol"):
        if missing(prepared):
            prepared = add_signature(prepared, SeedSigner(PublicHalf(_CRYPTO.public_key(seed), "enrol"), seed))
    done = submit(fleet.folder, prepared)
    return Statement("node", done.statement, done.path)
