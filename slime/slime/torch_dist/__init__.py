"""Converts between Megatron-LM checkpoints (`torch_dist`) and Hugging Face folders, without loss in both directions.

    SAVE/latest_checkpointed_iteration.txt    "release", or the number of an iteration
    SAVE/release/, SAVE/iter_0000100/         torch's distributed format, metadata.json, common.pt

Tensor names are those of megatron-core and do not depend on the parallelism of the writer. `decoder.layers.X`
contains the stacked tensors of all layers. If --moe-layer-freq lists the layers, `decoder.layers.7.X` contains that
of one layer. The conversion needs neither megatron-core nor a GPU, and runs in one process.
"""

from slime.torch_dist.model import read_config, stored_shapes
from slime.torch_dist.reading import TorchDist
from slime.torch_dist.writing import write

__all__ = ["TorchDist", "read_config", "stored_shapes", "write"]
