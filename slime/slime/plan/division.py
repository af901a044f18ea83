"""Division of a model over ranks by --train-backend megatron.

`python -m slime.plan.division MODEL --gpus 8 --node 8` prints the usual sizes of tensor and expert parallelism.

A rank's part: 1/tp of its stage's layers without experts, 1/ep of their experts, and 1/tp of the embedding and head
on the first and last stage. A stage has 1/pp of the layers; if a number is given for the last one, the others share
the rest. Experts have world / (ep x pp) copies, everything else world / (tp x pp).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.errors import ConfigError
from slime.plan.shape import Shape, read_shape


@dataclass(frozen=True)
class Division:
    """Parallel sizes: of matrices (tp), layers (pp), tokens (cp) and experts (ep). `last_layers`: layers of the last
    stage, None for an equal number."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    distributed_optimizer: bool = False
    last_layers: int | None = None

    def check(self, shape: Shape, gpus: int) -> None:
        """Raises ConfigError for GPUs or a model that cannot be divided like this."""
        model = self.tp * self.pp * self.cp
        if gpus % model or gpus // self.pp % self.ep:
            raise ConfigError(
                f"{gpus} GPUs cannot be divided: the number must be a multiple of {model} (tensor x pipeline x context "
                f"parallel), and in each pipeline stage of {self.ep} expert-parallel ranks"
            )
        if odd := next((heads for heads in shape.all_heads if heads % (self.tp * self.cp)), None):
            raise ConfigError(
                f"{shape.name} has {odd} attention or key-value heads, which are not divisible by "
                f"{self.tp * self.cp} tensor x context parallel ranks; make --tensor-model-parallel-size (TRAIN_TP) "
                "smaller"
            )
        if self.ep > 1 and shape.experts % self.ep:
            raise ConfigError(
                f"{shape.name} has {shape.experts} experts, which are not divisible by {self.ep} expert-parallel ranks"
            )
        others = shape.layers - (self.last_layers or 0), self.pp - (0 if self.last_layers is None else 1)
        if others[1] and (others[0] <= 0 or others[0] % others[1]):
            raise ConfigError(
                f"{shape.name} has {shape.layers} layers, which do not divide into {self.pp} equal stages; "
                "--decoder-last-pipeline-num-layers sets the layers of the last stage"
            )

    def layers(self, shape: Shape, first: bool) -> float:
        """Returns the number of layers of the first or the last stage."""
        if self.last_layers is None or self.pp == 1:
            return shape.layers / self.pp
        return (shape.layers - self.last_layers) / (self.pp - 1) if first else self.last_layers

    def numbers(self, shape: Shape, first: bool) -> tuple[float, float]:
        """Returns the parameters of a rank in the first or the last stage: without experts, and in experts."""
        layers = shape.parameters - shape.ends - shape.experts_linear
        ends = shape.ends if self.pp == 1 else shape.embedding
        if not first and self.pp > 1:
            ends += shape.hidden
        share = self.layers(shape, first) / shape.layers
        return (layers * share + ends) / self.tp, shape.experts_linear * share / self.ep


def usual(shape: Shape, gpus: int, node: int, pp: int = 1, cp: int = 1) -> tuple[int, int]:
    """Returns the default sizes of tensor and expert parallelism.

    Tensor parallelism is as large as the heads allow, within one machine of `node` GPUs; experts are distributed over
    all ranks of a stage.
    """
    stage = max(gpus // pp, 1)
    heads = math.gcd(*shape.all_heads, shape.mlp * cp, shape.shared_mlp * cp)
    tensor = max(math.gcd(heads, stage, node * cp) // cp, 1)
    return tensor, math.gcd(shape.experts, stage) if shape.experts else 1


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Command line: the model and the GPUs."""

    model: str = flag(REQUIRED, "a folder with a config.json, or the name of a known model", positional=True)
    gpus: int = flag(REQUIRED, "GPUs for training")
    node: int = flag(REQUIRED, "GPUs per machine")
    pp: int = flag(1, "pipeline-parallel ranks")
    cp: int = flag(1, "context-parallel ranks")


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(Machines, argv, "python -m slime.plan.division", __doc__)
    try:
        shape = read_shape(args.model)
    except ConfigError:  # the trainer reports the error
        print(args.node, 1)
        return 0
    print(*usual(shape, args.gpus, args.node, args.pp, args.cp))
    return 0


if __name__ == "__main__":
    sys.exit(main())
