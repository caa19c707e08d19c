"""Pictures for the laws of thumbnails: as an eye makes them, and as somebody makes them who means harm."""

import cv2
import numpy as np

from swarmd_protocols.thumbs.form import HEIGHT_MAX, WIDTH_MAX


def jpeg(number: int = 0, width: int = WIDTH_MAX, height: int = HEIGHT_MAX, components: int = 3, *flags: int) -> bytes:
    """A soft picture that differs by its number."""
    rows, columns = np.mgrid[0:height, 0:width]
    image = ((rows * (1 + number % 5) + columns + 7 * number) % 256 // 2).astype(np.uint8)
    image[: 4 + number % 4, : 4 + number // 4 % 4] = 255 - number % 200
    if components == 3:
        image = np.dstack([image, 255 - image, image // 2])
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 40, *flags])[1].tobytes()


def with_size(data: bytes, width: int, height: int) -> bytes:
    """The same bytes, whose frame says another size: a decoder would make room for it."""
    at = data.index(b"\xff\xc0")
    return data[: at + 5] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + data[at + 9 :]


def with_segment(data: bytes, marker: int, content: bytes) -> bytes:
    """The same with one more segment behind the first."""
    return data[:2] + bytes((0xFF, marker)) + (len(content) + 2).to_bytes(2, "big") + content + data[2:]


def hostile() -> dict[str, bytes]:
    """What must not be kept, passed on or shown, by what is wrong with it."""
    good = jpeg(1)
    scan = good[good.index(b"\xff\xda") : -2]
    return {
        "nothing": b"",
        "a web page": b"<script>alert(1)</script>",
        "a vector graphic": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        "a PNG": cv2.imencode(".png", np.zeros((16, 16), np.uint8))[1].tobytes(),
        "a bomb": with_size(good, 65_500, 65_500),
        "too wide": with_size(good, 193, 144),
        "too high": with_size(good, 192, 145),
        "no width": with_size(good, 0, 144),
        "a larger picture": jpeg(1, 640, 480),
        "progressive": jpeg(1, 192, 144, 3, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        "restarts": jpeg(1, 192, 144, 3, cv2.IMWRITE_JPEG_RST_INTERVAL, 4),
        "metadata": with_segment(good, 0xE1, b"Exif\0\0 48.1 N 11.5 E"),
        "a comment": with_segment(good, 0xFE, b"<script>alert(1)</script>"),
        "a colour profile": with_segment(good, 0xE2, b"ICC_PROFILE\0" + bytes(64)),
        "two frames": good[:2] + good[good.index(b"\xff\xc0") : good.index(b"\xff\xc0") + 19] + good[2:],
        "two scans": good[:-2] + scan + b"\xff\xd9",
        "something behind it": good + b"PK\x03\x04",
        "something behind its end": good + b"<script></script>\xff\xd9",
        "no end": good[:-2],
        "no scan": good[: good.index(b"\xff\xda")] + b"\xff\xd9",
        "cut short": good[: len(good) // 8] + b"\xff\xd9",
        "too long": good[:-2] + bytes(6_200) + b"\xff\xd9",
    }
