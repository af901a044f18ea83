"""Inputs and outputs of a loss formula: a distribution, samples of its tokens, a reducer, settings, an
output.

A loss does not access logits, so the same loss works on a dense distribution and on one with a vocabulary
sharded over ranks. All arithmetic is at least fp32, for any dtype of the logits.

A reducer sums weighted tokens and never divides by the size of its micro-batch. So the sum over all
micro-batches and ranks of a step is the step's value, independent of packing.

Settings are small frozen records. Each field has the name and the default of its flag. So `settings_of` reads
any object with such attributes, such as the `args` of a hook, and this library imports no flag group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from slime.hooks import load_hook


class Distribution(Protocol):
    """One categorical distribution for each of T positions, at the sampling temperature of its token."""

    def log_probs(self, ids: Tensor) -> Tensor:
        """Returns log-probabilities of `ids` [T] or [T, K], in the same shape. Differentiable."""
        ...

    def logsumexp(self) -> Tensor:
        """Returns the log-normaliser of the tempered logits, [T]."""
        ...

    def entropy(self) -> Tensor:
        """Returns the entropy in nats, [T]. Differentiable."""
        ...

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Returns log-probs [T, K], in descending order, and ids [T, K] of the k most likely tokens."""
        ...

    def guided(self, plain: Any, strength: float) -> Distribution:
        """Returns the distribution after classifier-free guidance by a hint.

        Ho and Salimans 2022, arXiv 2207.12598; for language models Sanchez et al. 2023, arXiv 2306.17806. log
        p = strength log p(. | hinted prompt) - (strength - 1) log p(. | plain prompt), normalised. With
        strength 1, or if both prompts are equal, it is the hinted distribution, which is `self`.

        Args:
            plain: distribution of the same kind, after the plain prompt: same tokens, temperatures and model.
            strength: 1 or more.
        """
        ...


