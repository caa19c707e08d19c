"""A statement on its way from desk to desk: prepared on one machine, signed on others, submitted by anybody.

    {"format": "swarmd-prepared-1", "kind": "revoke", "does": ["shuts out …"], "payload": BASE64, "root": BASE64,
     "certificates": [BASE64], "officers": ["ssh-ed25519 … alice"], "signatures": [{"key": HEX, "signature": BASE64}]}

A signature covers `signed_bytes(kind, payload)`, as a node checks it. The rest helps people: `root` is the root in
force where the statement was prepared, and says whose signatures it takes; `certificates` and `officers` give names to
ids. `does` is for who opens the file in an editor; nobody believes it: what is shown before a signature is computed
from the payload. Nothing in the file is trusted for what a node does; a desk that holds the fleet's folder (`--fleet`)
judges by that instead.
"""

import fcntl
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from swarmd.errors import DaemonError
from swarmd.identity.files import write_secret_file
from swarmd.identity.officers import OfficerKeyError, PublicHalf, parse_public
from swarmd.identity.signers import Signer
from swarmd.identity.words import Context, Words, WordsError, describe, parse_root, roles_of
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.errors import ProtocolError
from swarmd_protocols.trust import envelopes
from swarmd_protocols.trust.envelopes import decode_envelope, signed_bytes
from swarmd_protocols.trust.identity import read_certificate
from swarmd_protocols.trust.payloads import NAME_MAX_CHARS, Certificate, Revocation, plain
from swarmd_protocols.trust.roots import KEPT_MAX, Root, mark, root_digest

FORMAT: Final = "swarmd-prepared-1"
FILE_MAX_BYTES = 2 << 20
"""Bytes of a file: a payload of 48 KiB, a root of 64 KiB, `KEPT_MAX` certificates of some 300 bytes, as Base64."""
PAYLOAD_MAX_BYTES = 49_152
"""Bytes of a payload: what every statement's envelope may carry."""
_CRYPTO = NaClCrypto()
_Line = Annotated[str, Meta(max_length=512)]
_Data = Annotated[bytes, Meta(max_length=65_536)]


class PreparedError(DaemonError):
    """A prepared file cannot be used as asked; nothing was signed, written or sent."""


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One officer's signature."""

    key: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    """The key's id, hex."""
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]


class Prepared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file's content."""

    format: Literal["swarmd-prepared-1"]
    kind: Annotated[str, Meta(max_length=32)]
    does: Annotated[tuple[_Line, ...], Meta(max_length=256)]
    payload: Annotated[bytes, Meta(max_length=PAYLOAD_MAX_BYTES)]
    root: _Data = b""
    certificates: Annotated[tuple[_Data, ...], Meta(max_length=KEPT_MAX)] = ()
    officers: Annotated[tuple[_Line, ...], Meta(max_length=256)] = ()
    signatures: Annotated[tuple[Signature, ...], Meta(max_length=32)] = ()


@dataclass(frozen=True, slots=True)
class Requirement:
    """Signatures that a statement takes of one role, and how far it is."""

    role: str
    need: int
    keys: Mapping[envelopes.KeyId, bytes]
    """Key id to public key of all that may sign."""
    signed: tuple[bytes, ...]
    """Ids of those whose signature holds."""

    @property
    def lacking(self) -> int:
        """Signatures that are still missing."""
        return max(0, self.need - len(self.signed))


_DECODER = msgspec.json.Decoder(Prepared)


def decode(data: bytes) -> Prepared:
    """Read a prepared file's bytes from anywhere.

    Raises:
        PreparedError: They are none.
    """
    if len(data) > FILE_MAX_BYTES:
        raise PreparedError(f"a prepared statement has at most {FILE_MAX_BYTES} bytes; this has {len(data)}")
    try:
        prepared = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PreparedError(f"not a prepared statement of swarmd: {error}") from error
    if prepared.kind not in envelopes.ROLE_OF:
        raise PreparedError(f"statements of kind {prepared.kind!r} are not known here; is this swarmd too old?")
    if len({entry.key for entry in prepared.signatures}) < len(prepared.signatures):
        raise PreparedError("the prepared statement carries two signatures of one key; it is damaged")
    return prepared


