"""Reads the pictures of a request: data URLs only, within limits, and checked to be pictures.

Pictures are never fetched: a URL in a message could name a server of the gateway's own network.
"""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from claw_base.picture_data import without_metadata
from openclaw.common.messages import Picture, PicturePart, picture_url
from openclaw.errors import ClientError

FORMATS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
"""Accepted formats, as Pillow names them."""
MOST_PICTURES = 32
"""Most pictures of one request, including those of its history."""
MOST_PIXELS = 1 << 24
"""Most pixels of one picture. A small file may hold billions of pixels, which would fill the memory."""
REMEMBERED = 10_000
SHOWN = 60


class RequestPictures:
    """The pictures of one request, by the SHA-256 of their bytes."""

    def __init__(self) -> None:
        self.known: dict[str, Picture] = {}
        self._count = 0

    def part(self, part: Mapping[str, Any], where: str) -> PicturePart | None:
        """Returns the part that replaces a client's picture; None for another part. Raises ClientError that names the
        part for a picture that is not accepted."""
        if isinstance(part, PicturePart):
            self._count_one(where)
            return part
        url = picture_url(part)
        if url is None:
            return None
        self._count_one(where)
        data = _bytes_of(url, where)
        media_type, width, height = _header(data, where)
        name = hashlib.sha256(data).hexdigest()
        self.known[name] = Picture(data, media_type)
        return PicturePart(name, media_type, width, height)

    def _count_one(self, where: str) -> None:
        self._count += 1
        if self._count > MOST_PICTURES:
            raise ClientError(
                f"{where}: at most {MOST_PICTURES} pictures in one request", where, "too_many_pictures"
            )


class CheckedPictures:
    """Checks each picture once: clients send those of a conversation again with every request. `REMEMBERED` pictures
    are known, by their SHA-256."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()

    def unknown(self, pictures: Mapping[str, Picture]) -> dict[str, Picture]:
        """Returns the pictures that were not checked yet."""
        return {name: picture for name, picture in pictures.items() if name not in self._known}

    def add(self, name: str) -> None:
        self._known[name] = None
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def check_whole(picture: Picture) -> None:
    """Decodes a picture completely; slow. Raises ClientError for a damaged one."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(without_metadata(picture.data)), formats=list(FORMATS)) as opened:
            opened.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ClientError(
            f"messages: a picture cannot be read: {error}", "messages", "invalid_picture"
        ) from error


def _bytes_of(url: str, where: str) -> bytes:
    if not url.startswith("data:image/"):
        raise ClientError(
            f"{where}: a picture must be a data URL (data:image/png;base64,...); this server fetches no URL, and got "
            f"{url[:SHOWN]!r}",
            where,
            "invalid_picture",
        )
    try:
        return Picture.of_url(url).data
    except ValueError as error:
        raise ClientError(f"{where}: the picture is not base64: {error}", where, "invalid_picture") from error


def _header(data: bytes, where: str) -> tuple[str, int, int]:
    """Returns media type, width and height of a picture, without decoding it."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(without_metadata(data)), formats=list(FORMATS)) as opened:
            width, height, form = opened.width, opened.height, str(opened.format)
    except UnidentifiedImageError as error:
        raise ClientError(f"{where}: not a picture in PNG, JPEG or WebP", where, "invalid_picture") from error
    except Image.DecompressionBombError as error:
        raise _too_large(where, str(error)) from error
    except (OSError, ValueError, SyntaxError) as error:
        raise ClientError(
            f"{where}: the picture cannot be read: {error}", where, "invalid_picture"
        ) from error
    if width * height > MOST_PIXELS:
        raise _too_large(where, f"{width} x {height} pixels")
    return FORMATS[form], width, height


def _too_large(where: str, size: str) -> ClientError:
    message = f"{where}: the picture is too large ({size}); at most {MOST_PIXELS} pixels"
    return ClientError(message, where, "picture_too_large")
