"""What a person does about a node that is out because of keys."""

from swarmd_protocols.trust.identity import Identity


def remedy(why_out: str, identity: Identity) -> str:
    """What to do, in a sentence.

    Args:
        why_out: As `Trust.why_out` says it.
        identity: The node's own.
    """
    name, swarm = identity.name, identity.swarm
    if why_out.startswith("revoked"):
        return "if it is back in good hands let it in under a new key: swarmd enrol"
    if why_out.startswith("replaced"):
        return f"if this is the device that is to be {name}, install its newest identity; else enrol it by another name"
    return f"an officer renews its certificate, nobody has to come here: swarmd keys renew FLEET {name} --swarm {swarm}"