@dataclass(frozen=True)
class Segments:
    """The samples of a micro-batch, in order; losses have only their T trained tokens.

    Attributes:
        total_lengths: tokens of each sample, prompt and response.
        masks: bool [R] for each sample: its trained response tokens, at least one.
    """

    total_lengths: tuple[int, ...]
    masks: tuple[Tensor, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Returns the number of trained tokens of each sample; the sum is T."""
        return tuple(int(mask.sum()) for mask in self.masks)

    @property
    def response_lengths(self) -> tuple[int, ...]:
        """Returns the number of response tokens of each sample, including untrained ones."""
        return tuple(len(mask) for mask in self.masks)

    @cached_property
    def _positions(self) -> Tensor:
        return torch.cat(self.masks).nonzero().squeeze(-1)

    def split(self, values: Tensor) -> list[Tensor]:
        """Splits [T] into one tensor per sample."""
        return list(torch.split(values, list(self.counts)))

    def mean(self, values: Tensor) -> Tensor:
        """Returns the mean of each sample [S] from [T]."""
        return torch.stack([part.mean() for part in self.split(values)])

    def spread(self, values: Tensor) -> Tensor:
        """Expands one value per sample [S] to [T]."""
        return values.repeat_interleave(torch.tensor(self.counts, device=values.device))

    def widen(self, values: Tensor) -> Tensor:
        """Expands [T] to all response tokens [sum of R], with 0 for untrained ones. Differentiable."""
        wide = values.new_zeros(sum(self.response_lengths))
        return wide.index_copy(0, self._positions, values)

    def widen_split(self, values: Tensor) -> list[Tensor]:
        """Expands [T] to one tensor [R] per sample, with 0 for untrained tokens."""
        return list(torch.split(self.widen(values), list(self.response_lengths)))

    def narrow(self, values: Tensor | Sequence[Tensor]) -> Tensor:
        """Inverse of `widen` and `widen_split`: [sum of R] -> [T]."""
        flat = values if isinstance(values, Tensor) else torch.cat(list(values))
        return flat[self._positions]


@dataclass(frozen=True)
class LossOutput:
    """A differentiable loss and detached metrics, all scalars, reduced in the same way."""

    loss: Tensor
    metrics: dict[str, Tensor] = field(default_factory=dict)


Reducer = Callable[[Tensor], Tensor]


def weighted_sum(weights: Tensor, denominator: float = 1.0) -> Reducer:
    """Returns a reducer of x [T] to sum(x * weights) / denominator.

    Tokens of weight 0 never count, even if they are NaN.

    Raises:
        ValueError: the denominator is not positive.
    """
    if denominator <= 0:
        raise ValueError(f"the denominator of a loss must be positive, got {denominator}")

    def reduce(values: Tensor) -> Tensor:
        kept = torch.where(weights != 0, values, torch.zeros_like(values))
        return (kept * weights.to(values.dtype)).sum() / denominator

    return reduce


def sample_mean_weights(loss_masks: Sequence[Tensor]) -> Tensor:
    """Returns token weights [sum of lengths] for the mean of each sample's trained tokens.

    A sample without trained tokens has weight 0.
    """
    return torch.cat([mask.float() / max(float(mask.sum()), 1.0) for mask in loss_masks])


def sample_mean(loss_masks: Sequence[Tensor], num_samples: float) -> Reducer:
    """Returns the mean over samples of the mean over trained tokens; `num_samples` counts the whole step, all ranks."""
    return weighted_sum(sample_mean_weights(loss_masks), num_samples)


def token_mean(loss_masks: Sequence[Tensor], num_tokens: float) -> Reducer:
    """Returns the mean over trained tokens; `num_tokens` counts the whole step, all ranks."""
    return weighted_sum(torch.cat([mask.float() for mask in loss_masks]), num_tokens)


S = TypeVar("S")
KLType = Literal["k1", "k2", "k3", "low_var_kl"]


@dataclass(frozen=True)
class AdvantageSettings:
    """Settings of the conversion from rewards to advantages.

    Attributes:
        kl_coef: weight of the divergence in token rewards, reward per nat.
        kl_loss_type: estimator of that divergence.
        gamma, lambd: discount factors per token of rewards and of GAE, 0 to 1.
    """

    advantage_estimator: str = "grpo"
    kl_coef: float = 0.0
    kl_loss_type: KLType = "k1"
    gamma: float = 1.0
    lambd: float = 1.0


@dataclass(frozen=True)
class CorrectionSettings:
    """Corrections for tokens that the current policy would not have sampled.

    Attributes:
        use_opsm, opsm_delta: drop tokens of samples whose mean log-prob fell by more than this, nats per
            token.
        use_tis: weight by trainer over engine; get_mismatch_metrics: only measure these weights.
        tis_mode: "truncate" or "icepop"; tis_spans: "all" tokens or "older" ones.
        tis_clip_low, tis_clip: range of the weights, probability ratios.
        custom_tis: the user's function, which replaces `tis_mode`, and its `args`.
    """

    use_opsm: bool = False
    opsm_delta: float = 1e-4
    use_tis: bool = False
    get_mismatch_metrics: bool = False
    tis_mode: str = "truncate"
    tis_spans: str = "all"
    tis_clip_low: float = 0.0
    tis_clip: float = 2.0
    custom_tis: tuple[Callable[..., Any], object] | None = None


@dataclass(frozen=True)
class PolicySettings:
    """Settings of the clipped policy gradient.

    Attributes:
        advantage_estimator: "gspo" and "cispo" also select an objective; all others use PPO's.
        use_opd: advantages include a teacher, so the ratio is relative to the weights before the update.
        eps_clip, eps_clip_high: the probability ratio is clipped to [1 - eps_clip, 1 + eps_clip_high]; None:
            `eps_clip` for both.
        eps_clip_c: bound of the loss of tokens with negative advantage, a ratio above 1; None: no bound.
        calculate_per_token_loss: weight all trained tokens equally, instead of all samples.
        make_reducer: the user's f(total_lengths, response_lengths, loss_masks, per_token) -> reducer of [sum
            of R].
    """

    advantage_estimator: str = "grpo"
    use_opd: bool = False
    eps_clip: float = 0.2
    eps_clip_high: float | None = None
    eps_clip_c: float | None = None
    calculate_per_token_loss: bool = False
    corrections: CorrectionSettings = field(default_factory=CorrectionSettings)
    make_reducer: Callable[..., Reducer] | None = None

    @property
    def follows_teacher(self) -> bool:
        """Returns whether a teacher's log-probs are part of the advantages."""
        return self.use_opd or self.advantage_estimator == "on_policy_distillation"


@dataclass(frozen=True)
class TeacherSettings:
    """Settings of the compared likely ids and of the hint. A subset of None: the loss's default."""

    distill_subset_mode: str | None = None
    hint_selection: str = "shortest"


def settings_of(kind: type[S], args: object) -> S:
    """Returns the settings record of this kind from `args`.

    Args:
        args: a record of this kind, or an object with an attribute for each flag.

    Raises:
        AttributeError: a flag is missing.
        ConfigError: the user's function of a flag cannot be loaded.
    """
    if isinstance(args, kind):
        return args
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: LOADED[name](args) if name in LOADED else attrgetter(name)(args) for name in names})


def _custom_tis(args: object) -> tuple[Callable[..., Any], object] | None:
    weighs = any(attrgetter("use_tis", "get_mismatch_metrics")(args))
    function = load_hook(args, "custom_tis_function_path") if weighs else None
    return None if function is None else (function, args)


LOADED: dict[str, Callable[[object], Any]] = {
    "corrections": lambda args: settings_of(CorrectionSettings, args),
    "custom_tis": _custom_tis,
    "make_reducer": lambda args: load_hook(args, "custom_pg_loss_reducer_function_path"),
}
"""Fields that are not the value of a single flag."""
