"""Processes pictures in messages, and replaces their marks in a prompt by image tokens."""

from __future__ import annotations

import base64
import binascii
import io
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import xxhash

from claw_base.image_marks import VISION_MODEL_TYPES
from claw_base.picture_data import without_metadata
from slime.errors import ConfigError, DataError
from slime.vision.files import FOLDER, ProcessedImage, keep, read
from slime.vision.models import sees
from slime.vision.place import ImagePlace

DATA = "data:image/"
FORMATS = ("PNG", "JPEG", "WEBP")
MOST_PIXELS = 1 << 26
"""Pixel limit of a picture before scaling."""
KNOWN = 512
"""Number of pictures whose files are remembered."""


KEPT_OF_URLS = 8
"""Number of processed pictures that a process keeps in memory; a screenshot of two million pixels takes 50 MB."""


class ImageReader:
    """Processes images for one model's prompts. Thread-safe.

    Args:
        model: folder of a vision model.
        run_dir: run folder, which stores the images.

    Raises:
        ConfigError: the model has no supported vision, or its folder has no configuration for processing images.
    """

    def __init__(self, model: str, run_dir: str) -> None:
        from transformers import AutoConfig

        self.folder = Path(run_dir) / FOLDER
        config: Any = AutoConfig.from_pretrained(model, local_files_only=True, trust_remote_code=False)
        if not sees(config):
            raise ConfigError(
                f"a prompt has images, and {model} is a {config.model_type}; these see: {', '.join(VISION_MODEL_TYPES)}"
            )
        self.processor = _processor(model)
        self.mark, self.merge = int(config.image_token_id), int(config.vision_config.spatial_merge_size)
        self._known: OrderedDict[str, tuple[tuple[int, int, int], str]] = OrderedDict()
        self._lock = threading.Lock()

    def placed(self, ids: Sequence[int], pictures: Sequence[str]) -> tuple[list[int], list[ImagePlace]]:
        """Returns ids [T] in which each picture's mark is repeated for each of its tokens, and the places of the
        images.

        Raises:
            DataError: the numbers of marks and pictures differ, for example because a text contains the mark; or a
                picture is invalid.
        """
        marks = list(ids).count(self.mark)
        if marks != len(pictures):
            raise DataError(f"the prompt has {marks} marks for {len(pictures)} images; no text may hold one")
        left, widened, places = iter(pictures), list[int](), list[ImagePlace]()
        for token in ids:
            if token == self.mark:
                grid, file = self.image(next(left))
                length = grid[1] * grid[2] // self.merge**2
                places.append(ImagePlace(len(widened), length, grid, file))
                widened += [token] * length
            else:
                widened.append(token)
        return widened, places

    def image(self, url: str) -> tuple[tuple[int, int, int], str]:
        """Returns grid and file of a picture's image."""
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


def image_at(place: ImagePlace, model: str) -> ProcessedImage:
    """Returns the image at a place: from its file, or processed for the model in a folder. Raises ConfigError, and
    DataError for an image that has changed or does not fit its place."""
    if not place.file.startswith(DATA):
        return read(place.file)
    image = image_of_url(model, place.file)
    if image.grid != place.grid:
        raise DataError(
            f"a picture has {image.grid} patches for the trainer and {place.grid} in its sample: it would train on "
            "other tokens than were sampled from"
        )
    return image


@lru_cache(maxsize=KEPT_OF_URLS)
def image_of_url(model: str, url: str) -> ProcessedImage:
    """Returns the image of a picture as a data URL, processed for the model in a folder. Raises ConfigError, and
    DataError as `processed`."""
    return processed(_processor(model), url)


def processed(processor: Any, url: str) -> ProcessedImage:
    """Returns the picture processed for the model. Raises DataError if the data are not a picture or the picture is
    too large."""
    made = processor(images=[_picture(url)], return_tensors="pt")
    frames, rows, columns = made["image_grid_thw"][0].tolist()
    return ProcessedImage(made["pixel_values"], (frames, rows, columns))


def _picture(url: str) -> Any:
    """Returns a picture in RGB."""
    from PIL import Image

    head, _, data = url.partition(",")
    if not (head.startswith(DATA) and head.endswith(";base64")):
        raise DataError(
            f"pictures are data:image/png;base64,... and are not fetched from elsewhere: {url[:60]!r}"
        )
    try:
        plain = without_metadata(base64.b64decode(data, validate=True))
        picture = Image.open(io.BytesIO(plain), formats=FORMATS)
        if picture.width * picture.height > MOST_PIXELS:
            raise DataError(f"a picture of {picture.width} x {picture.height} pixels is too large")
        return picture.convert("RGB")
    except (OSError, ValueError, binascii.Error, SyntaxError) as error:
        raise DataError(f"a message names a picture that cannot be read: {error}") from error


@lru_cache(maxsize=4)
def _processor(folder: str) -> Any:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    try:
        return Qwen2VLImageProcessorPil.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder} does not define how images are processed: {str(error).splitlines()[0]}"
        ) from error


@lru_cache(maxsize=4)
def load_reader(model: str, run_dir: str) -> ImageReader:
    """Returns the reader of a run, created once. Raises ConfigError."""
    return ImageReader(model, run_dir)
