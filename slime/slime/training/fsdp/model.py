"""Runs the Hugging Face model under FSDP2 on a pack, and gathers its weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.core_model_loading import revert_weight_conversion

from slime.errors import ConfigError
from slime.losses import ChunkedDistribution, DenseDistribution, Distribution
from slime.training.core.packing import PackedBatch
from slime.training.core.part import reshard
from slime.training.fsdp.lora import merged, merged_shapes, without_adapters
from slime.training.fsdp.quantized import dequantized
from slime.utils.decoders import BODY, body
from slime.vision.models import PlacedImages, sees
from slime.vision.place import ImagePlace
from slime.vision.reading import image_at
from slime.weights.checksum import LM_HEAD

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class PackedModel(nn.Module):
    """The training core's interface to a causal language model of transformers, or to PEFT's wrapper of one.

    Attributes:
        deferred: the output head, if it runs in chunks of rows (--log-probs-chunk-size).
        placed: the image tokens, if the model supports images.
    """

    config: Any
    deferred: DeferredHead | None = None
    placed: PlacedImages | None = None

    @property
    def vocabulary(self) -> int:
        """Returns the number of tokens in its vocabulary."""
        return int(self.config.get_text_config().vocab_size)

    def distribution(self, packed: PackedBatch) -> Distribution:
        """Returns the model's distribution for every target [T] of the pack, at its sample's temperature.

        Logits are computed only at these positions.
        """
        head = self.deferred
        if head is None:
            return DenseDistribution(self._logits(packed, packed.logit_positions)[0], packed.temperatures)
        with head.deferred():
            hidden = self._logits(packed, packed.logit_positions)[0]
        return ChunkedDistribution(hidden, head.project, packed.temperatures, head.chunk)

    def all_logits(self, packed: PackedBatch) -> Tensor:
        """Returns the model's logits [1, N, V] for every token of the pack."""
        return self._logits(packed, 0)[:, : packed.input_ids.shape[1]]

    def without_adapters(self) -> AbstractContextManager[None]:
        """Disables adapters inside the context."""
        return without_adapters(self)

    def shapes(self) -> dict[str, torch.Size]:
        """Returns the shapes of the weights by name, as in the model with merged adapters."""
        return merged_shapes(self)

    @torch.no_grad()
    def take_over(self, policy: PackedModel) -> None:
        """Copies the weights of `policy`, with merged adapters. Every rank must call this."""
        weights, targets = policy.state_dict(), self.state_dict()
        wrapped = isinstance(policy, PeftModel)
        for name, tensor in merged(policy, whole_tensors(weights)) if wrapped else weights.items():
            _assign(targets[name], tensor)

    def _logits(self, packed: PackedBatch, keep: Tensor | int) -> Tensor:
        inputs: dict[str, Any] = {
            "input_ids": packed.input_ids,
            "position_ids": packed.position_ids,
            "packed_layout": packed.layout,
        }
        if self.placed is not None:
            inputs = inputs_with_images(self.placed, packed)
        output = self(**inputs, use_cache=False, logits_to_keep=keep)
        logits: Tensor = output.logits
        return logits


def _assign(target: Tensor, tensor: Tensor) -> None:
    """Writes a whole or sharded tensor into an equally sharded tensor of another model."""
    if isinstance(target, DTensor) and not isinstance(tensor, DTensor):
        tensor = distribute_tensor(
            tensor.to(target.dtype), target.device_mesh, target.placements, src_data_rank=None
        )
    target.copy_(tensor)


def equip(model: PreTrainedModel, chunk: int = 0, folder: str = "") -> PackedModel:
    """Makes `model` a `PackedModel` in place: its class becomes a subclass of both, as FSDP2 does.

    Args:
        chunk: number of logit rows computed at a time; 0: all at once.
        folder: of the model, which defines how pictures are processed.
    """
    deferred = DeferredHead(model, chunk) if chunk > 0 else None
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    placed = PlacedImages(base, folder) if sees(base.config) else None
    model.__class__ = _equipped(model.__class__)
    model.deferred, model.placed = deferred, placed
    equipped: PackedModel = model
    return equipped


@cache
def _equipped(kind: type[nn.Module]) -> type[nn.Module]:
    return type(kind.__name__, (PackedModel, kind), {})


def gather_weights(model: PreTrainedModel, dtype: torch.dtype | None, keep: bool) -> dict[str, Tensor]:
    """Returns all weights as whole CPU tensors in `dtype` (None: unchanged), without a tied output head.

    Every rank must call this; ranks without `keep` return an empty dictionary.
    """
    return {
        name: tensor.to("cpu", dtype if tensor.is_floating_point() else None, copy=True).contiguous()
        for name, tensor in export_weights(model, dtype, keep)
    }


