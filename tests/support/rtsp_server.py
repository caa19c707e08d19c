"""GStreamer's RTSP server as a camera: run by Debian's own Python, which has its bindings.

`python3 rtsp_server.py [USER:PASSWORD]` serves JPEG over RTP at /cam on a free port of loopback, prints the port, and
ends with its standard input. Frames count up: the grey of frame n is 8 n mod 256.
"""

import importlib
import sys
import threading
from typing import Any

WIDTH, HEIGHT = 128, 96
INTERVAL_MS = 40


def main(user: str) -> int:
    gi = importlib.import_module("gi")
    gi.require_version("Gst", "1.0")
    gi.require_version("GstRtspServer", "1.0")
    names = ("GLib", "Gst", "GstRtsp", "GstRtspServer")
    GLib, Gst, GstRtsp, GstRtspServer = (importlib.import_module(f"gi.repository.{name}") for name in names)

    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service("0")
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(
        f"( appsrc name=src is-live=true do-timestamp=true format=time "
        f"caps=video/x-raw,format=GRAY8,width={WIDTH},height={HEIGHT},framerate=25/1 "
        f"! videoconvert ! video/x-raw,format=I420 ! jpegenc ! rtpjpegpay name=pay0 pt=26 )"
    )
    factory.set_shared(True)

    def configure(_: object, media: Any) -> None:
        source = media.get_element().get_by_name_recurse_up("src")
        state = {"n": 0}

        def push() -> bool:
            grey = 8 * state["n"] % 256
            state["n"] += 1
            buffer = Gst.Buffer.new_wrapped(bytes([grey]) * (WIDTH * HEIGHT))
            return bool(source.emit("push-buffer", buffer) == Gst.FlowReturn.OK)

        GLib.timeout_add(INTERVAL_MS, push)

    factory.connect("media-configure", configure)
    if user:
        name, _, password = user.partition(":")
        auth, token = GstRtspServer.RTSPAuth(), GstRtspServer.RTSPToken()
        token.set_string("media.factory.role", "viewer")
        auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
        auth.add_digest(name, password, token)
        server.set_auth(auth)
        permissions = GstRtspServer.RTSPPermissions()
        for right in ("media.factory.access", "media.factory.construct"):
            permissions.add_permission_for_role("viewer", right, True)
        factory.set_permissions(permissions)
    server.get_mount_points().add_factory("/cam", factory)
    server.attach(None)
    loop = GLib.MainLoop()
    print(server.get_bound_port(), flush=True)

    def end_with_parent() -> None:
        sys.stdin.read()
        loop.quit()

    threading.Thread(target=end_with_parent, daemon=True).start()
    loop.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
