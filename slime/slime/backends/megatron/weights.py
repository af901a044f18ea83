"""Weights between Hugging Face's names and megatron-core's, both ways, in the part that a rank holds.

megatron-core keeps queries, keys and values in one matrix, one group of heads after the other, and gate and up
projection in another. A matrix is cut over tensor-parallel ranks along one dimension; norms are whole on each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
from safetensors import safe_open
from torch import Tensor

from slime.backends.megatron.model import PackedGPT
from slime.backends.megatron.parallel import Parallel
from slime.backends.megatron.shape import head_dim
from slime.errors import ConfigError
from slime.utils.checksum import LM_HEAD

EMBEDDING = "model.embed_tokens.weight"
Kind = Literal["plain", "qkv", "gate_up", "vocabulary"]


@dataclass(frozen=True)
class Entry:
    """One parameter of megatron-core.

    Attributes:
        sources: Hugging Face's names. kind: how they make one tensor.
        dim: along which ranks cut it; None: whole on every rank.
        partial: ranks compute parts of its gradient although it is whole on each.
    """

    sources: tuple[str, ...]
    kind: Kind = "plain"
    dim: int | None = None
    partial: bool = False


_LAYER = {
    "input_layernorm.weight": (("input_layernorm.weight",), "plain", None, False),
    "self_attention.linear_qkv.weight": (
        tuple(f"self_attn.{x}_proj.weight" for x in "qkv"),
        "qkv",
        0,
        False,
    ),
    "self_attention.linear_qkv.bias": (tuple(f"self_attn.{x}_proj.bias" for x in "qkv"), "qkv", 0, False),
    "self_attention.q_layernorm.weight": (("self_attn.q_norm.weight",), "plain", None, True),
    "self_attention.k_layernorm.weight": (("self_attn.k_norm.weight",), "plain", None, True),
    "self_attention.linear_proj.weight": (("self_attn.o_proj.weight",), "plain", 1, False),
    "pre_mlp_layernorm.weight": (("post_attention_layernorm.weight",), "plain", None, False),
    "mlp.linear_fc1.weight": (("mlp.gate_proj.weight", "mlp.up_proj.weight"), "gate_up", 0, False),
    "mlp.linear_fc2.weight": (("mlp.down_proj.weight",), "plain", 1, False),
}
_OUTSIDE = {
    "embedding.word_embeddings.weight": Entry((EMBEDDING,), "vocabulary", 0),
    "decoder.final_layernorm.weight": Entry(("model.norm.weight",)),
    "output_layer.weight": Entry((LM_HEAD,), "vocabulary", 0),
}


class WeightMap:
    """How the parameters of one rank's stage hang together with a Hugging Face folder."""

    def __init__(self, model: PackedGPT, hf: Any) -> None:
        self.model, self.hf, self.parallel = model, hf, model.parallel
        self.offset = get_transformer_layer_offset(model.config, None, self.parallel.pp.rank)
        self.entries = {name: self._entry(name) for name, _ in model.named_parameters()}

    def global_name(self, name: str) -> str:
        """The name of a parameter with the number that its layer has in the whole model."""
        head, layer, rest = _split(name)
        return name if layer is None else f"{head}{layer + self.offset}.{rest}"

    def _entry(self, name: str) -> Entry:
        _, layer, rest = _split(name)
        if layer is None:
            entry = _OUTSIDE[name]
            tied = name == "output_layer.weight" and self.hf.tie_word_embeddings
            return Entry((EMBEDDING,), entry.kind, entry.dim) if tied else entry
        sources, kind, dim, partial = _LAYER[rest]
        prefix = f"model.layers.{layer + self.offset}."
        named = tuple(prefix + source for source in sources)
        return Entry(named, kind, dim, partial)  # type: ignore[arg-type]

    @torch.no_grad()
    def load(self, folder: str) -> None:
        """Fills the parameters from a Hugging Face folder.

        Raises:
            ConfigError: a weight is missing or has another shape than config.json says.
        """
        with _Folder(folder) as files:
            for name, parameter in self.model.named_parameters():
                entry = self.entries[name]
                whole = self._join(entry, [files.read(source) for source in entry.sources])
                part = self._cut(entry, whole)
                if part.shape != parameter.shape:
                    raise ConfigError(
                        f"{folder}: {entry.sources[0]} has not the shape that config.json says; "
                        f"{name} is {list(part.shape)} from it and should be {list(parameter.shape)}"
                    )
                parameter.copy_(part)

    @torch.no_grad()
    def whole(self, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
        """Hugging Face's names and whole CPU tensors of this stage. Every rank of the stage must take all."""
        for name, parameter in self.model.named_parameters():
            entry = self.entries[name]
            if name == "output_layer.weight" and entry.sources == (EMBEDDING,):
                continue
            parts = [parameter.detach()]
            if entry.dim is not None and self.parallel.tp.size > 1:
                parts = [torch.empty_like(parameter) for _ in range(self.parallel.tp.size)]
                dist.all_gather(parts, parameter.detach().contiguous(), group=self.parallel.tp.group)
            for source, tensor in zip(entry.sources, self._separate(entry, parts), strict=True):
                yield source, tensor.to("cpu", dtype or tensor.dtype, copy=True).contiguous()

    def _join(self, entry: Entry, tensors: list[Tensor]) -> Tensor:
        """What ranks cut, of the tensors of the file."""
        if entry.kind == "qkv":
            groups, size = self.hf.num_key_value_heads, head_dim(self.hf)
            parts = [x.reshape(groups, -1, size, *x.shape[1:]) for x in tensors]
            return torch.cat(parts, 1).flatten(0, 2)
        if entry.kind == "vocabulary":
            missing = self.model.vocab_size - tensors[0].shape[0]
            return torch.cat([tensors[0], tensors[0].new_zeros(max(missing, 0), tensors[0].shape[1])])
        return tensors[0] if entry.kind == "plain" else torch.stack(tensors)

    def _cut(self, entry: Entry, whole: Tensor) -> Tensor:
        if entry.dim is None:
            return whole
        tp = self.parallel.tp
        if entry.kind == "gate_up":
            return whole.chunk(tp.size, dim=1)[tp.rank].flatten(0, 1)
        return whole.chunk(tp.size, dim=entry.dim)[tp.rank]

    def _separate(self, entry: Entry, parts: list[Tensor]) -> list[Tensor]:
        """The tensors of the file, of every rank's part."""
        if entry.kind == "gate_up":
            halves = [part.chunk(2) for part in parts]
            return [torch.cat([half[i] for half in halves]) for i in range(2)]
        whole = parts[0] if entry.dim is None else torch.cat(parts, dim=entry.dim)
        if entry.kind == "qkv":
            groups, size = self.hf.num_key_value_heads, head_dim(self.hf)
            heads = whole.reshape(groups, -1, size, *whole.shape[1:])
            split = torch.split(heads, [heads.shape[1] - 2, 1, 1], dim=1)
            return [x.flatten(0, 2) for x in split]
        return [whole[: self.hf.vocab_size]] if entry.kind == "vocabulary" else [whole]


def gather_weights(weights: WeightMap, dtype: torch.dtype | None, parallel: Parallel) -> dict[str, Tensor]:
    """All weights as whole CPU tensors by Hugging Face's names, on rank 0 of all; the others return nothing.

    Every rank must call this. Pipeline stages hand over one tensor at a time.
    """
    own = dict(weights.whole(dtype))
    if not parallel.writes:
        return {}
    if parallel.pp.rank:
        head = [[(name, tensor.shape, tensor.dtype) for name, tensor in own.items()]]
        dist.send_object_list(head, dst=parallel.pp.ranks[0], group=parallel.pp.group)
        for tensor in own.values():
            dist.send(tensor, dst=parallel.pp.ranks[0], group=parallel.pp.group)
        return {}
    for rank in parallel.pp.ranks[1:]:
        box: list[Any] = [None]
        dist.recv_object_list(box, src=rank, group=parallel.pp.group)
        for name, shape, kind in box[0]:
            own[name] = torch.empty(shape, dtype=kind)
            dist.recv(own[name], src=rank, group=parallel.pp.group)
    return own


class _Folder:
    """Tensors by name, from one safetensors file or several."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        index = self.folder / "model.safetensors.index.json"
        if index.is_file():
            self.file_of: dict[str, str] = json.loads(index.read_text())["weight_map"]
        elif (self.folder / "model.safetensors").is_file():
            self.file_of = {}
        else:
            raise ConfigError(f"{folder} holds no model.safetensors; this backend reads no other format")
        self.opened: dict[str, Any] = {}

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.clear()

    def read(self, name: str) -> Tensor:
        file = self.file_of.get(name, "model.safetensors")
        try:
            if file not in self.opened:
                self.opened[file] = safe_open(str(self.folder / file), framework="pt")
            tensor: Tensor = self.opened[file].get_tensor(name)
        except Exception as error:  # safetensors raises its own class for a broken file or a missing name
            raise ConfigError(f"{self.folder} lacks {name}: {error}") from error
        return tensor


def _split(name: str) -> tuple[str, int | None, str]:
    """("decoder.layers.", 3, "mlp...") of a layer's parameter; (name, None, "") of another one."""
    head = "decoder.layers."
    if not name.startswith(head):
        return name, None, ""
    number, rest = name.removeprefix(head).split(".", 1)
    return head, int(number), rest
