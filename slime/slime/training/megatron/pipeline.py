"""A sharded model as used by losses, teachers and training steps, with pipelines of micro-batches.

Forward passes without gradients give a distribution on every pipeline rank: the last stage computes it and
sends the results to the others. If only log-probs are needed, many packs are processed at once. In training,
every stage alternates forward and backward passes (Narayanan et al. 2021, 1F1B), and only the last stage
computes the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from slime.losses import ChunkedDistribution, DenseDistribution, Distribution
from slime.losses.dense import exact
from slime.losses.sharded import ShardedDistribution
from slime.training.core.learner import LossOf
from slime.training.core.packing import PackedBatch
from slime.training.core.shared_rows import SharedRows
from slime.training.megatron.adapters import without_adapters
from slime.training.megatron.attention import gather_tokens
from slime.training.megatron.model import PackedGPT
from slime.training.megatron.parallel import Axis
from slime.training.megatron.weights import WeightMap


class ShardedModel(nn.Module):
    """One rank's shard of a model. All ranks must make the same calls.

    Args:
        weights: maps weights of `core` to the Hugging Face folder, and merges adapters.
        on_logits: losses get the logits of every token of a pack over the whole vocabulary, not a
            distribution.
    """

    def __init__(self, core: PackedGPT, weights: WeightMap, on_logits: bool = False) -> None:
        super().__init__()
        self.core, self.weights, self.parallel, self.on_logits = core, weights, core.parallel, on_logits
        self.dtype: torch.dtype = core.config.params_dtype

    @property
    def vocabulary(self) -> int:
        """Returns the size of the vocabulary."""
        return self.core.real_vocabulary

    def without_adapters(self) -> AbstractContextManager[None]:
        """Disables the adapters inside the context."""
        return without_adapters(self)

    def shapes(self) -> dict[str, torch.Size]:
        """Returns the shapes of this rank's shards of the weights by name, as in the model with merged adapters."""
        named = self.core.named_parameters()
        return {name: x.shape for name, x in named if self.weights.entries[name].kind != "adapter"}

    @torch.no_grad()
    def take_over(self, policy: ShardedModel) -> None:
        """Copies the weights of `policy`, with merged adapters."""
        for name, parameter in self.core.named_parameters():
            parameter.copy_(policy.weights.value(name))

    def distribution(self, packed: PackedBatch) -> Distribution:
        """Returns the model's distribution for every target [T]; with several stages, without gradients."""
        if self.parallel.pp.size == 1:
            seen: Distribution = self._of(self.core.stage(packed, None), packed)
            return seen
        with torch.no_grad():
            received = self._receive(packed, self.parallel.pp.rank - 1)
            output = self.core.stage(packed, received)
            self._exchange(self.parallel.pp.rank + 1, output, None)
            own = self._of(output, packed) if self.parallel.is_last else None
            return RelayedDistribution(own, packed, self.dtype, self.parallel.pp)

    @torch.no_grad()
    def of_all(self, packs: Sequence[PackedBatch]) -> list[Tensor]:
        """Returns log-probs [T] of every pack's targets on every stage, without gradients.

        No stage waits for a later one; the last one sends the results at the end.
        """
        log_probs = []
        for packed in packs:
            output = self.core.stage(packed, self._receive(packed, self.parallel.pp.rank - 1))
            self._exchange(self.parallel.pp.rank + 1, output, None)
            if self.parallel.is_last:
                log_probs.append(self._per_token(output, packed))
        if self.parallel.pp.size == 1 or not packs:
            return log_probs
        sizes = [len(packed.targets) for packed in packs]
        like = packs[0].temperatures.new_empty(sum(sizes), dtype=exact(self.dtype))
        whole = torch.cat(log_probs) if self.parallel.is_last else like
        dist.broadcast(whole, src=self.parallel.pp.ranks[-1], group=self.parallel.pp.group)
        return list(torch.split(whole, sizes))

    def _per_token(self, output: Tensor, packed: PackedBatch) -> Tensor:
        """Returns the last stage's log-probs of a pack, [T]."""
        log_probs: Tensor = self._of(output, packed).log_probs(packed.targets)
        return log_probs

    def train_step(self, packs: Sequence[PackedBatch], loss_of: LossOf) -> None:
        """Accumulates the gradients of the losses of all micro-batches, with the 1F1B schedule. `loss_of` is called
        on the last stage."""
        rank, stages = self.parallel.pp.rank, self.parallel.pp.size
        ahead = min(stages - rank - 1, len(packs))
        pending: list[tuple[int, Tensor | None, Tensor]] = []
        for number in range(ahead):
            pending.append(self._forward(number, packs, self._receive(packs[number], rank - 1), loss_of))
            self._exchange(rank + 1, pending[-1][2].detach(), None)
        received = self._receive(packs[ahead], rank - 1) if ahead < len(packs) else None
        for number in range(ahead, len(packs)):
            pending.append(self._forward(number, packs, received, loss_of))
            newest, oldest = pending[-1], pending.pop(0)
            gradient = self._exchange(rank + 1, newest[2].detach(), packs[oldest[0]])
            passed = _backward(*oldest, gradient)
            following = packs[number + 1] if number + 1 < len(packs) else None
            received = self._exchange(rank - 1, passed, following)
        for oldest in pending:
            passed = _backward(*oldest, self._receive(packs[oldest[0]], rank + 1))
            self._exchange(rank - 1, passed, None)

    def _forward(
        self, number: int, packs: Sequence[PackedBatch], received: Tensor | None, loss_of: LossOf
    ) -> tuple[int, Tensor | None, Tensor]:
        if received is not None:
            received.requires_grad_()
        packed = packs[number]
        output = self.core.stage(packed, received)
        if self.parallel.is_last:
            seen = self._all_logits(output, packed) if self.on_logits else self._of(output, packed)
            output = loss_of(number, packed, seen)
        return number, received, output

    def _all_logits(self, output: Tensor, packed: PackedBatch) -> Tensor:
        """Returns the logits [1, N, V] on every rank."""
        own = self.core.whole_vocabulary(self.core.logits(self.core.own_tokens(output)))
        return gather_tokens(own, self.parallel.cp.group)[: packed.input_ids.shape[1]].unsqueeze(0)

    def _of(self, output: Tensor, packed: PackedBatch) -> Any:
        """Returns the distribution of all T targets on the last stage, as input of losses.

        Each context-parallel rank computes the logits of its own tokens.
        """
        hidden, rows = self.core.own_rows(output, packed)
        of = partial(self._distribution, temperatures=packed.temperatures[rows.numbers])
        own = of(hidden)
        return own if self.parallel.cp.size == 1 else SharedRows(own, rows, hidden, of)

    def _distribution(self, rows: Tensor, temperatures: Tensor) -> Distribution:
        """Returns the distribution for hidden states [n, H] and temperatures [n]."""
        of: Callable[[Tensor, Tensor], Distribution] = DenseDistribution
        if self.parallel.tp.size > 1:
            of = partial(ShardedDistribution, first=self.core.first_column, group=self.parallel.tp.group)
        if self.core.chunk:
            return ChunkedDistribution(rows, self.core.logits, temperatures, self.core.chunk, of)
        return of(self.core.logits(rows), temperatures)

    def _receive(self, packed: PackedBatch, stage: int) -> Tensor | None:
        return self._exchange(stage, None, packed)

    def _exchange(self, stage: int, hidden: Tensor | None, expected: PackedBatch | None) -> Tensor | None:
        """Sends hidden states (or gradients) to another stage while receiving those of the pack `expected`.

        Both happen at once, since two neighbours that only send would wait for each other. Does nothing
        without such a stage.
        """
        if not 0 <= stage < self.parallel.pp.size:
            return None
        peer, group = self.parallel.pp.ranks[stage], self.parallel.pp.group
        operations, received = [], None
        if hidden is not None:
            operations.append(dist.P2POp(dist.isend, hidden.contiguous(), peer, group))
        if expected is not None:
            shape = self.core.hidden_shape(expected)
            received = torch.empty(shape, dtype=self.dtype, device=expected.targets.device)
            operations.append(dist.P2POp(dist.irecv, received, peer, group))
        for work in dist.batch_isend_irecv(operations) if operations else ():
            work.wait()
        return received


