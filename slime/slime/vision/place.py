"""The position of an image among the tokens of a sample. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast


@dataclass(frozen=True)
class ImagePlace:
    """An image that occupies the tokens [start, start + length) of a sample.

    Attributes:
        grid: frames (1), rows and columns of its patches.
        file: the processed image (`slime.vision.files`), named by its content; or the picture as a data URL, which the
            trainer processes.
    """

    start: int
    length: int
    grid: tuple[int, int, int]
    file: str

    def __post_init__(self) -> None:
        frames, rows, columns = self.grid
        merged = self.merge**2 * self.length
        if self.start < 0 or frames != 1 or min(rows, columns, self.length) < 1 or merged != rows * columns:
            raise ValueError(
                f"{self.length} tokens from {self.start} on do not fit an image of {self.grid} patches"
            )

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def merge(self) -> int:
        """Returns the rows (and columns) of patches per token."""
        return max(1, math.isqrt(self.grid[1] * self.grid[2] // self.length))

    def moved(self, tokens: int) -> ImagePlace:
        """Returns the same image, shifted by this many tokens."""
        return replace(self, start=self.start + tokens)

    @classmethod
    def of(cls, data: ImagePlace | Mapping[str, object]) -> ImagePlace:
        """Returns an image from the plain data of a stored sample. Raises ValueError or TypeError for invalid
        data."""
        if isinstance(data, ImagePlace):
            return data
        fields = cast("dict[str, Any]", {**data})
        return cls(**{**fields, "grid": tuple(fields["grid"])})


def problem(places: Sequence[ImagePlace], tokens: int, prompt: int, mask: Sequence[int]) -> str | None:
    """Returns the fault of a sample's images, or None. Images must be in order and inside the tokens, each in the
    prompt or after it, and their tokens must not be trained.

    Args:
        prompt: number of tokens before the response.
        mask: the loss mask [R].
    """
    end_before = 0
    for place in places:
        if place.start < end_before or place.end > tokens:
            return f"image {place.file} at {place.start} overlaps another or leaves the {tokens} tokens"
        if place.start < prompt < place.end:
            return f"image {place.file} at {place.start} begins in the prompt and ends behind it"
        if place.start >= prompt and any(mask[place.start - prompt : place.end - prompt]):
            return f"image {place.file} at {place.start} stands where tokens are trained"
        end_before = place.end
    return None


def behind(places: Iterable[ImagePlace], tokens: int) -> list[ImagePlace]:
    """Returns the images shifted to positions after this many tokens."""
    return [place.moved(tokens) for place in places]
