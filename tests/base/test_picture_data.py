"""Tests that decoders get pictures without metadata, with the same pixels."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from PIL import Image, ImageChops, PngImagePlugin

from claw_base.picture_data import MOST_CHUNKS, MOST_SEGMENTS, without_metadata

SIZE = (24, 16)
PNG_START = 8 + 25
"""Bytes of a PNG up to the end of its first chunk."""


def picture(mode: str = "RGB") -> Image.Image:
    gradient = Image.linear_gradient("L").resize(SIZE)
    return Image.merge("RGB", (gradient, gradient.rotate(90), gradient.rotate(180))).convert(mode)


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(without_metadata(data)), formats=["PNG", "JPEG", "WEBP"])
    image.load()
    return image


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def with_exif(jpeg: bytes, entries: int) -> bytes:
    """Returns a JPEG whose EXIF has many entries with the same 30,000 bytes, in several segments, and no JFIF."""
    after = 8 + 2 + 12 * entries + 4
    fields = b"".join(struct.pack(">HHII", tag, 7, 30_000, after) for tag in range(entries))
    exif = b"MM\0*" + struct.pack(">IH", 8, entries) + fields + bytes(30_004)
    parts = [exif[at : at + 60_000] for at in range(0, len(exif), 60_000)]
    segments = b"".join(b"\xff\xe1" + struct.pack(">H", len(part) + 8) + b"Exif\0\0" + part for part in parts)
    rest = 4 + int.from_bytes(jpeg[4:6])
    return jpeg[:2] + segments + jpeg[rest:]


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "RGBA", "LA", "I;16"])
def test_a_png_keeps_its_pixels(mode: str) -> None:
    image = picture("L").convert("I;16") if mode == "I;16" else picture(mode)
    text = PngImagePlugin.PngInfo()
    text.add_text("about", "x" * 1000, zip=True)
    data = saved(image, "PNG", pnginfo=text, dpi=(72, 72), icc_profile=bytes(500))
    kept = opened(data)
    assert (kept.mode, kept.size, kept.tobytes()) == (image.mode, image.size, image.tobytes())
    assert kept.info.keys() <= {"transparency"} and len(without_metadata(data)) < len(data)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_keeps_its_pixels(mode: str, progressive: bool) -> None:
    plain = saved(picture(mode), "JPEG", progressive=progressive)
    rich = saved(
        picture(mode),
        "JPEG",
        progressive=progressive,
        icc_profile=bytes(90_000),
        comment=b"c",
        exif=Image.Exif(),
    )
    assert opened(rich).convert("RGB").tobytes() == Image.open(io.BytesIO(plain)).convert("RGB").tobytes()
    assert not {"exif", "icc_profile", "comment"} & opened(rich).info.keys()


def test_a_photograph_with_several_pictures_is_its_first_one() -> None:
    data = saved(picture(), "MPO", save_all=True, append_images=[picture().rotate(90)])
    first = opened(data)
    assert (
        first.format == "JPEG"
        and not ImageChops.difference(first, opened(saved(picture(), "JPEG"))).getbbox()
    )


def test_pictures_in_other_formats_are_unchanged() -> None:
    for data in (saved(picture(), "WEBP"), saved(picture(), "GIF"), b"", b"text"):
        assert without_metadata(data) == data


def test_decoders_read_no_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("metadata was read")

    jpeg = with_exif(saved(picture(), "JPEG"), 2000)
    packed = zlib.compress(bytes(1 << 20))
    png = saved(picture(), "PNG")
    metadata = chunk(b"iCCP", b"k\0\0" + packed) + chunk(b"zTXt", b"k\0\0" + packed)
    monkeypatch.setattr(Image.Image, "getexif", fail)
    monkeypatch.setattr(PngImagePlugin, "_safe_zlib_decompress", fail)
    for data in (jpeg, png[:PNG_START] + metadata + png[PNG_START:], png[:-12] + metadata + png[-12:]):
        assert opened(data).size == SIZE
        with pytest.raises(AssertionError):
            Image.open(io.BytesIO(data)).load()


@pytest.mark.parametrize("part", [b"\xff\xe9\0\2", b"\xff\xff", b"\xff\xd0", b"\xff\0"])
def test_a_jpeg_of_too_many_parts_is_refused(part: bytes) -> None:
    data = saved(picture(), "JPEG")
    assert opened(data[:2] + part * 20 + data[2:]).size == SIZE
    with pytest.raises(ValueError, match="segments"):
        without_metadata(data[:2] + part * MOST_SEGMENTS + data[2:])


def test_a_png_of_too_many_chunks_is_refused() -> None:
    data = saved(picture(), "PNG")
    for part in (chunk(b"IDAT", b""), chunk(b"teSt", b"")):
        with pytest.raises(ValueError, match="chunks"):
            without_metadata(data[:PNG_START] + part * MOST_CHUNKS + data[PNG_START:])
    with pytest.raises(ValueError, match="IHDR"):
        without_metadata(data[:PNG_START] + data[8:])


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_truncated_pictures_raise_only_errors_of_decoders(form: str) -> None:
    data = saved(picture(), form)
    for length in range(len(data)):
        try:
            opened(data[:length])
        except (OSError, ValueError, SyntaxError):
            continue
        assert length > len(data) - 32