def _backward(number: int, received: Tensor | None, output: Tensor, gradient: Tensor | None) -> Tensor | None:
    """Returns the gradient of the received activations, for the previous stage."""
    torch.autograd.backward(output, gradient)
    return None if received is None else received.grad


class RelayedDistribution:
    """The last pipeline stage's distribution of a pack, available on every stage, without gradients.

    Args:
        own: the distribution on the last stage; None on the others.
        axis: the pipeline stages.
    """

    def __init__(self, own: Distribution | None, packed: PackedBatch, dtype: torch.dtype, axis: Axis) -> None:
        self.own, self.axis, self.packed = own, axis, packed
        self.rows, self.device = len(packed.targets), packed.targets.device
        self.dtype = exact(dtype)

    def log_probs(self, ids: Tensor) -> Tensor:
        return self._relay(lambda own: own.log_probs(ids), tuple(ids.shape))

    def logsumexp(self) -> Tensor:
        return self._relay(lambda own: own.logsumexp(), (self.rows,))

    def entropy(self) -> Tensor:
        return self._relay(lambda own: own.entropy(), (self.rows,))

    def guided(self, plain: RelayedDistribution, strength: float) -> RelayedDistribution:
        """See `Distribution.guided`."""
        own = None if self.own is None or plain.own is None else self.own.guided(plain.own, strength)
        return RelayedDistribution(own, self.packed, self.dtype, self.axis)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        best: list[Any] = [None, None] if self.own is None else list(self.own.topk(k))
        values = self._relay(lambda _: best[0], (self.rows, k))
        return values, self._relay(lambda _: best[1], (self.rows, k), torch.long)

    def _relay(
        self,
        compute: Callable[[Distribution], Tensor],
        shape: tuple[int, ...],
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        if self.own is None:
            values = torch.empty(shape, dtype=dtype or self.dtype, device=self.device)
        else:
            values = compute(self.own).detach().contiguous()
        dist.broadcast(values, src=self.axis.ranks[-1], group=self.axis.group)
        return values
