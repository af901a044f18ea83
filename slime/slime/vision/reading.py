"""Pictures of messages become processed images, and their marks in a prompt the tokens that they stand for."""

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

from slime.errors import ConfigError, DataError
from slime.vision.files import FOLDER, ProcessedImage, keep
from slime.vision.models import SEEING, sees
from slime.vision.place import ImagePlace

FORMATS = ("PNG", "JPEG", "WEBP")
MOST_PIXELS = 1 << 26
"""Of a picture, before it is scaled."""
KNOWN = 512
"""Pictures whose files are remembered."""


class ImageReader:
    """Processes images for one model's prompts. Thread-safe.

    Args:
        model: the folder of a model that sees.
        run_dir: of the run, which keeps the images.

    Raises:
        ConfigError: the model does not see, or its folder has no configuration for processing images.
    """

    def __init__(self, model: str, run_dir: str) -> None:
        from transformers import AutoConfig

        self.folder = Path(run_dir) / FOLDER
        config: Any = AutoConfig.from_pretrained(model, local_files_only=True, trust_remote_code=False)
        if not sees(config):
            raise ConfigError(
                f"a prompt has images, and {model} is a {config.model_type}; these see: {', '.join(SEEING)}"
            )
        self.processor = _processor(model)
        self.mark, self.merge = int(config.image_token_id), int(config.vision_config.spatial_merge_size)
        self._known: OrderedDict[str, tuple[tuple[int, int, int], str]] = OrderedDict()
        self._lock = threading.Lock()

    def placed(self, ids: Sequence[int], pictures: Sequence[str]) -> tuple[list[int], list[ImagePlace]]:
        """Returns ids [T] in which each picture's placeholder is repeated for each of its tokens, and the places of
        the images.

        Raises:
            DataError: another number of marks than of pictures, as where a text holds the mark; a picture that is none.
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
        """Grid and file of a picture's image."""
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
    """Returns the model's processed picture. Raises DataError for data that is no picture, or far too large."""
    made = processor(images=[_picture(url)], return_tensors="pt")
    frames, rows, columns = made["image_grid_thw"][0].tolist()
    return ProcessedImage(made["pixel_values"], (frames, rows, columns))


def _picture(url: str) -> Any:
    """Returns a picture in colours."""
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
            f"{folder} does not define how images are processed: {str(error).splitlines()[0]}"
        ) from error


@lru_cache(maxsize=4)
def load_reader(model: str, run_dir: str) -> ImageReader:
    """Returns the reader of a run, made once. Raises ConfigError."""
    return ImageReader(model, run_dir)
