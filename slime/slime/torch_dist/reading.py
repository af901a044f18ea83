"""Reads a Megatron-LM checkpoint of any parallelism, without running code that it may contain."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from claw_base.files import is_file_name
from slime.errors import CheckpointError
from slime.torch_dist.layout import ALIASES, LAYERS, Rule, ends_of, rules_of, separate, sources_of
from slime.training.core.safe_loading import SafePlanner, SafeReader
from slime.weights.checkpoints import EARLIER_TRACKER

if TYPE_CHECKING:
    from transformers import PretrainedConfig

RELEASE = "release"


def find(folder: Path) -> Path:
    """Returns the folder of the checkpoint itself: `folder`, or the one that its tracker names.

    Raises:
        CheckpointError: no checkpoint exists.
    """
    tracker = folder / EARLIER_TRACKER
    if tracker.is_file():
        name = tracker.read_text().strip()
        if name and not is_file_name(name):
            raise CheckpointError(f"{tracker} names {name!r}, which is not a folder next to it")
        folder = folder / (name if name == RELEASE else f"iter_{int(name):07d}" if name.isdigit() else name)
    if not (folder / ".metadata").is_file():
        raise CheckpointError(
            f"{folder} contains no .metadata; it is not a checkpoint of the format torch_dist"
        )
    return folder


class TorchDist:
    """An open Megatron-LM checkpoint. Raises CheckpointError if it is corrupt or belongs to another model than
    `config`."""

    def __init__(self, folder: Path, config: PretrainedConfig) -> None:
        self.folder, self.config = find(folder), config
        self.reader = SafeReader(self.folder)
        index = self.reader.read_metadata()
        self.stored = {
            name: (entry.size, entry.properties.dtype)
            for name, entry in index.state_dict_metadata.items()
            if isinstance(entry, TensorStorageMetadata)
        }

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yields every weight under Hugging Face's name; only one tensor of the checkpoint is in memory at a time."""
        for key, name in ends_of(self.config).items():
            whole = self._read(key)
            yield name, whole if whole.dim() == 1 else self._unpadded(key, whole)
        for rule, layers in self._rules().items():
            if self._key(rule, None) is None:
                for layer in layers:
                    yield from self._of_layer(rule, layer, self._read(self._needed(rule, layer)))
                continue
            whole = self._read(self._needed(rule, None))
            if len(whole) != len(layers):
                raise self._other(f"{LAYERS}{rule.key} of {len(whole)} layers")
            for layer, part in zip(layers, whole, strict=True):
                yield from self._of_layer(rule, layer, part)

    def _rules(self) -> dict[Rule, list[int]]:
        """Returns the layers that contain each tensor."""
        rules: dict[Rule, list[int]] = {}
        for layer in range(self.config.num_hidden_layers):
            for rule in rules_of(self.config, layer):
                rules.setdefault(rule, []).append(layer)
        return rules

    def _of_layer(self, rule: Rule, layer: int, whole: Tensor) -> Iterator[tuple[str, Tensor]]:
        names = sources_of(rule, self.config, layer)
        try:
            parts = separate(rule, whole, self.config)
            pairs = list(zip(names, parts, strict=True))
        except (ValueError, RuntimeError) as error:
            raise self._other(f"{rule.key} of shape {list(whole.shape)}") from error
        yield from pairs

    def _key(self, rule: Rule, layer: int | None) -> str | None:
        """Returns the checkpoint's name for a tensor of a layer, or (None) of all layers."""
        number = "" if layer is None else f"{layer}."
        names = [LAYERS + number + name for name in (rule.key, *ALIASES.get(rule.key, ()))]
        return next((name for name in names if name in self.stored), None)

    def _needed(self, rule: Rule, layer: int | None) -> str:
        key = self._key(rule, layer)
        if key is None:
            raise self._other(f"no {LAYERS}{rule.key} of layer {layer}")
        return key

    def _read(self, key: str) -> Tensor:
        if key not in self.stored:
            raise self._other(f"no {key}")
        size, dtype = self.stored[key]
        state = {key: torch.empty(size, dtype=dtype)}
        with warnings.catch_warnings():  # torch warns that only one process reads
            warnings.simplefilter("ignore", UserWarning)
            load(state, storage_reader=self.reader, planner=SafePlanner(), no_dist=True)
        return state[key]

    def _unpadded(self, key: str, whole: Tensor) -> Tensor:
        if len(whole) < self.config.vocab_size:
            raise self._other(f"{key} of {len(whole)} tokens")
        return whole[: self.config.vocab_size]

    def _other(self, has: str) -> CheckpointError:
        kind = self.config.model_type
        return CheckpointError(f"{self.folder} is not of this {kind} with {self._size()}: it has {has}")

    def _size(self) -> str:
        return f"{self.config.num_hidden_layers} layers of width {self.config.hidden_size}"
