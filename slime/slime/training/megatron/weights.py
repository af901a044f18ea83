"""Converts one rank's weights between Hugging Face's and megatron-core's names.

megatron-core keeps queries, keys and values in one matrix, ordered by group of heads, and gate and up
projection in another. A matrix is divided over tensor-parallel ranks along one dimension; norms are whole on
each rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
from torch import Tensor, nn

from slime.errors import ConfigError
from slime.training.core.objects import receive_json, send_json
from slime.training.megatron.fused_rows import join_rank_parts
from slime.training.megatron.model import PackedGPT
from slime.training.megatron.parallel import Axis, Parallel
from slime.training.megatron.weight_map import HEAD, Entry, entry_of, split_name
from slime.utils.decoders import join_qkv, split_qkv
from slime.weights.files import WeightFiles

if TYPE_CHECKING:
    from transformers import PretrainedConfig


BUCKET = 16 * 2**20
"""Bytes of weights that a pipeline stage sends at a time."""
ALIGNMENT = 16  # bytes


@dataclass(frozen=True)
class Head:
    """Describes a tensor in a buffer of bytes."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    start: int

    def to_json(self) -> list[object]:
        return [self.name, list(self.shape), str(self.dtype).removeprefix("torch."), self.start]

    @classmethod
    def of_json(cls, fields: tuple[str, list[int], str, int]) -> Head:
        name, shape, dtype, start = fields
        return cls(name, torch.Size(shape), getattr(torch, dtype), start)

    @property
    def stop(self) -> int:
        """Returns the end of its bytes."""
        return self.start + self.shape.numel() * self.dtype.itemsize

    @property
    def end(self) -> int:
        """Returns the first aligned position after it."""
        return -(-self.stop // ALIGNMENT) * ALIGNMENT

    def of(self, flat: Tensor) -> Tensor:
        """Returns the tensor in this buffer."""
        return flat[self.start : self.stop].view(self.dtype).view(self.shape)


class WeightMap:
    """Maps the parameters of one rank's stage to the tensors of a Hugging Face folder."""

    def __init__(self, model: PackedGPT, hf: PretrainedConfig) -> None:
        self.model, self.hf, self.parallel = model, hf, model.parallel
        self.offset = get_transformer_layer_offset(model.config, None, self.parallel.pp.rank)
        self.entries = {name: entry_of(name, hf, self.offset) for name, _ in model.named_parameters()}
        # functions that merge adapters into a weight, by its name
        self.changed: dict[str, Callable[[Tensor], Tensor]] = {}

    def global_name(self, name: str) -> str:
        """Returns a parameter's name with its layer's number in the whole model."""
        head, layer, rest = split_name(name)
        return name if layer is None else f"{head}{layer + self.offset}.{rest}"

    @torch.no_grad()
    def load(self, folder: str) -> None:
        """Loads the parameters from a Hugging Face folder.

        Raises:
            ConfigError: a weight is missing, or its shape does not match config.json.
        """
        with WeightFiles(folder) as files:
            for name, parameter in self.model.named_parameters():
                entry = self.entries[name]
                part = self._read(entry, files)
                if part.shape != parameter.shape:
                    raise ConfigError(
                        f"{folder}: {entry.sources[0]} does not have the shape of config.json: "
                        f"{name} would be {list(part.shape)} instead of {list(parameter.shape)}"
                    )
                parameter.copy_(part)

    @torch.no_grad()
    def whole(self, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
        """Yields Hugging Face's names and whole tensors of this stage, with merged adapters.

        Every rank of the stage must consume all.

        Args:
            dtype: dtype in which shards are sent. Vectors keep theirs, as some are fp32. An undivided tensor
                shares the model's memory.
        """
        for name, entry in self.entries.items():
            if entry.kind == "adapter" or (name == HEAD and self.hf.tie_word_embeddings):
                continue
            own = self.value(name)
            if self.axis_of(entry).size > 1:
                own = own.to(_travels_in(own, dtype))
            yield from zip(entry.sources, self.separate(entry, self._all_parts(entry, own)), strict=True)

    @torch.no_grad()
    def whole_adapters(self) -> Iterator[tuple[str, Tensor]]:
        """Yields PEFT's names and whole CPU tensors of this stage's adapters.

        Every rank of the stage must consume all.
        """
        for name, entry in self.entries.items():
            if entry.kind == "adapter":
                parts = self._all_parts(entry, self.model.get_parameter(name).detach())
                (whole,) = self.separate(entry, parts)
                yield entry.sources[0], whole.to("cpu", torch.float32, copy=True).contiguous()

    def value(self, name: str) -> Tensor:
        """Returns this rank's shard of a weight, with merged adapters."""
        weight = self.model.get_parameter(name).detach()
        return self.changed[name](weight) if name in self.changed else weight

    def _all_parts(self, entry: Entry, own: Tensor) -> list[Tensor]:
        """Gathers the shards of a parameter from the ranks that divide it."""
        axis = self.axis_of(entry)
        if entry.dim is None or axis.size == 1:
            return [own]
        parts = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(axis.size)]
        dist.all_gather(parts, own.contiguous(), group=axis.group)
        return parts

    def axis_of(self, entry: Entry) -> Axis:
        """Returns the ranks that divide a parameter."""
        return self.parallel.ep if entry.kind == "experts" else self.parallel.tp

    def _read(self, entry: Entry, files: WeightFiles) -> Tensor:
        """Reads only this rank's shard of a parameter from the files."""
        if entry.kind == "experts":
            ep = self.parallel.ep
            count = len(entry.sources) // ep.size
            sources = entry.sources[ep.rank * count : (ep.rank + 1) * count]
            each = self.hf.num_experts // ep.size
            stacked = torch.stack([files.read(source) for source in sources])
            return stacked.reshape(each, -1, stacked.shape[-1])
        if entry.sections:
            return self._read_sections(entry, files)
        if entry.kind == "vocabulary":
            return self._read_rows(entry.sources[0], files)
        parts = [self._own(source, entry.dim, files) for source in entry.sources]
        if entry.kind == "qkv":
            return join_qkv(parts, self.hf, self.parallel.tp.size)
        return torch.cat(parts) if entry.kind == "gate_up" else parts[0]

    def _own(self, source: str, dim: int | None, files: WeightFiles) -> Tensor:
        """Reads this rank's shard of a tensor that is divided along `dim`."""
        tp = self.parallel.tp
        if dim is None or tp.size == 1:
            return files.read(source)
        each = files.shape(source)[dim] // tp.size
        return files.part(source, tp.rank * each, (tp.rank + 1) * each, dim)

    def _read_rows(self, source: str, files: WeightFiles) -> Tensor:
        """Reads this rank's rows of the vocabulary; padding rows are zero."""
        tp, (known, *_) = self.parallel.tp, files.shape(source)
        if known > self.model.vocab_size:
            return files.read(source)  # a tensor whose shape will be rejected
        each = self.model.vocab_size // tp.size
        rows = files.part(source, min(tp.rank * each, known), min((tp.rank + 1) * each, known))
        return nn.functional.pad(rows, (0, 0, 0, each - len(rows)))

    def _read_sections(self, entry: Entry, files: WeightFiles) -> Tensor:
        """Reads this rank's part of every section; each tensor of the files contains one or more sections."""
        tp, sections = self.parallel.tp, []
        for source, sizes in zip(entry.sources, entry.sections, strict=True):
            start = 0
            for size in sizes:
                first = start + tp.rank * (size // tp.size)
                sections.append(files.part(source, first, first + size // tp.size))
                start += size
        return torch.cat(sections)

    def separate(self, entry: Entry, parts: list[Tensor]) -> list[Tensor]:
        """Splits the gathered shards into the tensors of the files."""
        if entry.kind == "gate_up":
            halves = [part.chunk(2) for part in parts]
            return [torch.cat([half[i] for half in halves]) for i in range(2)]
        if entry.sections:
            return join_rank_parts(parts, entry.sections)
        whole = parts[0] if entry.dim is None else torch.cat(parts, dim=entry.dim)
        if entry.kind == "experts":
            each = len(entry.sources) // len(whole)  # two sources if gate and up projection are joined
            return [x for expert in whole for x in expert.chunk(each)]
        if entry.kind == "qkv":
            return split_qkv(whole, self.hf)
        return [whole[: self.hf.vocab_size]] if entry.kind == "vocabulary" else [whole]


def whole_weights(
    weights: WeightMap, dtype: torch.dtype | None, parallel: Parallel
) -> Iterator[tuple[str, Tensor]]:
    """Yields all weights as whole tensors under Hugging Face's names on rank 0, and nothing on other ranks.

    Every rank must consume all. Only one tensor, or one bucket of tensors, is whole at a time, so no rank
    ever has the whole model in memory.
    """
    return to_first_stage(weights.whole(dtype), parallel, dtype)


def to_first_stage(
    own: Iterable[tuple[str, Tensor]], parallel: Parallel, dtype: torch.dtype | None
) -> Iterator[tuple[str, Tensor]]:
    """Yields the tensors of all pipeline stages on rank 0, and nothing on other ranks.

    Tensors of other stages are on the CPU, in `dtype` except for vectors. Every rank must consume all.
    """
    if not parallel.writes:
        for _ in own:
            pass
    elif parallel.pp.rank:
        first, group = parallel.pp.ranks[0], parallel.pp.group
        for heads, flat in _buckets(own, dtype):
            send_json([head.to_json() for head in heads], first, group)
            dist.send(flat, dst=first, group=group)
        send_json([], first, group)
    else:
        yield from own
        for rank in parallel.pp.ranks[1:]:
            yield from _received(rank, parallel)


def _travels_in(tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Returns the dtype for sending a tensor. Vectors keep theirs: they are small, and some are exported in fp32."""
    return tensor.dtype if dtype is None or tensor.dim() == 1 else dtype


def _buckets(
    own: Iterable[tuple[str, Tensor]], dtype: torch.dtype | None
) -> Iterator[tuple[list[Head], Tensor]]:
    """Yields buffers of bytes with descriptions of their tensors. The next buffer overwrites the last one.

    Each buffer has many tensors, since a message takes milliseconds.
    """
    buffer = torch.empty(BUCKET, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    heads: list[Head] = []
    for name, tensor in own:
        head = Head(name, tensor.shape, _travels_in(tensor, dtype), heads[-1].end if heads else 0)
        if heads and head.stop > len(buffer):
            yield heads, buffer[: heads[-1].stop]
            heads, head = [], replace(head, start=0)
        if head.stop > len(buffer):
            buffer = torch.empty(head.stop, dtype=torch.uint8, pin_memory=buffer.is_pinned())
        head.of(buffer).copy_(tensor)
        heads.append(head)
    if heads:
        yield heads, buffer[: heads[-1].stop]


def _received(rank: int, parallel: Parallel) -> Iterator[tuple[str, Tensor]]:
    while heads := [Head.of_json(one) for one in receive_json(rank, parallel.pp.group)]:
        flat = torch.empty(heads[-1].stop, dtype=torch.uint8)
        dist.recv(flat, src=rank, group=parallel.pp.group)
        for head in heads:
            yield head.name, head.of(flat)
