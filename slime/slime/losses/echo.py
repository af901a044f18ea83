"""Cross-entropy on the next message of the environment or a person, as an additional training signal.

ECHO, arXiv 2605.24517 (2026): an agent that can predict the reply has a model of its environment. The loss
uses the forward pass of the policy gradient.
"""

from __future__ import annotations

from torch import Tensor

from slime.losses.formula import Distribution, LossOutput, Reducer


class Rows:
    """A contiguous part of a distribution's rows: `size` rows from `start` on."""

    def __init__(self, whole: Distribution, total: int, start: int, size: int) -> None:
        self.whole, self.total, self.rows = whole, total, slice(start, start + size)

    def log_probs(self, ids: Tensor) -> Tensor:
        wide = ids.new_zeros((self.total, *ids.shape[1:]))
        wide[self.rows] = ids
        return self.whole.log_probs(wide)[self.rows]

    def logsumexp(self) -> Tensor:
        return self.whole.logsumexp()[self.rows]

    def entropy(self) -> Tensor:
        return self.whole.entropy()[self.rows]

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        values, ids = self.whole.topk(k)
        return values[self.rows], ids[self.rows]

    def guided(self, plain: Rows, strength: float) -> Rows:
        """See `Distribution`."""
        whole: Distribution = self.whole.guided(plain.whole, strength)
        return Rows(whole, self.total, self.rows.start, self.rows.stop - self.rows.start)


def echo_loss(dist: Distribution, observed: Tensor, reducer: Reducer) -> LossOutput:
    """Returns the cross-entropy of tokens that the policy did not sample, in nats.

    Args:
        dist: distribution of the observed tokens, at temperature 1, since they were not sampled.
        observed: their ids [E]; the loss is 0 without any.

    Returns:
        The reduced loss, and `echo_loss` as its only metric.
    """
    loss = -reducer(dist.log_probs(observed))
    return LossOutput(loss=loss, metrics={"echo_loss": loss.detach()})
