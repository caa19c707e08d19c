"""Numbers of lives: no two lives write under one, also where neither the clock nor the disk can tell them apart."""

from hypothesis import given
from hypothesis import strategies as st

from swarmd_protocols.state.lives import life_above, life_number
from tests.support.state_mesh import Mesh, detection

NUMBERS = st.integers(-1, (1 << 47) - 1)


@given(NUMBERS, st.integers(0, 3 << 30), st.randoms(use_true_random=False))
def test_a_life_lies_above_what_it_knows_and_keeps_its_draw(known, unix_s, rng):
    drawn = life_number(unix_s, rng)
    life = life_above(known, drawn)
    assert life > known
    assert life == max(drawn, 1) or life & 0xFFFF == drawn & 0xFFFF
    again = life_above(life, life)
    assert again > life
    assert again & 0xFFFF == life & 0xFFFF


def test_two_lives_that_could_write_nothing_down_do_not_meet():
    """The clock went back, the disk was full: both lives begin above the same number and know nothing of each other."""
    for seed in range(4):
        mesh = Mesh(3, seed=seed)
        member = mesh.members[0]
        mesh.crash(0)
        member.boots = 50
        mesh.boot(0)
        mesh.run(2)
        mesh.see(0, detection(member.local_ns(mesh.now_ns), 1, 1_000))
        mesh.run(3)
        written = dict(member.disk)
        for listener in (1, 2):
            mesh.crash(0)
            member.disk = dict(written)
            member.boots = listener  # The mesh's clock of a life: before the one that the disk knows.
            # Each life is heard by another member alone, so that the second is not shown what the first said.
            mesh.partition(lambda index, listener=listener: index in (0, listener))
            mesh.boot(0)
            mesh.run(1)
            mesh.see(0, detection(member.local_ns(mesh.now_ns), 1 + listener, listener * 10_000))
            mesh.run(2)
        mesh.partition(lambda index: 0)
        mesh.run(20)
        assert mesh.agree()
        assert not any(other.replica._holdings.store.quarantined for other in mesh.members)
        assert len(member.replica.views.objects()) == 3
