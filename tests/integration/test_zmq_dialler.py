"""A peer that talks back to a dialling socket and then breaks the connection ends nothing but the connection."""

import socket
import struct
import subprocess
import sys
import threading

DIALLER = """
import sys, time, zmq
from swarmd.transports.zmq_dialler import set_options
sock = zmq.Context().socket(zmq.ROUTER)
set_options(sock)
sock.setsockopt(zmq.CONNECT_ROUTING_ID, b"peer")
sock.connect(f"tcp://127.0.0.1:{sys.argv[1]}")
time.sleep(5)
"""
GREETING = b"\xff" + bytes(8) + b"\x7f" + bytes([3, 1]) + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"ROUTER"
COMMAND = bytes([4, len(READY)]) + READY
WORD = bytes([0, 1]) + b"x"


def _talk_back_and_break(listening: socket.socket, stop: threading.Event) -> None:
    """Shake hands as ZMTP 3.1 has it, send more than the pipe holds, and reset, at every connection."""
    listening.settimeout(0.2)
    while not stop.is_set():
        try:
            peer, _ = listening.accept()
        except TimeoutError:
            continue
        peer.sendall(GREETING + COMMAND)
        stop.wait(0.3)
        peer.sendall(WORD * 20_000)
        stop.wait(0.3)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()


def test_a_peer_that_talks_back_and_breaks_off_does_not_end_the_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()
        thread = threading.Thread(target=_talk_back_and_break, args=(listening, stop))
        thread.start()
        try:
            ended = subprocess.run(
                [sys.executable, "-c", DIALLER, str(listening.getsockname()[1])], capture_output=True, timeout=60
            )
        finally:
            stop.set()
            thread.join()
    assert ended.returncode == 0, ended.stderr.decode()
