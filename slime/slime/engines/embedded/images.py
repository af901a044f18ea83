"""Images of a request: encoded once per set of weights, then prefilled in chunks together with the prompt."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from slime.engines.requests import ImageData, RequestError
from slime.errors import ConfigError, DataError
from slime.vision.files import ProcessedImage
from slime.vision.models import Features, PlacedImages, joined
from slime.vision.place import ImagePlace, problem
from slime.vision.positions import position_shift_after, rope_positions
from slime.vision.reading import image_of_url


@dataclass(frozen=True)
class StepImages:
    """The part of a prompt with images in one step: n tokens, K of them image placeholders.

    Attributes:
        offset: offset of the first token in the flattened batch.
        positions: [3, n], positions of the tokens.
        at: [K], offsets of the placeholders in the flattened batch.
        features: the images' features for these placeholders; None if K is 0.
    """

    offset: int
    positions: Tensor
    at: Tensor
    features: Features | None


@dataclass
class PromptImages:
    """The images of one request.

    Attributes:
        shift: added to the index of a token after the prompt to get its position.
        features: the images' features by the live weights; None before and after the prompt is prefilled.
    """

    images: Sequence[ProcessedImage]
    places: Sequence[ImagePlace]
    positions: Tensor
    shift: int
    features: Features | None = field(default=None, init=False)

    def look(self, placed: PlacedImages, device: torch.device) -> None:
        """Encodes all images with the current weights."""
        pixels = torch.cat([image.pixel_values for image in self.images]).to(device)
        grids = torch.tensor([image.grid for image in self.images], device=device)
        self.features = placed.look(pixels, grids)

    def of_chunk(self, first: int, last: int, offset: int) -> StepImages:
        """Returns the part for tokens [first, last) of prompt and answer, at `offset` in the batch."""
        prompt = self.positions[:, first:last]
        begin = max(first, self.positions.shape[1])
        behind = torch.arange(begin, max(begin, last)) + self.shift
        positions = torch.cat([prompt, behind.expand(3, -1)], dim=1)
        tokens = torch.cat([torch.arange(place.start, place.end) for place in self.places])
        low, high = int((tokens < first).sum()), int((tokens < last).sum())
        features = None if low == high or self.features is None else self.features.part(low, high)
        return StepImages(offset, positions, tokens[low:high] - first + offset, features)


def image_inputs(placed: PlacedImages, positions: Tensor, images: Sequence[StepImages]) -> dict[str, Any]:
    """Returns the inputs of a forward pass: positions [3, 1, N] and the images' features. Sets `placed.at`.

    Args:
        positions: [1, N] of text.
    """
    rope = positions.repeat(3, 1)
    for part in images:
        rope[:, part.offset : part.offset + part.positions.shape[1]] = part.positions.to(rope.device)
    shown = [(part.at, part.features) for part in images if part.features is not None]
    placed.at = torch.cat([at for at, _ in shown]).to(rope.device) if shown else None
    inputs: dict[str, Any] = {"position_ids": rope.unsqueeze(1)}
    if shown:
        inputs["mm_encoder_outputs"] = {"image": joined([features for _, features in shown])}
    return inputs


@dataclass(frozen=True)
class PlacedImage:
    """A processed image at a position of a prompt."""

    start: int
    image: ProcessedImage


def with_images(
    ids: Sequence[int], data: Sequence[ImageData | str], placed: PlacedImages | None, folder: str
) -> tuple[list[int], list[PlacedImage]]:
    """Returns the prompt [T] and images of a request. Marks of pictures are repeated for every token of their image.

    Args:
        data: processed images, whose tokens `ids` contains, or pictures, each with one mark in `ids`.
        folder: of the model, which defines how pictures are processed.

    Raises:
        RequestError: the model does not support images, an image is damaged, or the numbers of marks and pictures
            differ.
    """
    if not data:
        return list(ids), []
    if placed is None:
        raise RequestError("image_data: the model does not support images")
    images = [_processed(number, one, folder) for number, one in enumerate(data)]
    if isinstance(data[0], ImageData):
        starts = [one.start for one in data if isinstance(one, ImageData)]
        return list(ids), list(map(PlacedImage, starts, images))
    if (marks := ids.count(placed.token)) != len(images):
        raise RequestError(f"image_data: input_ids has {marks} marks for {len(images)} pictures")
    left, prompt, placed_images = iter(images), list[int](), list[PlacedImage]()
    for token in ids:
        if token != placed.token:
            prompt.append(token)
            continue
        placed_images.append(PlacedImage(len(prompt), next(left)))
        prompt += [token] * (math.prod(placed_images[-1].image.grid) // placed.merge**2)
    return prompt, placed_images


def _processed(number: int, one: ImageData | str, folder: str) -> ProcessedImage:
    try:
        if isinstance(one, str):
            return image_of_url(folder, one)
        return ProcessedImage.from_bytes(base64.b64decode(one.data, validate=True))
    except (ConfigError, DataError, ValueError, binascii.Error) as error:
        raise RequestError(f"image_data[{number}]: {error}") from error


def images_of_prompt(
    data: Sequence[PlacedImage], prompt: int, placed: PlacedImages | None
) -> PromptImages | None:
    """Validates and returns the images of a request; None if it has none.

    Args:
        data: from `with_images`.
        prompt: tokens of the prompt.

    Raises:
        RequestError: an image does not fit the model, or its position does not fit the prompt.
    """
    if not data or placed is None:
        return None
    images, places = [one.image for one in data], []
    for number, one in enumerate(data):
        grid = one.image.grid
        try:
            places.append(ImagePlace(one.start, math.prod(grid) // placed.merge**2, grid, str(number)))
        except ValueError as error:
            raise RequestError(f"image_data[{number}]: {error}") from error
        if one.image.pixel_values.shape[1] != placed.patch or places[-1].merge != placed.merge:
            raise RequestError(f"image_data: each patch must have {placed.patch} numbers for this model")
    if wrong := problem(places, prompt, prompt, ()):
        raise RequestError(f"image_data: {wrong}")
    return PromptImages(images, places, rope_positions(prompt, places), position_shift_after(prompt, places))
