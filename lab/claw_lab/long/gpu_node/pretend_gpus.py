"""Lets a Python without CUDA act as the trainer's on a machine with GPUs; a .pth file imports it at the start.

Four facts are simulated: torch is not a CPU build; Ray counts GPUS GPUs; the ranks of a trainer on GPUs compute on
the CPU, after each got exactly one GPU; and megatron-core, which asks torch for the current device by name, gets the
CPU. All else is unchanged.
"""

from __future__ import annotations

import importlib.abc
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType

GPUS = int(os.environ.get("PRETENDED_GPUS", "8"))


def count_gpus(module: ModuleType) -> None:
    """Replaces Ray's GPU count; Ray itself applies CUDA_VISIBLE_DEVICES to it."""
    module.NvidiaGPUAcceleratorManager.get_current_node_num_accelerators = staticmethod(lambda: GPUS)


def join_on_cpu(module: ModuleType) -> None:
    """Lets the ranks of a trainer join on the CPU."""
    join = module.join

    def join_instead(rank, world_size, on_gpu, *more, **named):
        shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if on_gpu and (len(shown) != 1 or not shown[0].isdigit()):
            raise RuntimeError(f"rank {rank} is shown the GPUs {shown}, not one")
        if on_gpu:
            import torch

            torch.cuda.current_device = lambda: torch.device("cpu")
        return join(rank, world_size, False, *more, **named)

    module.join = join_instead


CHANGED: dict[str, Callable[[ModuleType], None]] = {
    "ray._private.accelerators.nvidia_gpu": count_gpus,
    "slime.training.core.distributed": join_on_cpu,
}


class ChangedLoader(importlib.abc.Loader):
    """Loads a module with its own loader, then changes it."""

    def __init__(self, loader: importlib.abc.Loader, change: Callable[[ModuleType], None]) -> None:
        self.loader, self.change = loader, change

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        self.change(module)


class ChangedFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of `CHANGED` in their usual places."""

    def find_spec(self, name, path=None, target=None):
        if name not in CHANGED:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            spec.loader = ChangedLoader(spec.loader, CHANGED[name])
        return spec


def version_of(name: str, read_version: Callable[[str], str] = importlib.metadata.version) -> str:
    return read_version(name).removesuffix("+cpu") if name == "torch" else read_version(name)


importlib.metadata.version = version_of
sys.meta_path.insert(0, ChangedFinder())
