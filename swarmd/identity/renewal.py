"""Certificates signed anew: after the enrol keys were replaced, nodes keep their keys, their ids and their places.

A root that replaces enrol keys names the certificates that stay right (`kept`), so nobody falls at once; but a root can
name only so many, and what the folder does not hold falls. A certificate that the keys in force have signed needs no
root to name it. It reaches its node through the swarm: members pass it on, and show it to a node that is shut out.
"""

from collections.abc import Iterator, Sequence

import msgspec

from swarmd.identity.desk import certificate_path, check_renewable
from swarmd.identity.fleet import Fleet, Statement, next_counter
from swarmd.identity.role_keys import FleetError, certifying, write_public
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.trust.envelopes import decode_envelope, sign_statement, signers
from swarmd_protocols.trust.identity import read_certificate
from swarmd_protocols.trust.payloads import Certificate

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


def renew(fleet: Fleet, swarm: str, names: Sequence[str]) -> Iterator[Statement]:
    """Sign the newest certificates of some names anew, where enough enrol keys are at this desk.

    The folder is judged once, however many they are; each certificate is whole in the folder before the next is signed,
    so a run that is stopped leaves the rest to the next one.

    Raises:
        FleetError: Nobody is enrolled by a name, a node is revoked, or the enrol keys are not here; before anything is
            written.
    """
    # What was replaced meanwhile would be signed anew, above what replaced it.
    with certifying(fleet.folder):
        trust, seeds = fleet.trust_of(swarm), fleet.seeds("enrol")
        newest = {one.name: one for one in fleet.nodes(swarm)}
        for name in names:
            check_renewable(newest.get(name), trust, swarm, name)
        for name in dict.fromkeys(names):
            payload = msgspec.structs.replace(newest[name], counter=next_counter([newest[name].counter]))
            signed = sign_statement("node", payload, seeds, _CRYPTO)
            try:
                trust.add("node", signed)
            except IdentityError as error:
                raise FleetError(
                    f"no node would take the certificate of {name}: {error}; it was not written"
                ) from error
            path = certificate_path(fleet.folder, payload, decode_envelope(signed).payload)
            write_public(path, signed)
            yield Statement("node", signed, path)
