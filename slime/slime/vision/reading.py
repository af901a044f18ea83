"""Pictures of messages become processed images, and their marks in a prompt the tokens that they stand for."""

from __future__ import annotations

import base64
import binascii
import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import xxhash

from slime.errors import ConfigError, DataError
from slime.vision.files import FOLDER, ProcessedImage, keep
from slime.vision.place import ImagePlace

FORMATS = ("PNG", "JPEG", "WEBP")
MOST_PIXELS = 1 << 26
"""Of a picture, before it is scaled."""
KNOWN = 512
"""Pictures whose files are remembered."""


def pictures_of(messages: object) -> list[str]:
    """Addresses of the pictures in messages as OpenAI's API has them, in their order: parts
    `{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}` of a content that is a list.

    Raises:
        DataError: a part of another kind than image_url and text.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return []
    return [url for message in messages for part in _parts(message) for url in _url(part)]


def _parts(message: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else ()


def _url(part: Mapping[str, Any]) -> Iterable[str]:
    kind = part.get("type")
    if kind not in ("text", "image_url"):
        raise DataError(f"a message has a part of type {kind!r}; text and image_url are known")
    if kind == "image_url":
        url = (part.get("image_url") or {}).get("url")
        if not isinstance(url, str):
            raise DataError("a part of type image_url names no url")
        yield url


class ImageReader:
    """Makes images of one model's prompts. Thread-safe.

    Args:
        model: the folder of a model that sees.
        run_dir: of the run, which keeps the images.

    Raises:
        ConfigError: the folder does not say how images are processed.
    """

    def __init__(self, model: str, run_dir: str) -> None:
        from transformers import AutoConfig

        self.folder = Path(run_dir) / FOLDER
        self.processor = _processor(model)
        config: Any = AutoConfig.from_pretrained(model, local_files_only=True)
        self.mark, self.merge = int(config.image_token_id), int(config.vision_config.spatial_merge_size)
        self._known: OrderedDict[str, tuple[tuple[int, int, int], str]] = OrderedDict()
        self._lock = threading.Lock()

    def placed(self, ids: Sequence[int], pictures: Sequence[str]) -> tuple[list[int], list[ImagePlace]]:
        """Ids [T] in which each picture's one mark has become as many as it has tokens, and where its image stands.

        Raises:
            DataError: another number of marks than of pictures, as where a text holds the mark; a picture that is none.
        """
        marks = list(ids).count(self.mark)
        if marks != len(pictures):
            raise DataError(f"the prompt has {marks} marks for {len(pictures)} images; no text may hold one")
        left, found, places = iter(pictures), list[int](), list[ImagePlace]()
        for token in ids:
            if token == self.mark:
                grid, file = self._image(next(left))
                length = grid[1] * grid[2] // self.merge**2
                places.append(ImagePlace(len(found), length, grid, file))
                found += [token] * length
            else:
                found.append(token)
        return found, places

    def _image(self, url: str) -> tuple[tuple[int, int, int], str]:
        key = xxhash.xxh3_128_hexdigest(url.encode())
        with self._lock:
            if key in self._known and Path(self._known[key][1]).is_file():
                self._known.move_to_end(key)
                return self._known[key]
        image = processed(self.processor, url)
        made = image.grid, str(keep(image, self.folder))
        with self._lock:
            self._known[key] = made
            while len(self._known) > KNOWN:
                self._known.popitem(last=False)
        return made


def processed(processor: Any, url: str) -> ProcessedImage:
    """What the model's processor makes of a picture. Raises DataError for what is no picture, or far too large."""
    made = processor(images=[_picture(url)], return_tensors="pt")
    frames, rows, columns = made["image_grid_thw"][0].tolist()
    return ProcessedImage(made["pixel_values"], (frames, rows, columns))


def _picture(url: str) -> Any:
    """A picture in colours."""
    from PIL import Image

    head, _, data = url.partition(",")
    if not (head.startswith("data:image/") and head.endswith(";base64")):
        raise DataError(
            f"pictures are data:image/png;base64,... and are not fetched from elsewhere: {url[:60]!r}"
        )
    try:
        picture = Image.open(io.BytesIO(base64.b64decode(data, validate=True)), formats=FORMATS)
        if picture.width * picture.height > MOST_PIXELS:
            raise DataError(f"a picture of {picture.width} x {picture.height} pixels is too large")
        return picture.convert("RGB")
    except (OSError, ValueError, binascii.Error, SyntaxError) as error:
        raise DataError(f"a message names a picture that cannot be read: {error}") from error


def _processor(folder: str) -> Any:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    try:
        return Qwen2VLImageProcessorPil.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder} does not say how images are processed: {str(error).splitlines()[0]}"
        ) from error


@lru_cache(maxsize=4)
def load_reader(model: str, run_dir: str) -> ImageReader:
    """The reader of a run, made once. Raises ConfigError."""
    return ImageReader(model, run_dir)
