"""Checkpoints of Megatron-LM (`torch_dist`) and Hugging Face folders: one into the other, both ways equal.

    SAVE/latest_checkpointed_iteration.txt    "release", or the number of an iteration
    SAVE/release/, SAVE/iter_0000100/         torch's distributed format, metadata.json, common.pt

A checkpoint names a tensor as megatron-core does, whatever the division was: `decoder.layers.X` holds the tensors of
all layers, one after the other, or `decoder.layers.7.X` that of one, where --moe-layer-freq lists the layers. Nothing
here needs megatron-core, a GPU or more than one process.
"""

from slime.torch_dist.model import read_config, stored_shapes
from slime.torch_dist.reading import TorchDist
from slime.torch_dist.writing import write

__all__ = ["TorchDist", "read_config", "stored_shapes", "write"]
