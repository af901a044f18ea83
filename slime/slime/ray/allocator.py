"""What torch's allocator of GPU memory is told, in which process, and what else is for trainers alone.

Packs of ever new sizes leave fewer gaps in segments that grow, so trainers have them. Nobody else: engines manage one
large block, and memory in such segments cannot be handed to another process by CUDA IPC, nor given back by SGLang.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Torch reads either name."""
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
"""One queue to the GPU is what Megatron's overlap needs; an engine, which has several streams, would wait for itself."""
EXPANDABLE = "expandable_segments:True"


def let_segments_grow(environ: MutableMapping[str, str]) -> None:
    """Before torch uses the GPU; what the user exported stays."""
    if not any(name in environ for name in VARIABLES):
        environ[VARIABLES[0]] = EXPANDABLE


def forget_allocator(environ: MutableMapping[str, str]) -> None:
    """Before torch uses the GPU: its defaults."""
    for name in VARIABLES:
        environ.pop(name, None)


def of_servers(environ: Mapping[str, str]) -> dict[str, str]:
    """A driver's environment without what is for its trainers alone."""
    return {name: value for name, value in environ.items() if name not in (*VARIABLES, QUEUES)}
