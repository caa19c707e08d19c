"""Each check of the release protocol is removed in turn, and the attack it is there for then succeeds.

A suite that stays green without the check it tests would be worth nothing.
"""

from collections.abc import Callable

import msgspec
import pytest

from swarmd.release.delta import bounded, child, codec
from swarmd_protocols.releases import inventory, releases, reports, rollout, signed_time, statements, swarming, versions
from swarmd_protocols.trust import envelopes, roots
from tests.unit.test_release_attacks import ATTACKS

Patch = Callable[[pytest.MonkeyPatch], None]


def without(check: versions.Check) -> Patch:
    return lambda patch: patch.setattr(versions, "CHECKS", tuple(one for one in versions.CHECKS if one is not check))


def _any_signature(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        roots, "signers", lambda envelope, keys, verify: frozenset(key for key, _ in envelope.signatures if key in keys)
    )


def _count_signatures(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        roots, "signers", lambda envelope, keys, verify: [key for key, _ in envelope.signatures if key in keys]
    )
    patch.setattr(roots, "meets_threshold", lambda good, keys, threshold: len(list(good)) >= threshold)


def _no_threshold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roots, "meets_threshold", lambda good, keys, threshold: bool(set(good)))


def _any_role(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roots, "role_of", lambda link, name: (dict(link.keys), 1))


def _no_chunk_check(patch: pytest.MonkeyPatch) -> None:
    class Agreeable:
        def __init__(self, data: bytes) -> None: ...
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

        def digest(self) -> "Agreeable":
            return self

        __hash__ = object.__hash__

    patch.setattr(swarming, "sha256", Agreeable)
    patch.setattr(statements.Blob, "chunk_size", lambda self, index: Agreeable(b""))


def _no_ban(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(swarming.BlobSwarm, "_ban", lambda self, node, now_ns: None)


def _root_by_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roots.RootChain, "_checked_successor", lambda self, old, new: new)


def _pick_a_root(patch: pytest.MonkeyPatch) -> None:
    def branch(self, path):  # type: ignore[no-untyped-def]
        if len(path) == len(self.links) + 1:
            self.links.append(path[-1])

    patch.setattr(roots.RootChain, "_branch", branch)


def _count_all_epochs(patch: pytest.MonkeyPatch) -> None:
    def any_root(self, verified):  # type: ignore[no-untyped-def]
        good = [key for key, _ in verified.signatures]
        return any(link.has_threshold(good, envelopes.ROLE_OF[verified.kind]) for link in self.links)

    patch.setattr(roots.RootChain, "counts", any_root)


def _count_strangers(patch: pytest.MonkeyPatch) -> None:
    whole = rollout.standing

    def gullible(release, rules, nodes, verdicts, forced=-1):  # type: ignore[no-untyped-def]
        return whole(release, rules, [*nodes, *verdicts], verdicts, forced)

    patch.setattr(rollout, "standing", gullible)


def _silence_promotes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rollout, "passes_needed", lambda cohort, rules: 0)


def _no_report_signature(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reports, "admit_report", lambda envelope, verify: reports.parse_report(envelope.payload))


def _no_output_hash(patch: pytest.MonkeyPatch) -> None:
    class Agreeable:
        def __init__(self, data: bytes) -> None: ...
        def digest(self) -> "Agreeable":
            return self

        def __ne__(self, other: object) -> bool:
            return False

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    patch.setattr(child, "sha256", Agreeable)
    patch.setattr(child, "len", lambda data: Agreeable(b""), raising=False)


def _no_base_check(patch: pytest.MonkeyPatch) -> None:
    class Agreeable(bytes):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = bytes.__hash__

    class Hash:
        def __init__(self, data: bytes) -> None: ...
        def digest(self) -> "Hash":
            return self

        def __getitem__(self, part: slice) -> Agreeable:
            return Agreeable(bytes(8))

    patch.setattr(codec, "sha256", Hash)


def _half_bundles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inventory.Inventory, "has", lambda self, digest: True)


def _forget_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(signed_time.SignedTime, "keep", lambda self, view, now_ns: [])


