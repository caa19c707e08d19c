"""Every decoder of outside bytes as a fuzz target: a corpus of real inputs, and a call that may refuse but never raise.

`test_targets.py` runs each for a moment; `make fuzz` gives each to libFuzzer (`libfuzzer.py`), 10⁶ inputs a target. A
target takes bytes and returns; what it lets through as an exception is a finding.
"""

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from swarmd.errors import EyeError
from swarmd.eye.ipc import Configure, FrameDone, Splitter, Stats, decode_from_eye, decode_to_eye
from swarmd.eye.ipc import encode as encode_ipc
from swarmd.release import at_rest
from swarmd.release.audit import verify_lines
from swarmd.release.delta import codec, flatbuffer
from swarmd.release.errors import DeltaError
from swarmd.transports.casting import cast_tag, decode_cast
from swarmd.transports.dds_raw import decode_frame, encode_frame
from swarmd.transports.zmq_link import PATHS, parse_routing_id, routing_id_of
from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ModelError
from swarmd_models.geo.calibration import parse_calibration
from swarmd_models.picture_header import read_header
from swarmd_models.radiometric import kelvin_of
from swarmd_models.tflite_batch import of_any_batch
from swarmd_models.tflite_file import embedded_labels
from swarmd_protocols.channel.channel import CAST, frame_kind
from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.crypto import SIGNATURE_BYTES, ModelCrypto
from swarmd_protocols.effects import DatagramReceived, Started, StreamReceived
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.offload import messages as offload
from swarmd_protocols.past import messages as past
from swarmd_protocols.past.pages import read_page
from swarmd_protocols.releases import messages, slots
from swarmd_protocols.releases.reports import Report, Verdict, parse_report
from swarmd_protocols.releases.statements import Floor, Revoke, parse_release, parse_statement
from swarmd_protocols.state.crdt import messages as state
from swarmd_protocols.state.crdt.batch import HEAD_BYTES, open_batch
from swarmd_protocols.state.crdt.facts import Facts, decode_facts, encode_facts
from swarmd_protocols.state.crdt.places import LATTICE
from swarmd_protocols.state.crdt.records import decode_counters, decode_events, decode_leases
from swarmd_protocols.state.crdt.reviews import Review, encode_review, open_review, read_review
from swarmd_protocols.state.observations import Count, SetNote, StatusReport
from swarmd_protocols.swim.mesh.relay_words import decode_message as decode_relayed
from swarmd_protocols.swim.messages import decode_messages
from swarmd_protocols.swim.rules import unpack_fingerprints
from swarmd_protocols.trust import roots
from swarmd_protocols.trust.envelopes import KEY_BYTES, decode_envelope
from swarmd_protocols.trust.identity import Identity, make_dev_identity, read_certificate
from tests.fuzz import (
    federation_targets,
    inference_targets,
    key_targets,
    label_targets,
    learning_targets,
    mesh_targets,
    neighbour_targets,
    relay_targets,
)
from tests.support import offload_swarm, past_vectors, past_world, swim_vectors
from tests.support.bundles import ZOO_MODEL, ZOO_TOML, copy_what_the_zoo_names
from tests.support.deltas import tuned
from tests.support.release_world import Keys, make_release
from tests.support.reviewing import ALICE, review, signed
from tests.support.state_mesh import Mesh, detection
from tests.support.swim_net import SECRET, Net
from tests.support.swim_thief import Thief

Target = Callable[[bytes], None]
CRYPTO = ModelCrypto()


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """One target with what it starts from."""

    corpus: list[bytes]
    target: Target
    cost: int = 1
    """How many times dearer than a plain decoder: the short run divides its count by it."""


def refusing(*readers: Callable[[bytes], object], by: tuple[type[Exception], ...]) -> Target:
    """A target that calls each reader and accepts the refusals named."""

    def target(data: bytes) -> None:
        for read in readers:
            with contextlib.suppress(*by):
                read(data)

    return target


# --- Membership --------------------------------------------------------------------------------------------------


def bodies() -> list[bytes]:
    """One body of each message of membership."""
    return [join([encode(item)]) for item in swim_vectors.messages()]


