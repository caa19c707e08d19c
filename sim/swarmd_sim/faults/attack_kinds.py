"""Which attacks there are, as data: what each does, how often, which law it tests and what it is drawn beside.

The strokes themselves are the functions of the same names in `attacks/`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AttackKind:
    """One kind of attack.

    Attributes:
        text: What it does, for the timeline and the docs.
        per_s: Strokes a second at each of the possible amounts, quietest first.
        law: Which law of `docs/security.md` it tests.
        beside: A kind of fault that is drawn into its time, so that the two meet; "" for none.
        stays: The node's own word cannot be trusted afterwards: its log holds what it never said.
        needs_releases: Means nothing where no models are published.
        needs_lending: Means nothing where nobody lends inference.
    """

    text: str
    per_s: tuple[int, ...]
    law: int
    beside: str = ""
    stays: bool = False
    needs_releases: bool = False
    needs_lending: bool = False


ATTACK_KINDS: dict[str, AttackKind] = {
    # Without any key.
    "junk_flood": AttackKind("a stranger's noise shaped as first contact at every member", (20, 400), 7, beside="kill"),
    "sealed_junk": AttackKind("a stranger's noise shaped as sealed frames at every member", (20, 100), 7),
    "spoofed_flood": AttackKind("noise that seems to come from a member", (20, 100), 7, beside="lost_disk"),
    "hello_replay": AttackKind("old first contacts again, from addresses that never spoke", (5, 50), 7, beside="kill"),
    "contact_replay": AttackKind("short frames of the first contact from another address", (5, 50), 7),
    "mirror": AttackKind("members' own frames back at them", (20, 100), 7),
    # Membership, with one stolen key.
    "accuse_mad": AttackKind("everybody is accused at everybody, as fast as it is heard", (2, 10), 6),
    "accuse_dead": AttackKind("everybody is called failed at everybody", (2, 10), 6, beside="partition"),
    "accuse_ahead": AttackKind("incarnations are accused that nobody has reached", (1, 5), 6),
    "event_storm": AttackKind("large user events without end", (5, 50), 4),
    "meta_storm": AttackKind("metadata that never rests", (5, 50), 4),
    "borrow_address": AttackKind("its own record at another member's address", (1, 5), 4, stays=True),
    "leap_incarnation": AttackKind("its own incarnation by leaps", (1, 5), 1, beside="kill", stays=True),
    "lie_links": AttackKind("nobody hears anybody, it says", (1, 5), 6),
    "reflect_pings": AttackKind("everybody is asked to ping one member", (2, 10), 4),
    "want_everything": AttackKind("the whole view is asked for again and again", (5, 50), 4),
    # The replicated state.
    "invent_origins": AttackKind("authors that nobody enrolled finish cells and see phantoms", (1, 4), 3),
    "invent_crowd": AttackKind("dozens of invented authors at once", (1, 4), 3, beside="lost_disk"),
    "invent_culprits": AttackKind("proofs against authors that do not exist", (1, 4), 4),
    "fat_rows": AttackKind("rows that cost more memory than bytes", (2, 10), 4, beside="kill", stays=True),
    "stack_sightings": AttackKind("sightings on one spot that may not merge", (2, 5), 4, stays=True),
    "fill_disk": AttackKind("batches as long as may be, of one row each", (2, 10), 4, beside="kill", stays=True),
    "far_stamps": AttackKind("facts from the future", (1, 4), 3, beside="clock_step", stays=True),
    "false_dones": AttackKind("every cell is finished, it says", (1, 2), 3, stays=True),
    "note_storm": AttackKind("operator notes without end", (2, 20), 4, stays=True),
    "hoard_batches": AttackKind("what others said once, said again", (2, 10), 3, beside="kill"),
    "mutate_batches": AttackKind("others' batches with changed bytes", (2, 10), 3, beside="partition"),
    "holes": AttackKind("batches with gaps, of ever new incarnations", (2, 10), 4, stays=True),
    "tell_clock": AttackKind("answers about the time that nobody asked for", (2, 20), 1),
    "ask_everything": AttackKind("the whole state is asked for again and again", (2, 20), 4),
    "nonsense": AttackKind("payloads that decode to something huge or deep", (2, 20), 4),
    # Models.
    "unsign": AttackKind("statements with one signature zeroed each", (1, 2), 1, beside="kill", needs_releases=True),
    "swap_signatures": AttackKind("signatures under other payloads and other names", (1, 5), 1, needs_releases=True),
    "vote_down": AttackKind(
        "one member fails every release", (1, 2), 5, beside="partition", stays=True, needs_releases=True
    ),
    "vote_up": AttackKind("one member passes every release", (1, 2), 5, stays=True, needs_releases=True),
    "stuff_votes": AttackKind("verdicts on releases that do not exist", (1, 4), 5, stays=True, needs_releases=True),
    "invent_models": AttackKind("statements about models that do not exist", (1, 10), 1, needs_releases=True),
    "far_floor": AttackKind("a floor above everything, signed by a node", (1, 2), 1, needs_releases=True),
    "leap_heartbeat": AttackKind("a sign of life that leaves no room", (1, 2), 1, needs_releases=True),
    "poison_canaries": AttackKind(
        "a fail told only to one member at a time", (1, 4), 5, beside="kill", stays=True, needs_releases=True
    ),
    "want_models": AttackKind("statements and chunks are asked for without end", (2, 10), 4, needs_releases=True),
    # Two faces, claims, and what was once true.
    "lie_vectors": AttackKind("everybody has said far more than it did, it says", (1, 10), 4, beside="kill"),
    "short_answers": AttackKind(
        "nothing was said before, it tells who starts, and brings it what was", (2, 10), 1, beside="lost_disk"
    ),
    "two_faced_meta": AttackKind("another value of one metadata key to each, under one number", (1, 5), 4),
    "two_faced_record": AttackKind("another record of itself to each, under one incarnation", (1, 5), 4, stays=True),
    "flap": AttackKind("it leaves and is back, again and again", (1, 5), 4, stays=True),
    "hoard_trust": AttackKind("statements of trust as they once were", (1, 5), 2, beside="replace_root"),
    "lesson_storm": AttackKind("lessons about trust that nobody needs", (2, 20), 7, beside="kill"),
    "claim_much": AttackKind("it holds far more of everybody than there is, it says", (2, 20), 4, beside="partition"),
    "ask_certificates": AttackKind("everybody's certificate is asked for without end", (5, 50), 4),
    "promise_chunks": AttackKind("it has all of a model and refuses each chunk", (1, 5), 4, needs_releases=True),
    "lie_casts": AttackKind("casts that are announced and never come", (1, 5), 4, needs_releases=True),
    # The fleet's own statements.
    "zero_signatures": AttackKind("the fleet's statements with signatures zeroed", (1, 4), 1, beside="kill"),
    "own_root": AttackKind("roots of the thief's making", (1, 2), 1, beside="partition"),
    "own_certificate": AttackKind("certificates of the thief's making", (1, 4), 1),
    "own_revocation": AttackKind("everybody is revoked by a key that may not", (1, 2), 1),
    "own_group_key": AttackKind("group keys of the thief's making", (1, 2), 1, beside="kill"),
    "other_kinds": AttackKind("statements of unknown kinds and the largest size", (1, 5), 4),
    # With officers' keys.
    "stolen_officer": AttackKind("one officer's keys, too few for any role", (1, 2), 1, beside="kill"),
    "replaced_keys": AttackKind("keys that were replaced sign on", (1, 2), 1, beside="replace_models"),
    # Borrowed inference.
    "lend_lies": AttackKind("the quickest lender of all answers falsely", (1, 2), 4, needs_lending=True),
    "lend_garbage": AttackKind("the quickest lender of all answers garbage", (1, 5), 4, needs_lending=True),
    "lend_nothing": AttackKind(
        "the quickest lender of all answers nothing", (1, 2), 4, beside="partition", needs_lending=True
    ),
    "forge_offers": AttackKind("offers in others' names", (1, 20), 1, needs_lending=True),
    "borrow_flood": AttackKind("tickets and answers are asked for without end", (2, 20), 4, needs_lending=True),
    "borrow_held": AttackKind(
        "places are held in numbers, without end and for no work, and begun twice",
        (1, 5),
        4,
        beside="kill",
        needs_lending=True,
    ),
    # The officers' answer, at a bad moment (`rotations.py`).
    "revoke_thief": AttackKind("a thief is revoked, and the group key replaced", (1,), 2, beside="partition"),
    "two_desks": AttackKind("two officers revoke a thief each under one counter", (1,), 2),
    "replace_revoke": AttackKind("revoke keys are replaced, everybody reboots, the revoked returns", (1,), 2),
    "replace_enrol": AttackKind("a stolen enrol key makes a rogue, then it is replaced", (1,), 2),
    "replace_models": AttackKind("keys of releases and floors are replaced", (1,), 2),
    "replace_root": AttackKind("root keys are replaced, and a thief revoked", (1,), 2, beside="kill"),
}
"""Every attack by its kind."""
