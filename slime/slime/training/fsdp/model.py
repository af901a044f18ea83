"""The Hugging Face model under FSDP2: running it on a pack, gathering its weights."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers.core_model_loading import revert_weight_conversion

from slime.losses import ChunkedDistribution, DenseDistribution, Distribution
from slime.training.core.packing import PackedBatch
from slime.training.fsdp.head import DeferredHead
from slime.training.fsdp.lora import merged, without_adapters
from slime.training.fsdp.quantized import dequantized
from slime.weights.checksum import LM_HEAD

WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth", ".index.json")


class PackedModel(nn.Module):
    """A causal language model of transformers, or PEFT's wrapper of one, as the training core sees it.

    Attributes:
        deferred: its output head, where that runs a few rows at a time (--log-probs-chunk-size).
    """

    deferred: DeferredHead | None = None

    def distribution(self, packed: PackedBatch) -> Distribution:
        """The model's distribution of every target [T] of the pack, at the temperature of its sample.

        Logits are computed at these positions only.
        """
        head = self.deferred
        if head is None:
            return DenseDistribution(self._logits(packed, packed.logit_positions)[0], packed.temperatures)
        with head.deferred():
            hidden = self._logits(packed, packed.logit_positions)[0]
        return ChunkedDistribution(hidden, head.project, packed.temperatures, head.chunk)

    def all_logits(self, packed: PackedBatch, temperatures: Tensor) -> Tensor:
        """fp32 logits [1, N, V] of every token of the pack, divided by `temperatures` [N]."""
        return self._logits(packed, 0).float() / temperatures[:, None]

    def without_adapters(self) -> AbstractContextManager[None]:
        """Inside, the model computes what its base computes."""
        return without_adapters(self)

    def _logits(self, packed: PackedBatch, keep: Tensor | int) -> Tensor:
        output = self(
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            use_cache=False,
            logits_to_keep=keep,
            packed_layout=packed.layout,
        )
        logits: Tensor = output.logits
        return logits


def equip(model: Any, chunk: int = 0) -> PackedModel:
    """Makes `model` a `PackedModel`, in place: its class becomes a subclass of both, as FSDP2 does it too.

    Args:
        chunk: rows of logits that are computed at a time; 0: all at once.
    """
    deferred = DeferredHead(model, chunk) if chunk > 0 else None
    model.__class__ = _equipped(type(model))
    model.deferred = deferred
    equipped: PackedModel = model
    return equipped


@cache
def _equipped(kind: type[nn.Module]) -> type[nn.Module]:
    return type(kind.__name__, (PackedModel, kind), {})


def gather_weights(model: Any, dtype: torch.dtype | None, keep: bool) -> dict[str, Tensor]:
    """All weights as whole CPU tensors in `dtype` (None: as they are); a tied output head is left out.

    Adapters are merged out of place. Every rank must call this; the ranks without `keep` return nothing.
    """
    tied = model.config.get_text_config().tie_word_embeddings
    whole = dequantized(model, whole_tensors(model.state_dict()))
    if not keep:
        for _ in whole:
            pass
        return {}
    weights: dict[str, Tensor] = {}
    for name, tensor in merged(model, whole) if isinstance(model, PeftModel) else whole:
        if name == LM_HEAD and tied:
            continue
        cast = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        weights[name] = tensor.detach().to("cpu", cast, copy=True).contiguous()
    return stored_names(model, weights)


def stored_names(model: Any, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights as Hugging Face folders hold them: transformers joins experts when it loads a model."""
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    found: dict[str, Tensor] = revert_weight_conversion(base, weights)
    return {name: tensor.contiguous() for name, tensor in found.items()}


def gather_trained(model: Any, keep: bool) -> dict[str, Tensor]:
    """The trainable weights as whole CPU tensors, on the ranks with `keep`. Every rank must call this."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    whole = {name: tensor.detach().cpu() for name, tensor in whole_tensors(trained)}
    return whole if keep else {}


def whole_tensors(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Names and whole tensors, one after the other. Every rank must take all of them."""
    for name, tensor in tensors.items():
        yield name, tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def write_model_folder(folder: Path, weights: dict[str, Tensor], source: str) -> None:
    """A Hugging Face folder: `weights`, and the configuration and tokenizer files of the `source` folder."""
    for file in sorted(Path(source).iterdir()):
        if file.is_file() and not file.name.endswith(WEIGHT_FILES):
            shutil.copyfile(file, folder / file.name)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