def _bodies() -> Fuzzed:
    return Fuzzed(bodies(), refusing(lambda data: decode_messages(data, 65_536), by=(WireError,)))


def _frames() -> Fuzzed:
    return Fuzzed([bytes.fromhex("11" + "00" * 40)], refusing(frame_kind, unpack_fingerprints, by=(WireError,)))


def _statements() -> Fuzzed:
    identity = make_dev_identity(SECRET, "test", "n000", CRYPTO)
    trust = identity.trust(CRYPTO)
    added = [lambda data, kind=kind: trust.add(kind, data) for kind in ("root", "revoke", "group", "node")]
    corpus = [identity.certificate, identity.roots[0], identity.group_keys[0], identity.to_bytes()]
    readers = (Identity.from_bytes, trust.certificate, trust.admit_certificate, read_certificate, *added)
    target = refusing(decode_envelope, *readers, by=(IdentityError, WireError))
    return Fuzzed(corpus, target, 2)


def _node(path: Callable[[str, bytes], object]) -> Fuzzed:
    net = Net(2)
    net.run(1)
    net.keep_frames = True
    net.run(1)
    node = net.hosts[0].node

    def target(data: bytes) -> None:
        node.handle(path("1.1.1.1:1", data), net.now)  # type: ignore[arg-type]

    return Fuzzed([data for *_, data in net.frames][:20], target)


def _sealed() -> Fuzzed:
    """Behind the seal and in front of the handlers: what a member with a valid key may send."""
    net = Net(3)
    net.run(2)
    thief = Thief(SECRET, CRYPTO)
    node = net.hosts[0].node
    thief.meet(node, net.now)
    session = thief.sessions[node.node]

    def target(data: bytes) -> None:
        net.now += 1_000
        sealed = thief.channel.seal(session, 1, data)
        if len(sealed) <= 1_200:
            node.handle(DatagramReceived(thief.address, sealed), net.now)

    own = [encode(thief.record()), encode(thief.accusation(net.hosts[1].node.node, 1 << 20))]
    return Fuzzed([*bodies(), *(join([item]) for item in own)], target, 2)


def _journals() -> Fuzzed:
    net = Net(3)
    net.run(4)
    identity = make_dev_identity(SECRET, "test", "n000", CRYPTO)
    journal = dict(net.hosts[0].journal)
    journal[b"swim/meta/k"] = b"\x93\x0f\xc4\x00"
    keys = sorted(journal)

    def target(data: bytes) -> None:
        key = keys[data[0] % len(keys)] if data else keys[0]
        node = Node(identity, NodeConfig(), CRYPTO, Random(1), {**journal, key: data[1:]}, [], "a:1")
        node.handle(Started(), 1)

    return Fuzzed([bytes((at,)) + journal[key] for at, key in enumerate(keys) if journal[key]], target, 40)


# --- State -------------------------------------------------------------------------------------------------------


def caught() -> tuple[Mesh, list[bytes]]:
    """A small lossy swarm and payloads of every kind that it sent."""
    mesh = Mesh(3, loss=0.3)
    kinds: dict[int, list[bytes]] = {}
    send = mesh.send

    def tap(member, effect):  # type: ignore[no-untyped-def]
        kinds.setdefault(effect.payload[1], []).append(effect.payload)
        send(member, effect)

    mesh.send = tap
    for step in range(30):
        member = mesh.members[step % 3]
        mesh.see(step % 3, detection(member.local_ns(mesh.now_ns), step, step * 100, 0))
        mesh.command(step % 3, Count((("frames", 1),)))
        mesh.command(step % 3, SetNote(f"k{step % 4}", b"v" * step))
        mesh.command(step % 3, StatusReport(b"status"))
        mesh.run(0.2)
    return mesh, [payload for payloads in kinds.values() for payload in payloads[:30]]


def _state_at_a_replica() -> Fuzzed:
    mesh, payloads = caught()
    victim, sender = mesh.members[0], mesh.members[1].node
    clock = [victim.local_ns(mesh.now_ns)]

    def target(data: bytes) -> None:
        clock[0] += 1_000
        victim.replica.on_message(sender, data, clock[0])

    return Fuzzed(payloads, target, 4)