def _hear_revoked(patch: pytest.MonkeyPatch) -> None:
    whole = releases.Releases.on_trust

    def forgetful(self, now_ns):  # type: ignore[no-untyped-def]
        before = set(self._enrolled)
        effects = whole(self, now_ns)
        self._enrolled |= before
        return effects

    patch.setattr(releases.Releases, "on_trust", forgetful)


def _open_world(patch: pytest.MonkeyPatch) -> None:
    class Lenient:
        @staticmethod
        def decode(payload: bytes) -> statements.Release:
            value = msgspec.msgpack.decode(payload)
            value.pop("plugin", None)
            return msgspec.convert(value, statements.Release)

    patch.setitem(statements._DECODERS, "release", Lenient)  # type: ignore[arg-type]


MUTANTS: dict[str, tuple[str, Patch]] = {
    "signatures are not verified": ("arbitrary_software", _any_signature),
    "signatures are counted instead of keys": ("threshold_by_one_key_twice", _count_signatures),
    "no floor": ("rollback", without(versions.below_floor)),
    "never stale": (
        "indefinite_freeze",
        lambda patch: patch.setattr(signed_time.SignedTime, "is_stale", lambda self, view, now: False),
    ),
    "the time is forgotten": ("freeze_over_reboots", _forget_time),
    "the revoked go on voting": (
        "revoked_voter",
        lambda patch: patch.setattr(reports.ReportBook, "forget_nodes", lambda self, nodes: None),
    ),
    "the revoked are heard again": ("revoked_voter", _hear_revoked),
    "chunk length and hash unchecked": ("endless_data", _no_chunk_check),
    "no gap cap": ("fast_forward_by_leap", without(versions.beyond_gap)),
    "no version chain": ("fast_forward_by_chain", without(versions.breaks_chain)),
    "old epochs count": ("recovery_from_stolen_keys", _count_all_epochs),
    "half bundles are prepared": ("mix_and_match", _half_bundles),
    "targets unchecked": ("wrong_target", lambda patch: patch.setattr(versions, "misfit", lambda targets, facts: None)),
    "one signature is enough": ("key_below_threshold", _no_threshold),
    "any role may sign": ("revoke_key_only_removes", _any_role),
    "chunks unchecked": ("malicious_peer", _no_chunk_check),
    "liars are forgiven": ("malicious_peer", _no_ban),
    "cast chunks unchecked": (
        "poisoned_cast",
        lambda patch: patch.setattr(swarming.BlobSwarm, "_is_chunk", lambda self, index, data: True),
    ),
    "unknown keys are ignored": ("extraneous_dependency", _open_world),
    "output unchecked": ("poisoned_delta", _no_output_hash),
    "base unchecked": ("wrong_base", _no_base_check),
    "forks run": ("publisher_equivocation", without(versions.equivocated)),
    "the chain picks a root": ("root_equivocation", _pick_a_root),
    "new keys alone": ("root_by_new_keys_alone", _root_by_itself),
    "strangers vote": ("sybil_votes", _count_strangers),
    "clock follows": (
        "clock_push",
        lambda patch: patch.setattr(versions, "advance_time_s", lambda known, passed, said: max(known + passed, said)),
    ),
    "silence promotes": ("report_suppression", _silence_promotes),
    "reports unsigned": ("forged_report", _no_report_signature),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attack, patch = MUTANTS[mutant]
    patch(monkeypatch)
    beaten = ATTACKS[attack]()
    assert not beaten, f"{attack} is beaten off even when {mutant}"


def test_the_bomb_mutant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the counted limit a small bomb unpacks whole (a small one, in this process)."""
    import brotli

    bomb = brotli.compress(bytes(4 << 20), quality=5)
    with pytest.raises(Exception, match="more than its signed"):
        bounded.unbrotli(bomb, 1_000)
    assert len(brotli.decompress(bomb)) == 4 << 20, "the library itself has no limit; ours is the one that holds"


def test_every_row_has_a_mutant() -> None:
    covered = {attack for attack, _ in MUTANTS.values()} | {"decompression_bomb", "replayed_manifest"}
    assert covered == set(ATTACKS)