def export_weights(
    model: PreTrainedModel, dtype: torch.dtype | None, keep: bool
) -> Iterator[tuple[str, Tensor]]:
    """Yields names and whole tensors in the form of Hugging Face folders, without a tied output head.

    Adapters are merged into copies. Every rank must consume all tensors; ranks without `keep` get none. Vectors and
    tensors that are already whole are not cast to `dtype`. Tensors may share memory with the model.
    """
    adapted = isinstance(model, PeftModel)
    state = model.state_dict()
    whole = dequantized(model, whole_tensors(state, None if adapted else dtype))
    if not keep:
        for _ in whole:
            pass
        return
    tied = model.config.get_text_config().tie_word_embeddings
    merged_ones = merged(model, whole) if adapted else whole
    tensors = ((name, tensor.detach()) for name, tensor in merged_ones if name != LM_HEAD or not tied)
    nothing: dict[str, Tensor] = {}
    if stored_names(model, nothing) is nothing:  # the model has the same names and shapes as the file
        yield from tensors
    else:
        cast = {name: tensor.to("cpu", dtype if _is_cast(tensor) else None) for name, tensor in tensors}
        yield from stored_names(model, cast).items()


def stored_names(model: PreTrainedModel, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights under Hugging Face's names.

    In memory, the experts of a layer are one tensor, and decoder names omit the prefix of models with vision.
    """
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    own, stored = body(base.config), revert_weight_conversion(base, weights)
    return {
        name if name.startswith(own) else name.replace(BODY, own, 1): tensor.contiguous()
        for name, tensor in stored.items()
    }


def gather_trained(model: PreTrainedModel, keep: bool) -> dict[str, Tensor]:
    """Returns the trainable weights as whole CPU tensors, on ranks with `keep`. Every rank must call this."""
    reshard(model)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    whole = {name: tensor.detach().cpu() for name, tensor in whole_tensors(trained)}
    return whole if keep else {}


def whole_tensors(
    tensors: dict[str, Tensor], dtype: torch.dtype | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Yields names and whole tensors, one at a time. Every rank must consume all of them.

    Args:
        dtype: dtype in which shards are sent, except those of vectors.
    """
    for name, tensor in tensors.items():
        if isinstance(tensor, DTensor):
            cast = dtype if dtype is not None and _is_cast(tensor) else tensor.dtype
            part: DTensor = tensor.to(cast)  # type: ignore[assignment]
            yield name, part.full_tensor()
        else:
            yield name, tensor


def _is_cast(tensor: Tensor) -> bool:
    """Returns whether a tensor may be cast for export. Vectors are not: they are small, and some are stored
    in fp32."""
    return tensor.is_floating_point() and tensor.dim() > 1


AFTER_THE_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling")


class DeferredHead:
    """Makes a causal language model return hidden states, and computes its logits later.

    The head belongs to the outermost module, whose weights FSDP keeps whole after the forward pass; so the head can
    run later.

    Raises:
        ConfigError: the model modifies logits after its head.
    """

    def __init__(self, model: PreTrainedModel, chunk: int) -> None:
        config = model.config.get_text_config()
        changed = [name for name in AFTER_THE_HEAD if getattr(config, name, None) not in (None, 1, 1.0)]
        if changed:
            raise ConfigError(
                f"--log-probs-chunk-size does not support this model, which has a {changed[0]}; "
                "remove the flag"
            )
        self.chunk, self.is_deferred = chunk, False
        head = model.get_output_embeddings()
        self.project = head.forward
        head.forward = self._forward

    def _forward(self, hidden: Tensor) -> Tensor:
        return hidden if self.is_deferred else self.project(hidden)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Makes the model return the inputs of its head inside the context."""
        self.is_deferred = True
        try:
            yield
        finally:
            self.is_deferred = False


def inputs_with_images(placed: PlacedImages, packed: PackedBatch) -> dict[str, Any]:
    """Returns the model's inputs, with images inserted.

    A pack without images gets a blank image at its end, which no token attends to and no loss uses. The
    vision weights are gathered from all ranks, so either all ranks run them or none.

    Raises:
        DataError: an image file is missing or has changed, or a picture does not fit its place.
    """
    ids, device = packed.input_ids, packed.input_ids.device
    positions = packed.position_ids if packed.position_ids.ndim == 3 else packed.position_ids.expand(3, 1, -1)
    layout, images = packed.layout, packed.images
    if images:
        pixels = torch.cat([image_at(image, placed.folder).pixel_values for image in images])
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