def _state_bodies() -> Fuzzed:
    found = []
    for payload in caught()[1]:
        message = state.decode(payload)
        if isinstance(message, state.Batches):
            found += [raw[HEAD_BYTES:-SIGNATURE_BYTES] for raw in message.raws]
            found += message.raws
    readers = (decode_facts, decode_counters, decode_events, decode_leases, state.decode, open_batch)
    return Fuzzed(found, refusing(*readers, by=(WireError,)))


def _reviews() -> Fuzzed:
    """What operators say: statements, their payloads, bodies that hold them; what reads back is what was said."""
    made = [
        review("confirm", by="alice"),
        review("relabel", "crack", asset="t03-m17"),
        review("note", "ask the technician", revision=7),
        Review("mesh", bytes(16), "hot-spot", LATTICE, (-3, 41), "reject", "", "hot-spot", bytes(8), 2, 1_000, "bob"),
    ]
    statements = [signed(one, ALICE) for one in made]
    bodies = [encode_facts(Facts(reviews=[open_review(one) for one in statements[:2]]))]

    def same(data: bytes) -> None:
        said = open_review(data)
        assert encode_review(said.review) == data[KEY_BYTES + SIGNATURE_BYTES :], "one statement, one encoding"
        said.holds(CRYPTO.verify)

    readers = (same, read_review, decode_facts)
    return Fuzzed([*statements, *map(encode_review, made), *bodies], refusing(*readers, by=(WireError,)))


# --- Releases ----------------------------------------------------------------------------------------------------


def _release_statements() -> Fuzzed:
    payload = make_release().payload()
    corpus = [
        Keys().sign("release", payload, "release").encode(),
        payload,
        Keys().root(),
        Report(b"k" * 32, "m", 1, b"", 0, 0, "idle", b"", Verdict.NONE, 0, 0, "").payload(),
        Floor("m", 1, 3).payload(),
        Revoke("m", 1, b"r" * 32).payload(),
    ]
    readers = (
        decode_envelope,
        parse_release,
        lambda data: roots.RootChain.trust(data, CRYPTO),
        parse_report,
        lambda data: parse_statement("floor", data),
        lambda data: parse_statement("model-revoke", data),
    )
    return Fuzzed(corpus, refusing(*readers, by=(WireError, IdentityError)), 2)


def _release_messages() -> Fuzzed:
    corpus = [
        messages.encode_message(messages.Chunk(b"12345678", 3, b"data" * 20)),
        messages.encode_message(messages.Have(1, b"12345678", b"", True)),
    ]
    return Fuzzed(corpus, refusing(messages.decode_message, by=(WireError,)))


def _offload_messages() -> Fuzzed:
    said = offload_swarm.vectors()
    corpus = [offload.encode_message(message) for message in said.values()]
    corpus += [message.body for message in said.values() if isinstance(message, offload.Offered)]
    return Fuzzed(corpus, refusing(offload.decode_message, offload.decode_descriptor, by=(WireError,)), 2)


def _offload_at_a_node() -> Fuzzed:
    """Whatever a member says to a device that lends and borrows, in the middle of requests."""
    corpus = [offload.encode_message(message) for message in offload_swarm.vectors().values()]
    swarm = offload_swarm.Swarm(3)
    swarm.keeps = set(offload_swarm.NODES)
    swarm.borrow(local_ns=20 * offload_swarm.MS)
    swarm.turn()

    def read(data: bytes) -> None:
        for node in (0, 1):
            swarm.nodes[offload_swarm.NODES[node]].on_message(offload_swarm.NODES[2], data, swarm.now_ns)

    return Fuzzed(corpus, read, 4)