def encode(prepared: Prepared) -> bytes:
    """The file's bytes, with what the statement does, and who is missing, in words at its head."""
    told = words(prepared)
    try:
        lacking = [f"missing: {line}" for line in missing(prepared)]
    except PreparedError:
        lacking = []  # Its root is not in the file, so only a fleet's folder can tell.
    lines = (*(told.title, *told.effects)[:250], *lacking[:6])  # 256 at most.
    whole = msgspec.structs.replace(prepared, does=tuple(line[:512] for line in lines))
    return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"


def prepare(
    kind: str,
    payload: bytes,
    root: bytes,
    officers: Iterable[PublicHalf] = (),
    certificates: Iterable[bytes] = (),
) -> Prepared:
    """Make a statement that nobody has signed.

    Args:
        kind: Its type tag.
        payload: The bytes that will be shipped.
        root: The root statement in force; b"" for a fleet's first root.
        officers: Names for keys.
        certificates: Of the nodes that it speaks of; of a root, the statements that it keeps.

    Raises:
        WordsError: The payload is no such statement.
        PreparedError: It is too large.
    """
    lines = tuple(half.line for half in officers)
    prepared = Prepared(FORMAT, kind, (), payload, root, tuple(certificates), lines)
    return decode(encode(prepared))  # What nobody could read is not written.


