"""A GStreamer pipeline that serves frames over TCP, as one beside the daemon does for a CSI camera.

`python3 gst_server.py WIDTHxHEIGHT [PORT]`, by Debian's own Python: JPEG in Matroska at a port of loopback, which is
printed; ends with its standard input. Frames count up: the grey of frame n is 8 n mod 256.
"""

import importlib
import sys
import threading

INTERVAL_MS = 40


def main(size: str, port: int) -> int:
    gi = importlib.import_module("gi")
    gi.require_version("Gst", "1.0")
    GLib, Gst = (importlib.import_module(f"gi.repository.{name}") for name in ("GLib", "Gst"))
    Gst.init(None)
    width, height = (int(side) for side in size.split("x"))
    pipeline = Gst.parse_launch(
        f"appsrc name=src is-live=true do-timestamp=true format=time "
        f"caps=video/x-raw,format=GRAY8,width={width},height={height},framerate=25/1 "
        f"! videoconvert ! video/x-raw,format=I420 ! jpegenc ! matroskamux streamable=true "
        f"! tcpserversink name=sink host=127.0.0.1 port={port} recover-policy=latest sync-method=latest"
    )
    source, sink = pipeline.get_by_name("src"), pipeline.get_by_name("sink")
    state = {"n": 0}

    def push() -> bool:
        grey = 8 * state["n"] % 256
        state["n"] += 1
        buffer = Gst.Buffer.new_wrapped(bytes([grey]) * (width * height))
        return bool(source.emit("push-buffer", buffer) == Gst.FlowReturn.OK)

    pipeline.set_state(Gst.State.PLAYING)
    GLib.timeout_add(INTERVAL_MS, push)
    loop = GLib.MainLoop()

    def tell_port() -> bool:
        if sink.get_property("current-port") <= 0:
            return True
        print(sink.get_property("current-port"), flush=True)
        return False

    GLib.timeout_add(20, tell_port)

    def end_with_parent() -> None:
        sys.stdin.read()
        loop.quit()

    threading.Thread(target=end_with_parent, daemon=True).start()
    loop.run()
    pipeline.set_state(Gst.State.NULL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