def one_layer() -> bytes:
    """A model file of a few kilobytes: the smallest weighted layer of the zoo's, so that a delta applies in no time."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    whole = ZOO_MODEL.read_bytes()
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(whole, 0))
    graph = model.subgraphs[0]
    for buffer in model.buffers:  # Some lie behind the FlatBuffer.
        if buffer.offset > 1:
            buffer.data = np.frombuffer(whole, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0

    def weights(operator: object) -> int:
        held = [model.buffers[graph.tensors[at].buffer].data for at in operator.inputs if at >= 0]  # type: ignore[attr-defined]
        return max((len(data) for data in held if data is not None), default=0)

    layer = min((one for one in graph.operators if weights(one) >= 256), key=weights)
    used = sorted({int(at) for at in [*layer.inputs, *layer.outputs] if at >= 0})
    graph.operators, graph.tensors = [layer], [graph.tensors[at] for at in used]
    layer.inputs = [used.index(int(at)) for at in layer.inputs if at >= 0]
    layer.outputs = [used.index(int(at)) for at in layer.outputs]
    graph.inputs, graph.outputs = layer.inputs[:1], layer.outputs
    model.buffers = [model.buffers[0], *(model.buffers[tensor.buffer] for tensor in graph.tensors)]
    for at, tensor in enumerate(graph.tensors):
        tensor.buffer = at + 1
    model.metadata = model.signatureDefs = None
    builder = flatbuffers.Builder(8_192)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _deltas() -> Fuzzed:
    old = one_layer()
    new = tuned(old, 0.05)

    def target(data: bytes) -> None:
        with contextlib.suppress(DeltaError):
            assert len(codec.apply_delta(old, data, len(new))) == len(new)

    return Fuzzed(list(codec.make_all(old, new).values()), target, 4)


def _flatbuffers() -> Fuzzed:
    def target(data: bytes) -> None:
        with contextlib.suppress(DeltaError):
            assert all(one.start + one.size <= len(data) for one in flatbuffer.regions(data))
            flatbuffer.operators(data)

    return Fuzzed([one_layer()], target)


def _files_at_rest() -> Fuzzed:
    slot = slots.fresh_slot(b"r" * 32, {"model.tflite": b"d" * 32}, "model.tflite")
    record = slots.encode_record(slots.Record(sequence=3, active=slot))
    data, key = bytes(range(256)) * 8, b"k" * 32
    digest = at_rest.sha256(data).digest()

    def target(damaged: bytes) -> None:
        slots.decode_record(damaged)
        made = at_rest.unseal(damaged, digest, key)
        assert made is None or made == data
        verify_lines(damaged.decode("utf-8", "replace").splitlines())

    line = b'{"hash": "x", "n": 1, "prev": "0", "t_s": 0, "what": "accepted"}'
    return Fuzzed([record, at_rest.seal(data, digest, key), line], target)


# --- Eye and transports ------------------------------------------------------------------------------------------


def _eye_messages() -> Fuzzed:
    def target(data: bytes) -> None:
        with contextlib.suppress(EyeError):
            for body in Splitter().feed(data):
                for read in (decode_from_eye, decode_to_eye):
                    with contextlib.suppress(EyeError):
                        read(body)

    corpus = [Configure("s", "m"), Stats({"a": 1}, {"b": 1.0}), FrameDone(1, 2, 3, 4, 0.5, (), {})]
    return Fuzzed([encode_ipc(one) for one in corpus], target)


def _eye_files() -> Fuzzed:
    import io
    import zipfile

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labels.txt", "one\ntwo\n")

    calibration = b"image_width: 640\nimage_height: 480\nK: [430, 0, 306, 0, 430, 227, 0, 0, 1]\nD: [-0.3, 0.1, 0, 0]\n"

    def target(data: bytes) -> None:
        embedded_labels(data)
        assert len(of_any_batch(data) or data) == len(data)
        read_header(data)
        kelvin_of(data)
        with contextlib.suppress(ValueError):
            parse_calibration(data.decode())

    pictures = [b"\xff\xd8\xff\xc0\0\x0b\x08\0\x10\0\x20\x01", b"P5 640 512 255\n", b"BM" + bytes(28)]
    pictures.append(b"\xff\xd8\xff\xe1\0\x30FLIR\0\x01\0\0FFF\0" + bytes(32))
    return Fuzzed([b"TFL3" * 10 + packed.getvalue(), calibration, *pictures], target)


def _bundles() -> Fuzzed:
    folder = Path(tempfile.mkdtemp(prefix="swarmd-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "b.toml"
    copy_what_the_zoo_names(folder)
    path.write_bytes(ZOO_TOML.read_bytes())
    load_bundle(path)

    def target(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(ModelError):
            load_bundle(path)

    return Fuzzed([ZOO_TOML.read_bytes()], target, 10)


def _transport_frames() -> Fuzzed:
    corpus = [
        encode_frame("10.0.0.1:7946", b"payload"),
        *(routing_id_of(one, "10.0.0.1:7946") for one in PATHS.values()),
        b"swC1" + cast_tag("farm") + bytes(8) + b"\x1f\x0a" + bytes([0x10 | CAST]) + bytes(60),
    ]

    return Fuzzed(corpus, refusing(decode_frame, decode_cast, parse_routing_id, by=()))


def _past_corpus() -> list[bytes]:
    said = [past.encode_message(message) for message in past_vectors.vectors().values()]
    return [*said, *past_vectors.signed().values()]


def _past_messages() -> Fuzzed:
    return Fuzzed(_past_corpus(), refusing(past.decode_message, read_page, by=(WireError,)))


def _past_at_a_node() -> Fuzzed:
    """Words about the past, at a node that gives and at one that has a question open; nothing unsigned is kept."""
    world = past_world.World(3)
    own = past_world.minutes(world.members[1].identity, 3)
    world.keep(1, own)
    for member in world.members:
        member.lie = lambda message: None
    world.want(0, past_world.BEGIN_MS, past_world.BEGIN_MS + 180_000)
    world.run(2)

    def read(data: bytes) -> None:
        for node in (0, 1):
            member = world.members[node]
            world.perform(node, member.past.on_message(world.members[2].node, data, world.now_ns))
        world.run(0.01)
        assert not world.members[0].shelf.pages

    return Fuzzed(_past_corpus(), read, 4)


TARGETS: dict[str, Callable[[], Fuzzed]] = {
    "bodies": _bodies,
    "frames": _frames,
    "statements": _statements,
    "datagrams-at-a-node": lambda: _node(DatagramReceived),
    "streams-at-a-node": lambda: _node(StreamReceived),
    "sealed-at-a-node": _sealed,
    "journals": _journals,
    "state-at-a-replica": _state_at_a_replica,
    "state-bodies": _state_bodies,
    "reviews": _reviews,
    "release-statements": _release_statements,
    "release-messages": _release_messages,
    "offload-messages": _offload_messages,
    "offload-at-a-node": _offload_at_a_node,
    "past-messages": _past_messages,
    "past-at-a-node": _past_at_a_node,
    "relay-messages": lambda: Fuzzed(relay_targets.corpus(), refusing(decode_relayed, by=(WireError,))),
    "relay-at-a-node": lambda: Fuzzed(relay_targets.corpus(), relay_targets.at_a_node(), 4),
    **{name: lambda make=make: Fuzzed(*make(), 10) for name, make in mesh_targets.MAKERS.items()},  # type: ignore[misc]
    "federation": lambda: Fuzzed(federation_targets.corpus(), federation_targets.at_a_gate(), 6),
    "learning": lambda: Fuzzed(learning_targets.corpus(), learning_targets.at_a_member()),
    "neighbours": lambda: Fuzzed(neighbour_targets.corpus(), neighbour_targets.at_a_swarm(), 6),
    "deltas": _deltas,
    "flatbuffers": _flatbuffers,
    "files-at-rest": _files_at_rest,
    "eye-messages": _eye_messages,
    "eye-files": _eye_files,
    "bundles": _bundles,
    **{name: lambda make=make: Fuzzed(*make()) for name, make in inference_targets.MAKERS.items()},  # type: ignore[misc]
    "transport-frames": _transport_frames,
    "prepared-statements": lambda: Fuzzed(key_targets.prepared_corpus(), key_targets.read_prepared, 20),
    "officers-keys": lambda: Fuzzed(key_targets.key_corpus(), key_targets.read_keys),
    "labels-json": lambda: Fuzzed(label_targets.json_corpus(), label_targets.read_json),
    "labels-xml": lambda: Fuzzed([label_targets.CVAT], label_targets.read_xml),
    "labels-voc": lambda: Fuzzed([label_targets.VOC], label_targets.read_voc_xml),
    "joining": lambda: Fuzzed(key_targets.joining_corpus(), key_targets.read_joining, 10),
}
