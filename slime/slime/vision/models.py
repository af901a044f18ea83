"""Supported vision models; gives them images at known positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from claw_base.image_marks import VISION_MODEL_TYPES

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def sees(config: PretrainedConfig) -> bool:
    return config.model_type in VISION_MODEL_TYPES


def model_class(config: PretrainedConfig) -> Any:
    """Returns the transformers class for a configuration."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if sees(config) else AutoModelForCausalLM


def seeing_config(config: PretrainedConfig) -> Any:
    """Returns the configuration; for a vision model, first copies the setting for tied embeddings to its decoder."""
    if sees(config):
        config.get_text_config().tie_word_embeddings = config.tie_word_embeddings
    return config


def attention_of(config: PretrainedConfig, name: str) -> Any:
    """Returns `attn_implementation` for transformers. An image's patches all attend to each other, so packed and
    cached attention apply only to the decoder."""
    return {"": name, "text_config": name, "vision_config": "sdpa"} if sees(config) else name


@dataclass(frozen=True)
class Features:
    """The vision part's output for images. `pooler_output`: [K, H], one row per token, in pieces;
    `deepstack_features`: the same for each of the decoder's first layers. The names are those of transformers."""

    pooler_output: Sequence[Tensor]
    deepstack_features: Sequence[Sequence[Tensor]]

    def part(self, first: int, last: int) -> Features:
        """Returns rows [first, last)."""
        whole = torch.cat(list(self.pooler_output))[first:last]
        return Features([whole], [[torch.cat(list(layer))[first:last]] for layer in self.deepstack_features])


def joined(parts: Sequence[Features]) -> Features:
    """Concatenates features."""
    pooled = [piece for part in parts for piece in part.pooler_output]
    layers = zip(*(part.deepstack_features for part in parts), strict=True)
    return Features(pooled, [[piece for layer in of_one for piece in layer] for of_one in layers])


class PlacedImages:
    """Marks the tokens that stand for images. Without the marks, the model treats every token with the image id as an
    image, including a sampled one or one in a user's text.

    Args:
        model: a model whose kind `sees`.
        folder: of the model, which defines how pictures are processed.

    Attributes:
        at: positions of image tokens in the next forward pass; None: there are none.
        token: their id.
        merge: rows (and columns) of patches per token.
        patch: numbers per patch.
    """

    def __init__(self, model: nn.Module, folder: str = "") -> None:
        self.folder = folder
        self.inner = cast("Any", model.get_submodule("model"))
        config: Any = self.inner.config
        vision = config.vision_config
        self.token, self.merge = int(config.image_token_id), int(vision.spatial_merge_size)
        self.patch = int(vision.in_channels * vision.temporal_patch_size * vision.patch_size**2)
        self.at: Tensor | None = None
        self.inner.get_placeholder_mask = self._mask

    def _mask(self, input_ids: Tensor, inputs_embeds: Tensor, **others: Any) -> tuple[Tensor, Tensor]:
        """Returns boolean masks [1, N, 1] of image tokens, and of video tokens."""
        mask = torch.zeros(inputs_embeds.shape[:2], dtype=torch.bool, device=inputs_embeds.device)
        none = mask.clone()
        if self.at is not None:
            mask[0, self.at] = True
        return mask.unsqueeze(-1), none.unsqueeze(-1)

    @torch.no_grad()
    def look(self, pixel_values: Tensor, grids: Tensor) -> Features:
        """Maps pixel_values [P, D], grids [I, 3] to the decoder's inputs."""
        seen = self.inner.get_image_features(pixel_values, grids, return_dict=True)
        return Features(seen.pooler_output, seen.deepstack_features)
