"""Picture files without metadata.

Nothing here uses metadata, and decoders read it slowly: EXIF of 300 KB keeps Pillow busy for many seconds, and a chunk of
1 KB in a PNG expands to 1 MiB.
"""

from __future__ import annotations

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
MOST_CHUNKS = 20_000
"""Most chunks of a PNG."""
MOST_SEGMENTS = 1000
"""Most segments of a JPEG before its pixels, and bytes between them."""
_ONCE, _PIXELS, _END = (b"IHDR", b"PLTE", b"tRNS"), b"IDAT", b"IEND"
_METADATA = frozenset({*range(0xE1, 0xEE), 0xEF, 0xFE})
"""JPEG markers of application data and comments, except JFIF's and Adobe's, which define the colours."""
_WITHOUT_LENGTH = frozenset({0x00, 0x01, *range(0xD0, 0xD9), 0xFF})
_SCAN = 0xDA


def without_metadata(data: bytes) -> bytes:
    """Returns a PNG or JPEG without metadata, with the same pixels; other data unchanged.

    Raises ValueError if the file has too many parts, or no pixels.
    """
    if data.startswith(_PNG):
        return _png(data)
    return _jpeg(data) if data.startswith(_JPEG) else data


def _png(data: bytes) -> bytes:
    kept, position, seen = [_PNG], len(_PNG), set[bytes]()
    for _ in range(MOST_CHUNKS):
        kind = data[position + 4 : position + 8]
        end = position + 12 + int.from_bytes(data[position : position + 4])
        if kind in _ONCE:
            if kind in seen:
                raise ValueError(f"the PNG has several chunks {kind.decode()}")
            seen.add(kind)
        if kind in (*_ONCE, _PIXELS, _END):
            kept.append(data[position:end])
        if kind == _END or end >= len(data):
            return b"".join(kept)
        position = end
    raise ValueError(f"the PNG has more than {MOST_CHUNKS} chunks")


def _jpeg(data: bytes) -> bytes:
    kept, position = [_JPEG], len(_JPEG)
    for _ in range(MOST_SEGMENTS):
        position = data.find(b"\xff", position)
        if position < 0 or position + 4 > len(data):
            raise ValueError("the JPEG has no pixels")
        kind = data[position + 1]
        if kind in _WITHOUT_LENGTH:
            position += 1
            continue
        if kind == _SCAN:
            return b"".join((*kept, data[position:]))
        end = position + 2 + int.from_bytes(data[position + 2 : position + 4])
        if kind not in _METADATA:
            kept.append(data[position:end])
        position = end
    raise ValueError(f"the JPEG has more than {MOST_SEGMENTS} segments")
