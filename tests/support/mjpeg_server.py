"""An HTTP server on loopback that streams JPEGs as cameras do, and can be cut, locked and given other pictures."""

import base64
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

import cv2
import numpy as np

BOUNDARY = "frame"


class MjpegServer:
    """Streams `picture(n)` at `/stream`; 404 elsewhere. Its port stays bound while it is cut."""

    def __init__(self, picture: Callable[[int], np.ndarray], interval_s: float = 0.02, user: str = "") -> None:
        """Bind a free port; `user` is "name:password" where one is wanted."""
        self.picture = picture
        self.is_open = threading.Event()
        self.is_open.set()
        self.sent = 0
        """Pictures that went out."""
        self._interval_s = interval_s
        self._user = user
        self._ended = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            """One connection."""

            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def authority(self) -> str:
        """Address and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """Of the stream, without a user."""
        return f"http://{self.authority}/stream"

    def __enter__(self) -> "MjpegServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self.is_open.clear()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = "Basic " + base64.b64encode(self._user.encode()).decode()
        if self._user and request.headers.get("Authorization") != wanted:
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="camera"')
            request.end_headers()
            return
        if request.path != "/stream" or not self.is_open.is_set():
            request.send_error(404 if request.path != "/stream" else 503)
            return
        request.send_response(200)
        request.send_header("Content-Type", f"multipart/x-mixed-replace; boundary={BOUNDARY}")
        request.end_headers()
        try:
            while self.is_open.is_set() and not self._ended.wait(self._interval_s):
                _, jpeg = cv2.imencode(".jpg", self.picture(self.sent))
                head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {jpeg.size}\r\n\r\n"
                request.wfile.write(head.encode() + jpeg.tobytes() + b"\r\n")
                self.sent += 1
        except OSError:
            return  # Who looked is gone.
