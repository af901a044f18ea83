"""Images of a request: looked at once for each set of weights, then read chunk by chunk with the prompt."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from slime.engines.requests import ImageData, RequestError
from slime.errors import DataError
from slime.vision.files import ProcessedImage
from slime.vision.models import Features, PlacedImages, joined
from slime.vision.place import ImagePlace, problem
from slime.vision.positions import rope_positions, shift_behind


@dataclass(frozen=True)
class StepImages:
    """What a step reads of one prompt with images.

    Attributes:
        offset: of its tokens in the flattened batch. positions: [3, n] of them.
        at: offsets of those that stand for images [K], and what they show; None: none does.
    """

    offset: int
    positions: Tensor
    at: Tensor
    features: Features | None


@dataclass
class PromptImages:
    """The images of one request.

    Attributes:
        shift: what is added to the place of a token behind the prompt to get its position.
        features: of the weights that read the prompt; None until it is read, and once it is.
    """

    images: Sequence[ProcessedImage]
    places: Sequence[ImagePlace]
    positions: Tensor
    shift: int
    features: Features | None = field(default=None, init=False)

    def look(self, placed: PlacedImages, device: torch.device) -> None:
        """Runs the vision of the model's present weights over all images."""
        pixels = torch.cat([image.pixel_values for image in self.images]).to(device)
        grids = torch.tensor([image.grid for image in self.images], device=device)
        self.features = placed.look(pixels, grids)

    def of_chunk(self, first: int, last: int, offset: int) -> StepImages:
        """Of tokens [first, last) of prompt and answer, the first of which stands at `offset`."""
        prompt = self.positions[:, first:last]
        begin = max(first, self.positions.shape[1])
        behind = torch.arange(begin, max(begin, last)) + self.shift
        positions = torch.cat([prompt, behind.expand(3, -1)], dim=1)
        tokens = torch.cat([torch.arange(place.start, place.end) for place in self.places])
        low, high = int((tokens < first).sum()), int((tokens < last).sum())
        features = None if low == high or self.features is None else self.features.part(low, high)
        return StepImages(offset, positions, tokens[low:high] - first + offset, features)


def image_inputs(placed: PlacedImages, positions: Tensor, images: Sequence[StepImages]) -> dict[str, Any]:
    """Positions [3, 1, N] and what vision made of the images, for a forward pass; puts the images in place.

    Args:
        positions: [1, N] of text.
    """
    found = positions.repeat(3, 1)
    for part in images:
        found[:, part.offset : part.offset + part.positions.shape[1]] = part.positions.to(found.device)
    shown = [(part.at, part.features) for part in images if part.features is not None]
    placed.at = torch.cat([at for at, _ in shown]).to(found.device) if shown else None
    inputs: dict[str, Any] = {"position_ids": found.unsqueeze(1)}
    if shown:
        inputs["mm_encoder_outputs"] = {"image": joined([features for _, features in shown])}
    return inputs


def images_of_prompt(
    data: Sequence[ImageData], prompt: int, placed: PlacedImages | None
) -> PromptImages | None:
    """What a request brings, checked; None: no images.

    Raises:
        RequestError: images that the model does not take, that are broken, or that do not fit `prompt` tokens.
    """
    if not data:
        return None
    if placed is None:
        raise RequestError("image_data: the model takes no images")
    images, places = [], []
    for number, one in enumerate(data):
        try:
            images.append(ProcessedImage.from_bytes(base64.b64decode(one.data, validate=True)))
            frames, rows, columns = images[-1].grid
            length = frames * rows * columns // placed.merge**2
            places.append(ImagePlace(one.start, length, images[-1].grid, str(number)))
        except (DataError, ValueError, binascii.Error) as error:
            raise RequestError(f"image_data[{number}]: {error}") from error
        if images[-1].pixel_values.shape[1] != placed.patch or places[-1].merge != placed.merge:
            raise RequestError(f"image_data[{number}]: the model takes patches of {placed.patch} numbers")
    if wrong := problem(places, prompt, prompt, ()):
        raise RequestError(f"image_data: {wrong}")
    return PromptImages(images, places, rope_positions(prompt, places), shift_behind(prompt, places))
