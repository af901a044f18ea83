"""How --train-backend megatron divides a model over its ranks.

A rank's part: 1/(tp x pp) of the layers without their experts, 1/(ep x pp) of the experts, and of the ends 1/tp on the
first and on the last stage. Experts have world / (ep x pp) copies, all else has world / (tp x pp).
"""

from __future__ import annotations

from dataclasses import dataclass

from slime.errors import ConfigError
from slime.plan.shape import Shape


@dataclass(frozen=True)
class Division:
    """Ranks that cut matrices (tp), layers (pp), tokens (cp) and experts (ep) among themselves."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    distributed_optimizer: bool = False

    def check(self, shape: Shape, gpus: int) -> None:
        """Raises ConfigError for GPUs or a model that do not divide so."""
        model = self.tp * self.pp * self.cp
        if gpus % model or gpus // self.pp % self.ep:
            raise ConfigError(
                f"{gpus} GPUs do not divide into models of {model} (tensor x pipeline x context parallel) and "
                f"stages of {self.ep} expert parallel ranks"
            )
        if odd := next((heads for heads in shape.all_heads if heads % (self.tp * self.cp)), None):
            raise ConfigError(
                f"{shape.name} has {odd} heads of a kind, which do not divide by {self.tp * self.cp} tensor x context "
                "parallel ranks; make --tensor-model-parallel-size (TRAIN_TP) smaller"
            )
        if self.ep > 1 and shape.experts % self.ep:
            raise ConfigError(
                f"{shape.name} has {shape.experts} experts, which do not divide by {self.ep} expert parallel ranks"
            )
        if shape.layers % self.pp:
            raise ConfigError(
                f"{shape.name} has {shape.layers} layers, which do not divide into {self.pp} stages"
            )

    def numbers(self, shape: Shape, first: bool) -> tuple[float, float]:
        """Of the first or the last stage's rank: without experts, and in experts."""
        layers = shape.parameters - shape.ends - shape.experts_linear
        ends = shape.ends if self.pp == 1 else shape.embedding
        if not first and self.pp > 1:
            ends += shape.hidden
        return layers / (self.tp * self.pp) + ends / self.tp, shape.experts_linear / (self.ep * self.pp)
