"""Whom `[lending]` lets in: from the configuration to certificates that the fleet's keys have signed."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swarmd.brain.lending_rules import sentence, told, whom
from swarmd.cli.diagnosis import diagnose
from swarmd.cli.trials import try_out
from swarmd.config import whom as rules
from swarmd.config.lending import LendingSection
from swarmd.config.loading import load
from swarmd.errors import ConfigError
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload import whom as protocol
from swarmd_protocols.offload.offload import Offload, OffloadConfig
from swarmd_protocols.offload.whom import Whom
from swarmd_protocols.subprotocol import Peer, Send
from swarmd_protocols.trust.identity import Identity, dev_role_seeds, enrol, make_dev_identity
from swarmd_protocols.trust.payloads import NAME_MAX_CHARS

SECRET = b"of a test's fleet"
CRYPTO = ModelCrypto()
S = 1_000_000_000
DIGEST = bytes(32)


def section(**keys: Any) -> LendingSection:
    return replace(LendingSection(lend=True, borrow=True), **keys)


def test_the_configuration_becomes_the_protocols_rule() -> None:
    settings = section(
        lend_to=("a",), lend_to_roles=("station",), lend_to_must=("attested",), borrow_from_must=("same-owner",)
    )
    assert whom(settings, "lend_to") == Whom(frozenset(["a"]), frozenset(["station"]), attested=True)
    assert whom(settings, "borrow_from") == Whom(same_owner=True)
    assert whom(section(), "lend_to") == whom(section(), "borrow_from") == Whom()
    # The configuration is data and imports no protocol: what both say must be the same.
    assert (rules.OWNER, rules.ATTESTED, rules.SAME_OWNER) == (protocol.OWNER, protocol.ATTESTED, protocol.OWNER_RULE)
    assert rules.NAME_MAX_CHARS == NAME_MAX_CHARS


def test_who_is_left_out_is_told_with_the_key() -> None:
    names = {NodeId(bytes([index]) * 16): name for index, name in enumerate(["drone-1", "drone-2"])}
    one, two = names
    said = told({two: "attested", one: "role"}, names.__getitem__)
    assert said == {"drone-2": "lending.borrow_from_must (attested)", "drone-1": "lending.borrow_from_roles"}
    assert sentence(said).startswith("; left out: drone-1 by lending.borrow_from_roles, drone-2 by")
    assert sentence({}) == ""
    assert sentence({f"drone-{index}": "lending.borrow_from" for index in range(99)}).endswith(" and 91 more")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('lend_to_must = ["trusted"]', r"lending\.lend_to_must holds 'trusted'; it may hold: attested, same-owner"),
        ('borrow_from_roles = [""]', r"lending\.borrow_from_roles holds ''; a role has 1 to 32 characters"),
        (f'lend_to_roles = ["{"r" * 33}"]', r"a role has 1 to 32 characters"),
        (f'borrow_from = ["{"n" * 65}"]', r"a member's name has 1 to 64 characters"),
    ],
)
def test_a_rule_that_no_certificate_can_hold_to_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f"[lending]\n{text}\n")
    with pytest.raises(ConfigError, match=message):
        load(path)


def test_a_development_fleets_certificates_say_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    for text, is_refused in (
        ('lend_to_must = ["attested"]', True), ('borrow_from_roles = ["station"]', True),
        ('borrow_from_roles = ["station", "gateway"]', False), ('lend_to = ["a"]', False),
    ):  # fmt: skip
        path.write_text(f'[swarm]\ndev_fleet = "d"\n[lending]\n{text}\n')
        if is_refused:
            with pytest.raises(ConfigError, match="lets nobody in"):
                load(path)
        else:
            load(path)


@pytest.mark.parametrize(
    ("keys", "roles", "key"),
    [
        ({"lend_to": ("me",)}, (), "lending.lend_to"),
        ({"lend_to": ("me", "b")}, (), ""),
        ({"borrow_from_must": ("same-owner",)}, ("station",), "lending.borrow_from_must"),
        ({"borrow_from_must": ("same-owner",)}, ("owner:a", "owner:b"), "lending.borrow_from_must"),
        ({"borrow_from_must": ("same-owner",)}, ("owner:",), "lending.borrow_from_must"),
        ({"borrow_from_must": ("same-owner",)}, ("owner:a",), ""),
        ({"lend_to_must": ("same-owner",), "lend_to_roles": ("owner:b",)}, ("owner:a",), "lending.lend_to_roles"),
        ({"lend_to_must": ("same-owner",), "lend_to_roles": ("owner:b", "x")}, ("owner:a",), ""),
        ({"lend_to_must": ("same-owner",), "lend": False}, (), ""),
    ],
)
def test_a_rule_that_lets_nobody_in_is_found(keys: dict[str, Any], roles: tuple[str, ...], key: str) -> None:
    assert [found for found, _ in rules.unmatched(section(**keys), "me", roles)] == ([key] if key else [])


def test_doctor_and_check_config_read_the_own_certificate(tmp_path: Path) -> None:
    identity = make_dev_identity(SECRET, "farm", "me", roles=("station",))
    (tmp_path / "identity").write_bytes(identity.to_bytes())
    (tmp_path / "identity").chmod(0o600)
    path = tmp_path / "x.toml"
    path.write_text(
        f'[swarm]\nidentity = "{tmp_path / "identity"}"\n[inference]\nlisten = "127.0.0.1:7983"\n'
        '[lending]\nlend = true\nlend_to_must = ["same-owner"]\n'
    )
    config = load(path).config
    problems = [text for key, text in try_out(config) if key == "lending.lend_to_must"]
    assert len(problems) == 1
    assert "names no owner" in problems[0]
    findings = [one for one in diagnose(config) if one.check == "lending"]
    assert [one.verdict for one in findings] == ["fail"]
    assert "enrol it with one `--role owner:NAME`" in findings[0].found


def test_a_certificate_that_is_replaced_ends_what_it_allowed() -> None:
    """By the fleet's real chain of certificates: whoever is enrolled anew without the role is out at once."""
    lender, borrower = (make_dev_identity(SECRET, "farm", name, CRYPTO, roles=roles) for name, roles in
                        (("lender", ()), ("borrower", ("attested",))))  # fmt: skip
    trust = lender.trust(CRYPTO)
    trust.admit_certificate(borrower.certificate)
    config = OffloadConfig(lends=True, lend_to=Whom(attested=True))
    one = Offload(
        lender.node, lender.seed, CRYPTO, config, 1, random.Random(1), lambda now_ns: now_ns // 1_000_000,
        lambda digest, data: True, trust.certified,
    )  # fmt: skip
    one.on_command(requests.Stock((requests.Held(DIGEST, 1_000_000),), 0, None), 0)
    peer = Peer(borrower.node, "borrower", borrower.claims().public_key, True)
    one.on_peers([peer], 0)

    def reply(now_ns: int) -> messages.Message:
        ask = messages.encode_message(messages.Ask(DIGEST))
        (sent,) = [one for one in one.on_message(borrower.node, ask, now_ns) if isinstance(one, Send)]
        return messages.decode_message(sent.payload)

    assert isinstance(reply(S), messages.Grant)
    trust.admit_certificate(again(borrower, 3).certificate)
    one.on_trust(2 * S)
    said = reply(3 * S)
    assert isinstance(said, messages.Deny)
    assert messages.REASONS[said.reason] == "outside-attested"
    trust.admit_certificate(again(borrower, 4, ("attested",)).certificate)
    one.on_trust(4 * S)
    assert isinstance(reply(5 * S), messages.Grant)


def again(identity: Identity, counter: int, roles: tuple[str, ...] = ()) -> Identity:
    """The same key, certified anew."""
    return enrol(
        identity.seed, identity.name, identity.swarm, identity.roots, identity.group_keys,
        dev_role_seeds(SECRET, "enrol"), CRYPTO, roles=roles, counter=counter,
    )  # fmt: skip
