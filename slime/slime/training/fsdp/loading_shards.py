"""A Hugging Face model whose ranks never hold it whole: built without weights, sharded, then filled by each rank with the
rows that it keeps.

Tensors without weights are allocated and not written to, so they take addresses and no memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers.initialization import no_init_weights

from slime.errors import ConfigError
from slime.utils.decoders import BESIDE_VISION, BODY, Source, join, sources_in_memory
from slime.vision.models import model_class, sees
from slime.weights.files import WeightFiles
from slime.weights.folders import fp32_vectors

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

SAVED, ORIGINAL = ".modules_to_save.default.", ".original_module."
"""PEFT trains a copy of a module that is saved whole, beside the original one."""


class FolderShards:
    """What of a folder goes into each tensor of a model.

    Attributes:
        model: built from the configuration, its weights not yet there.
        sources: of its tensors, by their names in it.
    """

    def __init__(self, model: PreTrainedModel, sources: dict[str, Source], folder: str) -> None:
        self.model, self.sources, self.folder = model, sources, folder
        self.origin = {id(tensor): name for name, tensor in _stored_once(model).items()}

    @torch.no_grad()
    def fill(self, adapted: nn.Module, names: dict[str, str]) -> None:
        """Reads this rank's rows of every tensor.

        Args:
            adapted: the model, wrapped and sharded. names: `names_in` it, of before it was sharded.

        Raises:
            ConfigError: a tensor is broken or has another shape than config.json says.
        """
        state = adapted.state_dict()
        with WeightFiles(self.folder) as files:
            for name, plain in names.items():
                self._fill(state[name], self.sources[plain], files)

    def names_in(self, adapted: nn.Module) -> dict[str, str]:
        """Names in a wrapper of the model -> the model's own, of every tensor that the folder has."""
        state = _stored_once(adapted)
        found = {name: self.origin[id(x)] for name, x in state.items() if id(x) in self.origin}
        copies = {name: name.replace(SAVED, ORIGINAL) for name in state if SAVED in name}
        return found | {name: found[original] for name, original in copies.items() if original in found}

    def stored_in_fp32(self, names: dict[str, str]) -> set[str]:
        """Those of `names_in` a wrapper that are vectors in fp32 in the folder, and others are not."""
        stored = fp32_vectors(self.folder)
        return {name for name, plain in names.items() if str(self.sources[plain]) in stored}

    def _fill(self, target: Tensor, source: Source, files: WeightFiles) -> None:
        _check_shape(target, source, files)
        if not isinstance(target, DTensor):
            target.copy_(join(source, files.read))
            return
        mesh, local = target.device_mesh, target.to_local()
        first = mesh.get_local_rank() * -(-target.shape[0] // mesh.size())
        if not local.numel():
            return
        if isinstance(source, str):
            local.copy_(files.part(source, first, first + len(local)))
        else:
            for row, expert in zip(local, source[first : first + len(local)], strict=True):
                row.copy_(torch.cat([files.read(name) for name in expert]))


def open_shards(config: PretrainedConfig, folder: str, **how: Any) -> FolderShards | None:
    """The model of a folder before it has its weights; None: its files hold them in a form that only transformers reads.

    Args:
        how: of `from_config`.
    """
    try:
        with WeightFiles(folder) as files:
            sources = sources_in_memory(files.names(), sees(config))
            beside_vision = not sees(config) and any(name.startswith(BESIDE_VISION) for name in files.names())
    except ConfigError:
        return None
    with no_init_weights():
        model = model_class(config).from_config(config, **how)
    model.tie_weights()
    if not set(_stored_once(model)) <= set(sources):
        return None
    model.config.body = BESIDE_VISION if beside_vision else BODY
    return FolderShards(model, sources, folder)


def _stored_once(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; tied ones by their first."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return dict(found.values())


def _check_shape(target: Tensor, source: Source, files: WeightFiles) -> None:
    if isinstance(source, str):
        shape, named = files.shape(source), source
    else:
        each = [files.shape(name) for name in source[0]]
        shape, named = [len(source), sum(x[0] for x in each), *each[0][1:]], source[0][0]
    if shape != list(target.shape):
        raise ConfigError(
            f"{files.folder}: {named} makes a tensor of {shape}, and config.json says {list(target.shape)}"
        )
