"""One small picture when somebody on the broker asks for it, and none otherwise."""

import asyncio
from collections.abc import Callable

from swarmd.api.daemon import DaemonView, PictureSeen

INTERVAL_MS, WIDTH, QUALITY = 1_000, 640, 70
"""As recordings have them, some 40 KiB."""
WAIT_S = 10.0
"""Seconds that an eye may take for it; one that is asked for meanwhile is the same one."""


class PictureOnDemand:
    """Has the eye show its next frame."""

    def __init__(self, show: Callable[[bytes], None]) -> None:
        """Prepare.

        Args:
            show: Called with the JPEG, in which people, faces and plates are unreadable.
        """
        self._show = show
        self._end: Callable[[], None] | None = None

    def ask(self, daemon: DaemonView) -> None:
        """Wait for the next frame, unless that is done already."""
        if self._end is None:
            self._end = daemon.watch_pictures(self._on_picture, INTERVAL_MS, WIDTH, QUALITY)
            asyncio.get_running_loop().call_later(WAIT_S, self.close)

    def close(self) -> None:
        """Wait no longer; may be called twice."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def _on_picture(self, picture: PictureSeen) -> None:
        if self._end is not None:
            self.close()
            self._show(picture.jpeg)
