"""GStreamer's RTSP server as a camera: run by Debian's own Python, which has its bindings.

`python3 rtsp_server.py [USER:PASSWORD]` serves JPEG over RTP at /cam on a free port of loopback, HEVC at /hevc where
GStreamer has x265, and each at …-changing as a camera that changes its size with every line that it is told; it prints
the port, and ends with its standard input. Frames count up: the grey of frame n is 8 n mod 256 of
/cam, 40 + (8 n mod 160) of the others.
"""

import importlib
import sys
import threading
from typing import Any

SIZE = (128, 96)
MARK = 232
"""Grey of the right half of a changed picture."""
JPEG = "jpegenc ! rtpjpegpay name=pay0 pt=26"
HEVC = (
    "x265enc tune=zerolatency speed-preset=ultrafast key-int-max=12 option-string=log-level=0 ! h265parse "
    "! rtph265pay name=pay0 pt=96 config-interval=-1"
)
"""A group of pictures of half a second, each with its parameters."""
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
    sizes: list[tuple[int, int]] = [SIZE]
    """Of the changing cameras; the last is what they give now."""

    def offer(path: str, encoder: str, is_changing: bool) -> Any:
        factory = GstRtspServer.RTSPMediaFactory()
        caps = "video/x-raw,format=GRAY8,width={},height={},framerate=25/1"
        factory.set_launch(
            f"( appsrc name=src is-live=true do-timestamp=true format=time caps={caps.format(*SIZE)} "
            f"! videoconvert ! video/x-raw,format=I420 ! {encoder} )"
        )
        factory.set_shared(True)

        def configure(_: object, media: Any) -> None:
            source = media.get_element().get_by_name_recurse_up("src")
            state: dict[str, Any] = {"n": 0, "size": SIZE}

            def push() -> bool:
                # Video has no black and no white: 40 to 192 there.
                grey = 8 * state["n"] % 256 if encoder is JPEG and not is_changing else 40 + 8 * (state["n"] % 20)
                state["n"] += 1
                if is_changing and state["size"] != sizes[-1]:
                    state["size"] = sizes[-1]
                    source.set_property("caps", Gst.Caps.from_string(caps.format(*sizes[-1])))
                width, height = state["size"]
                half = bytes([grey]) * (width // 2)
                row = half + (half if state["size"] == SIZE else bytes([MARK]) * (width // 2))
                buffer = Gst.Buffer.new_wrapped(row * height)
                return bool(source.emit("push-buffer", buffer) == Gst.FlowReturn.OK)

            GLib.timeout_add(INTERVAL_MS, push)

        factory.connect("media-configure", configure)
        server.get_mount_points().add_factory(path, factory)
        return factory

    factory = offer("/cam", JPEG, False)
    offer("/cam-changing", JPEG, True)
    offer("/hevc", HEVC, False)
    offer("/hevc-changing", HEVC, True)
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
    server.attach(None)
    loop = GLib.MainLoop()
    print(server.get_bound_port(), flush=True)

    def end_with_parent() -> None:
        for line in sys.stdin:
            wide, high = line.split()
            sizes.append((int(wide), int(high)))
        loop.quit()

    threading.Thread(target=end_with_parent, daemon=True).start()
    loop.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
