"""Inputs and outputs of a loss formula: a distribution, samples of its tokens, a reducer, settings, an output.

A loss does not access logits, so the same loss works on a dense distribution and on one with a vocabulary sharded
over ranks. All arithmetic is at least fp32, for any dtype of the logits.

A reducer sums weighted tokens and never divides by the size of its micro-batch. So the sum over all micro-batches and
ranks of a step is the step's value, independent of packing.

Settings are small frozen records. Each field has the name of the flag that sets it, and the flag's default. So
`settings_of` reads any object with such attributes, above all the `args` that a hook gets, and this library imports no
flag group.
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
        """Log-probabilities of `ids` [T] or [T, K], in the same shape. Differentiable."""
        ...

    def logsumexp(self) -> Tensor:
        """Log-normaliser of the tempered logits, [T]."""
        ...

    def entropy(self) -> Tensor:
        """Entropy in nats, [T]. Differentiable."""
        ...

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Returns the k most likely tokens: (log-probs [T, K] in falling order, ids [T, K])."""
        ...

    def guided(self, plain: Any, strength: float) -> Distribution:
        """Returns the distribution with a hint's effect applied `strength` times: classifier-free guidance (Ho and
        Salimans 2022, arXiv 2207.12598; of language models Sanchez et al. 2023, arXiv 2306.17806).

        log p = strength log p(. | hinted prompt) - (strength - 1) log p(. | plain prompt), normalised. With strength
        1, or if both prompts are equal, it is the hinted distribution, which is `self`.

        Args:
            plain: of the same tokens at the same temperatures, by the same model, and so of the same kind.
            strength: 1 or more.
        """
        ...


@dataclass(frozen=True)
class Segments:
    """The samples of a micro-batch, in order. Losses see only their T trained tokens.

    Attributes:
        total_lengths: tokens of each sample, prompt and response.
        masks: [R] of bool for each sample: which response tokens are trained, at least one of them.
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
        """[T] -> one tensor a sample."""
        return list(torch.split(values, list(self.counts)))

    def mean(self, values: Tensor) -> Tensor:
        """[T] -> mean of each sample [S]."""
        return torch.stack([part.mean() for part in self.split(values)])

    def spread(self, values: Tensor) -> Tensor:
        """One value a sample [S] -> [T]."""
        return values.repeat_interleave(torch.tensor(self.counts, device=values.device))

    def widen(self, values: Tensor) -> Tensor:
        """[T] -> all response tokens [sum of R], 0 on those that are not trained. Differentiable."""
        wide = values.new_zeros(sum(self.response_lengths))
        return wide.index_copy(0, self._positions, values)

    def widen_split(self, values: Tensor) -> list[Tensor]:
        """[T] -> [R] for each sample, 0 on tokens that are not trained."""
        return list(torch.split(self.widen(values), list(self.response_lengths)))

    def narrow(self, values: Tensor | Sequence[Tensor]) -> Tensor:
        """The inverse of `widen` and `widen_split`: [sum of R] -> [T]."""
        flat = values if isinstance(values, Tensor) else torch.cat(list(values))
        return flat[self._positions]


@dataclass(frozen=True)
class LossOutput:
    """A differentiable loss and detached metrics, all scalars, reduced in the same way."""

    loss: Tensor
    metrics: dict[str, Tensor] = field(default_factory=dict)


Reducer = Callable[[Tensor], Tensor]


def weighted_sum(weights: Tensor, denominator: float = 1.0) -> Reducer:
    """Returns a reducer of x [T] to sum(x * weights) / denominator. Tokens of weight 0 never count, even if they are
    NaN.

    Raises:
        ValueError: if the denominator is not positive.
    """
    if denominator <= 0:
        raise ValueError(f"the denominator of a loss must be positive, got {denominator}")

    def reduce(values: Tensor) -> Tensor:
        kept = torch.where(weights != 0, values, torch.zeros_like(values))
        return (kept * weights.to(values.dtype)).sum() / denominator

    return reduce


def sample_mean_weights(loss_masks: Sequence[Tensor]) -> Tensor:
    """Returns token weights [sum of lengths] by which every sample counts as the mean over its trained tokens.

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
        kl_coef: weight of the divergence in the reward of a token, reward a nat.
        kl_loss_type: the estimator of that divergence.
        gamma, lambd: discount of rewards and of GAE from token to token, 0 to 1.
    """

    advantage_estimator: str = "grpo"
    kl_coef: float = 0.0
    kl_loss_type: KLType = "k1"
    gamma: float = 1.0
    lambd: float = 1.0


@dataclass(frozen=True)
class CorrectionSettings:
    """Weights of tokens that the current policy would not have sampled.

    Attributes:
        use_opsm, opsm_delta: drop tokens of samples whose mean log-prob fell by more than this, nats a token.
        use_tis: weigh by trainer over engine; get_mismatch_metrics: measure these weights only.
        tis_mode: "truncate" or "icepop"; tis_spans: "all" tokens or "older" ones.
        tis_clip_low, tis_clip: range of the weights, probability ratios.
        custom_tis: the user's function in place of `tis_mode`, and the `args` that it gets.
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
    """The clipped policy gradient.

    Attributes:
        advantage_estimator: "gspo" and "cispo" name an objective too; all others take PPO's.
        use_opd: advantages follow a teacher, so the ratio counts from the weights before the update.
        eps_clip, eps_clip_high: the probability ratio stays in [1 - eps_clip, 1 + eps_clip_high]; None: `eps_clip` twice.
        eps_clip_c: bound of the loss of tokens with negative advantage, a ratio above 1; None: no bound.
        calculate_per_token_loss: every trained token weighs the same, not every sample.
        make_reducer: the user's f(total_lengths, response_lengths, loss_masks, per_token) -> reducer of [sum of R].
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
    """The likely ids that are compared with a teacher's, and the choice of the hint. A subset of None: the default of
    the loss."""

    distill_subset_mode: str | None = None
    hint_selection: str = "shortest"


def settings_of(kind: type[S], args: object) -> S:
    """Returns the record of this kind from `args`.

    Args:
        args: a record of this kind, or an object with an attribute for each flag.

    Raises:
        AttributeError: a flag is missing.
        ConfigError: the user's function behind a flag cannot be loaded.
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
"""Fields that are not the value of one flag."""