def context(prepared: Prepared) -> Context:
    """Names and the root, as far as the file's own parts hold.

    Raises:
        WordsError: Its root is none.
    """
    root = _root_of(prepared)
    halves = {half.key_id: half for line in prepared.officers if (half := _half(line)) is not None}
    named = Counter(half.name for half in halves.values())
    officers = {
        key_id: half.name if named[half.name] == 1 else f"{half.name} ({key_id.hex()[:8]})"
        for key_id, half in halves.items()
    }
    nodes: dict[bytes, Certificate] = {}
    marks: dict[bytes, str] = {}
    for statement in prepared.certificates:
        try:
            envelope = envelopes.decode_envelope(statement)
            if root is None or not _vouches(root, envelope):
                continue  # What nobody vouches for is not shown.
            if envelope.kind == "node":
                held = read_certificate(statement)
                nodes[held.node] = held
                marks[mark(envelope)] = f"{plain(held.name)} is node {held.node.hex()} of swarm {plain(held.swarm)}"
            elif envelope.kind == "revoke":
                out = msgspec.msgpack.decode(envelope.payload, type=Revocation)
                gone = ", ".join(node.hex() for node in out.nodes)
                marks[mark(envelope)] = f"out of swarm {plain(out.swarm)}: {gone} ({plain(out.reason)})"
        except (ProtocolError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return Context(root, officers, nodes, marks)


def _vouches(root: Root, envelope: envelopes.Envelope) -> bool:
    """Whether a root stands behind a statement: by the keys that it names, or by name."""
    role = roles_of(root).get(envelopes.ROLE_OF.get(envelope.kind, ""))
    if mark(envelope) in root.kept:
        return True
    return (
        role is not None and len(envelopes.signers(envelope, _keys(root, role.name), _CRYPTO.verify)) >= role.threshold
    )


def words(prepared: Prepared) -> Words:
    """What it does.

    Raises:
        WordsError: It is no statement that a node would take.
    """
    told = describe(prepared.kind, prepared.payload, context(prepared))
    if (
        prepared.kind == "root"
        and prepared.root
        and parse_root(prepared.payload).previous != root_digest(prepared.root)
    ):
        raise WordsError("this root does not name the root that it says it follows; prepare it anew")
    return told


def requirements(prepared: Prepared, root: Root | None = None) -> list[Requirement]:
    """Whose signatures it takes, and who has signed.

    Args:
        prepared: The statement.
        root: The root to judge by; the file's own where absent.

    Raises:
        PreparedError: No root names the role.
    """
    in_force = root or _root_of(prepared)
    judges = [in_force] if in_force is not None else []
    if prepared.kind == "root":
        judges.append(parse_root(prepared.payload))
    found = [_requirement(prepared, judge) for judge in judges]
    if not found:
        raise PreparedError(f"the file does not say by which root a {prepared.kind} statement is judged; give --fleet")
    return found


def with_officers(prepared: Prepared, known: Iterable[PublicHalf]) -> Prepared:
    """The statement with the names that a desk knows; a stranger's key under a known name is called so.

    Args:
        prepared: The statement, for showing; what is signed stays.
        known: The public halves at the desk.
    """
    known = tuple(known)
    named = {half.key_id: half.name for half in known}
    taken = set(named.values())
    lines = [half.line for half in known]
    for line in prepared.officers:
        half = _half(line)
        if half is not None and half.key_id not in named:
            name = f"not-the-{half.name}-you-know"[:NAME_MAX_CHARS] if half.name in taken else half.name
            lines.append(PublicHalf(half.public, name).line)
    return msgspec.structs.replace(prepared, officers=tuple(lines))


def add_signature(prepared: Prepared, signer: Signer) -> Prepared:
    """The statement with one more signature.

    Raises:
        PreparedError: The key is not of the role, or has signed already.
        DaemonError: The key cannot sign.
    """
    check_signer(prepared, signer)
    half = signer.half
    message = signed_bytes(prepared.kind, prepared.payload)
    signature = signer.sign(message)
    if not _CRYPTO.verify(half.public, message, signature):
        raise PreparedError(f"{half.name}'s signature does not hold; the key's file may be damaged")
    good = {key.hex() for one in requirements(prepared) for key in one.signed}
    kept = [entry for entry in prepared.signatures if entry.key in good]
    entries = sorted([*kept, Signature(half.key_id.hex(), signature)], key=lambda entry: entry.key)
    known = {line.split(" ")[1] for line in prepared.officers}
    officers = prepared.officers if half.line.split(" ")[1] in known else (*prepared.officers, half.line)
    return msgspec.structs.replace(prepared, signatures=tuple(entries), officers=officers)


def check_signer(prepared: Prepared, signer: Signer, root: Root | None = None) -> None:
    """Refuse a key that may not sign this, before its passphrase is asked for.

    Raises:
        PreparedError: It may not, or has signed already.
    """
    found = requirements(prepared, root)
    half = signer.half
    known = context(prepared)
    if signer.role and signer.role not in {one.role for one in found}:
        raise PreparedError(f"{half.name} is a key of the role {signer.role}; this takes keys of {_roles(found)}")
    if not any(half.key_id in one.keys for one in found):
        held = [role.name for role in known.root.roles if half.key_id in role.key_ids] if known.root else []
        is_of = f"is a key of {', '.join(held)}" if held else "is no key of this fleet"
        who = ", ".join(sorted({known.officer(key) for one in found for key in one.keys}))
        raise PreparedError(f"{half.name} {is_of}; this takes {_roles(found)}: {who}")
    if any(half.key_id in one.signed for one in found):
        raise PreparedError(f"{half.name} has signed this already")


def merge(one: Prepared, other: Prepared) -> Prepared:
    """One statement with the signatures of two files that hold; two officers may sign copies at the same time.

    Raises:
        PreparedError: The two files are different statements.
    """
    if (one.kind, one.payload, one.root) != (other.kind, other.payload, other.root):
        raise PreparedError("these files are different statements; only signatures of one statement can be joined")
    entries: dict[str, Signature] = {}
    for prepared in (one, other):
        good = {key.hex() for requirement in requirements(prepared) for key in requirement.signed}
        for entry in prepared.signatures:
            if entry.key in good:
                entries.setdefault(entry.key, entry)
    officers = tuple(dict.fromkeys((*one.officers, *other.officers)))[:256]
    joined = tuple(entries[key] for key in sorted(entries))
    return msgspec.structs.replace(one, signatures=joined, officers=officers)


def missing(prepared: Prepared, root: Root | None = None) -> list[str]:
    """Who has still to sign, a line for each role; empty where it is enough."""
    known = context(prepared)
    lines = []
    for one in requirements(prepared, root):
        if one.lacking:
            open_keys = sorted(known.officer(key) for key in one.keys if key not in one.signed)
            lines.append(
                f"{one.role} takes {one.need} signatures and has {len(one.signed)}; "
                f"{one.lacking} of: {', '.join(open_keys)}"
            )
    return list(dict.fromkeys(lines))  # Where old and new root ask the same, once.


def statement_of(prepared: Prepared, root: Root | None = None) -> bytes:
    """The signed statement as nodes take it, with the signatures that hold.

    Raises:
        PreparedError: Too few have signed; says who is missing.
    """
    lacking = missing(prepared, root)
    if lacking:
        raise PreparedError(f"not signed by enough officers: {'; '.join(lacking)}")
    good = {key for one in requirements(prepared, root) for key in one.signed}
    pairs = [(bytes.fromhex(entry.key), entry.signature) for entry in prepared.signatures]
    return encode_statement(prepared.kind, prepared.payload, [pair for pair in sorted(pairs) if pair[0] in good])


def encode_statement(kind: str, payload: bytes, pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A statement in its envelope."""
    return envelopes.Envelope(kind, payload, tuple((envelopes.KeyId(key), one) for key, one in pairs)).encode()


# --- files ----------------------------------------------------------------------------------------------------------


def read(path: Path) -> Prepared:
    """Read a prepared file.

    Raises:
        PreparedError: It cannot be read, or is none.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        raise PreparedError(f"cannot read {path}: {error.strerror}") from error
    try:
        return decode(data)
    except PreparedError as error:
        raise PreparedError(f"{path}: {error}") from error


def write_new(path: Path, prepared: Prepared) -> None:
    """Write a prepared file, 0600, whole or not at all; a file that is there is kept.

    Raises:
        PreparedError: There is one already.
    """
    if path.exists():
        raise PreparedError(f"{path} exists already; nothing was written")
    write_secret_file(path, encode(prepared))


def write_joined(path: Path, prepared: Prepared) -> Prepared:
    """Write a file back with its new signatures, and with those that others added to it meanwhile.

    Returns:
        What the file holds then.

    Raises:
        PreparedError: It holds another statement by now.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise PreparedError(f"cannot open {path.parent}: {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # Released with the descriptor, also when the process dies.
        whole = merge(read(path), prepared) if path.exists() else prepared
        write_secret_file(path, encode(whole))
        return whole
    finally:
        os.close(folder)


def _root_of(prepared: Prepared) -> Root | None:
    if not prepared.root:
        return None
    try:
        return parse_root(decode_envelope(prepared.root).payload)
    except ProtocolError as error:
        raise WordsError(f"the root in the prepared file is none: {error}") from error


def _half(line: str) -> PublicHalf | None:
    try:
        return parse_public(line)
    except OfficerKeyError:
        return None


def _keys(root: Root, role: str) -> dict[envelopes.KeyId, bytes]:
    wanted = set(roles_of(root)[role].key_ids)
    by_id = {envelopes.key_id(key): key for key in root.keys}
    return {key_id: key for key_id, key in sorted(by_id.items()) if key_id in wanted}


def _requirement(prepared: Prepared, root: Root) -> Requirement:
    name = envelopes.ROLE_OF[prepared.kind]
    role = roles_of(root).get(name)
    if role is None:
        raise PreparedError(f"root {root.version} names no keys for the role {name}; nobody can sign this")
    keys = _keys(root, name)
    message = signed_bytes(prepared.kind, prepared.payload)
    pairs = ((envelopes.KeyId(bytes.fromhex(entry.key)), entry.signature) for entry in prepared.signatures)
    signed = tuple(key for key, one in pairs if key in keys and _CRYPTO.verify(keys[key], message, one))
    return Requirement(name, role.threshold, keys, signed)


def _roles(found: Sequence[Requirement]) -> str:
    return f"keys of the role {' and '.join(dict.fromkeys(one.role for one in found))}"
