"""Corrections of a token's policy loss for data that the current policy would not have sampled.

Truncated importance sampling (TIS, Yao 2025) and IcePop (Ling team, 2025) weight by the ratio of trainer and engine,
OPSM (off-policy sequence masking, DeepSeek-V3.2) drops bad answers that the policy has moved away from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from slime.losses.formula import CorrectionSettings, Segments


@dataclass(frozen=True)
class PolicyTerms:
    """Inputs of a correction, all [T] and without gradients.

    Attributes:
        drift: old - new log-prob.
        rollout_log_probs: log-probs reported by the engine.
        older: bool, tokens sampled by older weights than those before the update.
    """

    drift: Tensor
    old_log_probs: Tensor
    advantages: Tensor
    rollout_log_probs: Tensor | None
    segments: Segments | None
    older: Tensor | None = None

    @property
    def engine(self) -> Tensor:
        if self.rollout_log_probs is None:
            raise ValueError("importance sampling between engine and trainer needs rollout_log_probs")
        return self.rollout_log_probs

    @property
    def samples(self) -> Segments:
        if self.segments is None:
            raise ValueError("this correction needs the samples of the tokens")
        return self.segments


Correction = Callable[[Tensor, PolicyTerms], tuple[Tensor, dict[str, Tensor]]]
"""(loss of the tokens [T], terms) -> (new loss [T], metrics [T] by name)."""
ICEPOP = {"truncate": False, "icepop": True}
ONLY_OLDER = {"all": False, "older": True}
"""Meanings of `tis_mode` and `tis_spans`."""


def corrections_of(settings: CorrectionSettings) -> list[Correction]:
    """Returns the configured corrections, in order of application."""
    corrections: list[Correction] = []
    if settings.use_opsm:
        corrections.append(opsm(settings.opsm_delta))
    if settings.use_tis or settings.get_mismatch_metrics:
        weigh = _engine_weights(settings)
        corrections.append(weigh if settings.use_tis else measured_only(weigh))
    return corrections


def _engine_weights(settings: CorrectionSettings) -> Correction:
    """Returns a correction that weights tokens by the ratio of trainer and engine."""
    if settings.custom_tis is not None:
        return custom_tis(*settings.custom_tis)
    icepop, older = ICEPOP[settings.tis_mode], ONLY_OLDER[settings.tis_spans]
    return tis(settings.tis_clip_low, settings.tis_clip, icepop=icepop, only_older=older)


def opsm(delta: float) -> Correction:
    """Returns a correction that drops tokens with A < 0 if their sample's mean of old - new log-prob exceeds
    `delta`."""

    def correct(per_token: Tensor, terms: PolicyTerms) -> tuple[Tensor, dict[str, Tensor]]:
        drift = terms.samples.spread(terms.samples.mean(terms.drift))
        dropped = (terms.advantages < 0) & (drift > delta)
        return per_token * ~dropped, {"opsm_clipfrac": dropped.to(per_token.dtype)}

    return correct


def tis(low: float, high: float, icepop: bool = False, only_older: bool = False) -> Correction:
    """Returns a correction with weights w = exp(old - engine log-prob), without gradient.

    Weights are clipped to [low, high] (TIS), or 0 outside (IcePop). The engine's log-probs are of the weights
    that sampled the token, so every version span of a turn has its own ratio.

    Args:
        only_older: tokens sampled by the weights before the update keep weight 1.
    """

    def correct(per_token: Tensor, terms: PolicyTerms) -> tuple[Tensor, dict[str, Tensor]]:
        ratio = (terms.old_log_probs - terms.engine).exp()
        if only_older:
            if terms.older is None:
                raise ValueError("correcting only older tokens needs a mask of older tokens")
            ratio = torch.where(terms.older, ratio, torch.ones_like(ratio))
        clipped = ratio.clamp(low, high)
        outside = clipped != ratio
        weight = torch.where(outside, torch.zeros_like(ratio), ratio) if icepop else clipped
        measured = {"tis": ratio, "tis_clipfrac": outside.to(ratio.dtype), "tis_abs": (ratio - 1).abs()}
        if terms.older is not None:
            measured["tis_abs_older"] = (ratio - 1).abs() * terms.older
        return per_token * weight, measured

    return correct


def measured_only(correct: Correction) -> Correction:
    """Returns a correction that only reports the metrics of another."""

    def measure(per_token: Tensor, terms: PolicyTerms) -> tuple[Tensor, dict[str, Tensor]]:
        _, metrics = correct(per_token.detach(), terms)
        return per_token, metrics

    return measure


def custom_tis(function: Callable[..., Any], args: object) -> Correction:
    """Returns a correction from slime's hook.

    The hook is f(*, args, pg_loss, train_log_probs, rollout_log_probs, loss_masks, total_lengths,
    response_lengths) -> (pg_loss, new loss masks, metrics). `pg_loss` is [sum of R], lists have one [R] per
    sample. Tokens excluded by the new masks have no loss; denominators are unchanged. Metrics are [sum of R],
    or one number for the micro-batch.
    """

    def correct(per_token: Tensor, terms: PolicyTerms) -> tuple[Tensor, dict[str, Tensor]]:
        samples = terms.samples
        wide, masks, metrics = function(
            args=args,
            pg_loss=samples.widen(per_token),
            train_log_probs=samples.widen_split(terms.old_log_probs),
            rollout_log_probs=samples.widen_split(terms.engine),
            loss_masks=[mask.to(per_token.dtype) for mask in samples.masks],
            total_lengths=list(samples.total_lengths),
            response_lengths=list(samples.response_lengths),
        )
        kept = samples.narrow(masks) != 0
        corrected = torch.where(kept, samples.narrow(wide), torch.zeros_like(per_token))
        return corrected, {name: _per_token(value, per_token, samples) for name, value in metrics.items()}

    return correct


def _per_token(value: object, like: Tensor, samples: Segments) -> Tensor:
    if isinstance(value, list | tuple):
        value = torch.cat(list(value))
    tensor = torch.as_tensor(value, dtype=like.dtype, device=like.device).detach()
    return tensor.expand_as(like) if tensor.numel() == 1 else samples.narrow(tensor)
