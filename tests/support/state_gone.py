"""Authors who are gone, in a mesh of replicas: what they said is held by some, and nobody's membership brings them."""

from swarmd_protocols.effects import Alarm
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.facts import Facts, NotePut
from swarmd_protocols.state.crdt.messages import Batches
from tests.support.state_mesh import Mesh
from tests.support.state_pen import Pen


def gone_authors(mesh: Mesh, authors: int, batches: int, informed: int, pause_s: float) -> int:
    """So many authors who are gone; the first three members hold so many of the smallest batches of each.

    Args:
        mesh: Of four members or more.
        authors: How many; each was enrolled.
        batches: Of each.
        informed: So many members have met them.
        pause_s: Between two of them.

    Returns:
        Bytes held by the first member.
    """
    for who in range(authors):
        seed = bytes([20 + who & 255, 7 + (20 + who >> 8)]) + bytes(30)
        member = mesh.enrol(20 + who, seed)
        mesh.by_node[member.node] = member
        pen, raws = Pen(seed), []
        for _ in range(batches):
            raws.append(pen.write(Facts(puts=[NotePut(pen.life, pen.n + 1, 0, f"{who}-{pen.n}", b"v", ())])).raw)
        mesh.state("node", member.certificate, *mesh.members[:informed])
        for at in range(3):
            mesh.deliver(mesh.members[0], mesh.members[at], messages.encode(Batches(tuple(raws))))
        mesh.run(pause_s)
    holder = mesh.members[0].replica
    assert holder is not None, "the first member runs"
    return int(holder.views.health()["bytes_held"])


def alarms(mesh: Mesh) -> list[str]:
    """What any member has said for people."""
    return [one.text for member in mesh.members for one in member.effects if isinstance(one, Alarm)]
