"""What a model that sees gets of a pack: tokens, positions, images."""

from __future__ import annotations

from typing import Any

import torch

from slime.training.core.packing import PackedBatch
from slime.vision.files import read
from slime.vision.models import PlacedImages
from slime.vision.place import ImagePlace


def inputs_with_images(placed: PlacedImages, packed: PackedBatch) -> dict[str, Any]:
    """Inputs of the model; its images are put in place.

    A pack without images gets a blank one behind all others, which nothing attends to and no loss looks at: vision runs
    on every rank or on none, because its weights are gathered from all.

    Raises:
        DataError: a file of an image is gone, or changed.
    """
    ids, device = packed.input_ids, packed.input_ids.device
    positions = packed.position_ids if packed.position_ids.ndim == 3 else packed.position_ids.expand(3, 1, -1)
    layout, images = packed.layout, packed.images
    if images:
        pixels = torch.cat([read(image.file).pixel_values for image in images])
        grids = [image.grid for image in images]
    else:
        blank = _blank(placed, ids.shape[1])
        ids = torch.cat([ids, torch.full((1, 1), placed.token, device=device)], dim=1)
        positions = torch.cat([positions, torch.zeros_like(positions[:, :, :1])], dim=2)
        layout, images, grids = (*layout, (1,)), (blank,), [blank.grid]
        pixels = torch.zeros(blank.grid[1] * blank.grid[2], placed.patch)
    places = [torch.arange(image.start, image.end) for image in images]
    placed.at = torch.cat(places).to(device)
    return {
        "input_ids": ids,
        "position_ids": positions,
        "packed_layout": layout,
        "pixel_values": pixels.to(device),
        "image_grid_thw": torch.tensor(grids, device=device),
    }


def _blank(placed: PlacedImages, start: int) -> ImagePlace:
    return ImagePlace(start, 1, (1, placed.merge, placed.merge), "")
