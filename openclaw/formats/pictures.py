"""The tokens of pictures: how many a vision model reads for a picture of a given size, and their place in a prompt.

The gateway computes these from the sizes alone. Engines and trainers process the pictures, and reject a prompt with
another number of tokens.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_base.files import read_object
from claw_base.image_marks import VISION_MODEL_TYPES
from openclaw.errors import ClientError
from openclaw.types import PlacedPicture

log = logging.getLogger(__name__)

LONGEST_SIDES = 200
"""Most times that one side of a picture may be as long as the other, as in Qwen's processor."""


@dataclass(frozen=True)
class PictureFormat:
    """How a model reads pictures. `mark`: id of the token that stands for a picture's part; `patch`: pixels of a
    patch's side; `merge`: rows, and columns, of patches a token; `least`, `most`: pixels of a picture after scaling."""

    mark: int
    patch: int
    merge: int
    least: int
    most: int

    @classmethod
    def of(cls, folder: Path) -> PictureFormat | None:
        """Returns the format of a model folder; None for a model that reads no pictures, also if its folder lacks the
        configuration for them."""
        config = read_object(folder / "config.json") or {}
        if config.get("model_type") not in VISION_MODEL_TYPES:
            return None
        made = read_object(folder / "preprocessor_config.json") or {}
        vision = config.get("vision_config", {})
        size = made.get("size") or {}
        try:
            return cls(
                mark=int(config["image_token_id"]),
                patch=int(made.get("patch_size") or vision["patch_size"]),
                merge=int(made.get("merge_size") or vision["spatial_merge_size"]),
                least=int(made.get("min_pixels") or size["shortest_edge"]),
                most=int(made.get("max_pixels") or size["longest_edge"]),
            )
        except (KeyError, TypeError, ValueError):
            log.warning(
                "%s does not define how its pictures are processed: it is served as a text model", folder
            )
            return None

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Returns rows and columns of patches of a picture of this size in pixels, scaled as Qwen's processor does: both
        sides become multiples of a token's side, and the area stays between `least` and `most`. Raises ClientError."""
        side = self.patch * self.merge
        if max(width, height) > LONGEST_SIDES * min(width, height):
            raise ClientError(
                f"messages: a picture of {width} x {height} pixels is too narrow: one side is more than {LONGEST_SIDES} "
                "times the other",
                "messages",
                "invalid_picture",
            )
        rows, columns = round(height / side), round(width / side)
        if rows * columns * side**2 > self.most:
            scale = math.sqrt(height * width / self.most)
            rows, columns = (max(1, math.floor(length / scale / side)) for length in (height, width))
        elif rows * columns * side**2 < self.least:
            scale = math.sqrt(self.least / (height * width))
            rows, columns = (math.ceil(length * scale / side) for length in (height, width))
        return rows * self.merge, columns * self.merge

    def widened(self, ids: Sequence[int], parts: Sequence[Mapping[str, Any]]) -> list[int]:
        """Returns rendered ids [T] with the last marks, one for each of `parts`, repeated for every token of their
        pictures. Raises ClientError if a template omits a picture."""
        widened = list(ids)
        at = len(widened)
        for part in reversed(parts):
            at -= 1
            while at >= 0 and widened[at] != self.mark:
                at -= 1
            if at < 0:
                raise ClientError(
                    "messages: the chat template of this model leaves out a picture", "messages"
                )
            widened[at : at + 1] = [self.mark] * self._tokens(part)
        return widened

    def placed(self, ids: Sequence[int], parts: Sequence[Mapping[str, Any]]) -> list[PlacedPicture]:
        """Returns the places of the last pictures of a prompt, which are `parts`, among its ids [T]."""
        places, at = list[PlacedPicture](), len(ids)
        for part in reversed(parts):
            length = self._tokens(part)
            while ids[at - 1] != self.mark:
                at -= 1
            at -= length
            rows, columns = self.grid(part["width"], part["height"])
            places.append(PlacedPicture(at, length, rows, columns, part["sha256"]))
        return places[::-1]

    def _tokens(self, part: Mapping[str, Any]) -> int:
        rows, columns = self.grid(part["width"], part["height"])
        return rows * columns // self.merge**2
