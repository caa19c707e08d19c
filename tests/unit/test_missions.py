"""Missions and notes from above: what an operator of the fleet signed counts at every node, and nothing else."""

from types import SimpleNamespace
from typing import Any

from swarmd.brain.missions import Missions, fact_rows
from swarmd_models.geo.positions import Plane
from swarmd_protocols.federation.facts import Fact, encode_fact, message_of, note_key, seal_fact
from swarmd_protocols.state.observations import DefineCells
from tests.support.reviewing import ALICE, BOB, name_operators
from tests.support.state_mesh import CRYPTO, SWARM, Mesh

HOME = (("home", 0, 0),)
AREA = ((474_000_000, 85_000_000), (474_000_000, 85_010_000), (474_010_000, 85_010_000), (474_010_000, 85_000_000))


def signed(
    kind: str, seed: bytes, revision: int = 1, swarm: str = SWARM, name: str = "field", empty: bool = False
) -> bytes:
    area, cell = ((), 0) if empty or kind == "note" else (AREA, 2_000)
    text = "mind the mast" if kind == "note" and not empty else ""
    payload = encode_fact(Fact(swarm, kind, name, revision, 1, "ann", text, area, cell))
    return seal_fact(payload, CRYPTO.public_key(seed), CRYPTO.sign(seed, message_of(payload)))


class Brain:
    """The parts that missions look at."""

    def __init__(self, with_origin: bool = True) -> None:
        self.mesh = Mesh(1)
        name_operators(self.mesh, ALICE)
        member = self.mesh.members[0]
        self.notes: dict[str, bytes] = {}
        self.cells: list[tuple[tuple[str, int, int], ...]] = []
        quiet = lambda *_, **__: None  # noqa: E731
        views = SimpleNamespace(notes=lambda: self.notes)
        self.parts: Any = SimpleNamespace(
            releases=SimpleNamespace(protocol=SimpleNamespace(trust=member.trust)),
            replica=SimpleNamespace(views=views),
            sightings=SimpleNamespace(plane=Plane(47.4, 8.5) if with_origin else None),
            driver=SimpleNamespace(command=self.command),
            supervisor=SimpleNamespace(keep=quiet),
            log=SimpleNamespace(warning=quiet, info=quiet),
        )
        self.missions = Missions(self.parts, HOME)
        self.missions.begin()

    def command(self, name: str, request: DefineCells) -> None:
        assert name == "state"
        self.cells.append(request.cells)

    def put(self, statement: bytes, name: str = "field") -> list[str]:
        """A note is learned; which cells there are now."""
        self.notes[note_key(name)] = statement
        self.missions.look()
        return [cell for cell, _, _ in self.cells[-1]]


def test_a_mission_adds_cells_beside_those_of_the_configuration() -> None:
    brain = Brain()
    assert brain.cells == [HOME]
    cells = brain.put(signed("mission", ALICE))
    assert cells[0] == "home"
    assert len(cells) > 10
    assert all(cell.startswith("field:x") for cell in cells[1:])
    assert Brain().put(signed("mission", ALICE)) == cells, "another node names other cells"


def test_only_an_operator_of_this_swarms_fleet_plans_missions() -> None:
    brain = Brain()
    for statement in (signed("mission", BOB), signed("mission", ALICE, swarm="other"), b"no fact"):
        assert brain.put(statement) == ["home"]
        assert fact_rows(brain.parts) == []


def test_a_later_revision_replaces_and_an_empty_one_withdraws() -> None:
    brain = Brain()
    first = brain.put(signed("mission", ALICE))
    assert brain.put(signed("mission", ALICE, 2, empty=True)) == ["home"]
    assert len(first) > 1
    assert fact_rows(brain.parts) == []


def test_a_member_that_overwrites_notes_or_writes_many_withdraws_no_mission() -> None:
    brain = Brain()
    first = brain.put(signed("mission", ALICE))
    for number in range(200):
        brain.notes[note_key(f"0{number}")] = b"junk"
    assert brain.put(b"junk") == first
    assert brain.put(signed("mission", BOB, 9)) == first


def test_a_key_that_is_no_operators_any_more_plans_nothing() -> None:
    brain = Brain()
    assert len(brain.put(signed("mission", ALICE))) > 1
    name_operators(brain.mesh, BOB)
    brain.missions.look()
    assert [cell for cell, _, _ in brain.cells[-1]] == ["home"]


def test_a_note_is_shown_and_adds_no_cells() -> None:
    brain = Brain()
    assert brain.put(signed("note", ALICE)) == ["home"]
    [row] = fact_rows(brain.parts)
    assert (row["kind"], row["text"], row["by"]) == ("note", "mind the mast", "ann")


def test_a_node_without_an_origin_knows_no_places() -> None:
    assert Brain(with_origin=False).put(signed("mission", ALICE)) == ["home"]
