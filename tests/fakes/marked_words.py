"""Searches all files of a folder for marked words, like a thief of the disk: also in compressed columns, unused
database pages and token ids."""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ZLIB_START = b"\x78"
LONGEST = 1 << 16
TENSORS = (".safetensors", ".distcp")


def files_with(folder: Path, words: Sequence[str], ids: Mapping[str, Sequence[int]]) -> dict[str, set[str]]:
    """Returns the words in each file below a folder, by path; files without any are omitted.

    Args:
        ids: token ids by name, searched in the formats of the store and of JSON files; a match counts as that name.
    """
    holding: dict[str, set[str]] = {}
    packed = {array("i", one).tobytes(): name for name, one in ids.items()}
    packed |= {", ".join(map(str, one)).encode(): name for name, one in ids.items()}
    packed |= {word.encode(): word for word in words}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            texts = [data] if path.suffix in TENSORS else list(texts_in(data))
            hits = {name for text in texts for needle, name in packed.items() if needle in text}
            if hits:
                holding[str(path.relative_to(folder))] = hits
    return holding


def texts_in(data: bytes) -> Iterator[bytes]:
    """Yields the content of a file as it is, and the parts of it that can be decompressed, up to `LONGEST` compressed
    bytes each."""
    yield data
    if data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    at = data.find(ZLIB_START)
    while at >= 0:
        try:
            yield zlib.decompressobj().decompress(data[at : at + LONGEST])
        except zlib.error:
            pass
        at = data.find(ZLIB_START, at + 1)
