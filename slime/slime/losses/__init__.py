"""The loss library: pure torch, shared by all training backends."""

from slime.losses.advantages import (
    SampleTerms,
    distilled,
    estimator,
    group_advantages,
    group_counts,
    whiten,
)
from slime.losses.built_in import policy_component, sft_loss, targets_of, topk_divergence, topk_settings
from slime.losses.chunked import ChunkedDistribution
from slime.losses.component import Component, Compute, LossBatch, LossSpec, compute_loss
from slime.losses.corrections import custom_tis, opsm, tis
from slime.losses.custom import (
    get_log_probs_and_entropy,
    get_responses,
    load_custom_loss,
    pack_loss,
    sample_loss,
)
from slime.losses.distillation import (
    clipped_topk_loss,
    combined_advantages,
    log1mexp,
    reverse_kl_topk,
    tail_log_prob,
)
from slime.losses.distribution import DenseDistribution, Distribution
from slime.losses.echo import Rows, echo_loss
from slime.losses.kl import approx_kl, kl_loss
from slime.losses.output import LossOutput
from slime.losses.policy import entropy_loss, policy_loss
from slime.losses.reducers import Reducer, sample_mean, sample_mean_weights, token_mean, weighted_sum
from slime.losses.segments import Segments
from slime.losses.settings import (
    AdvantageSettings,
    CorrectionSettings,
    PolicySettings,
    TeacherSettings,
    settings_of,
)
from slime.losses.step_wise import Span, normalized_spans, spans_of, steps_of
from slime.losses.teacher_topk import Candidates, TopKTargets, choose_hints, overlaps, topk_targets
from slime.losses.values import gae, ppo_advantages, value_loss

__all__ = [
    "AdvantageSettings",
    "Candidates",
    "ChunkedDistribution",
    "Component",
    "Compute",
    "CorrectionSettings",
    "DenseDistribution",
    "Distribution",
    "LossBatch",
    "LossOutput",
    "LossSpec",
    "PolicySettings",
    "Reducer",
    "Rows",
    "SampleTerms",
    "Segments",
    "Span",
    "TeacherSettings",
    "TopKTargets",
    "approx_kl",
    "choose_hints",
    "clipped_topk_loss",
    "combined_advantages",
    "compute_loss",
    "custom_tis",
    "distilled",
    "echo_loss",
    "entropy_loss",
    "estimator",
    "gae",
    "get_log_probs_and_entropy",
    "get_responses",
    "group_advantages",
    "group_counts",
    "kl_loss",
    "load_custom_loss",
    "log1mexp",
    "normalized_spans",
    "opsm",
    "overlaps",
    "pack_loss",
    "policy_component",
    "policy_loss",
    "ppo_advantages",
    "reverse_kl_topk",
    "sample_loss",
    "sample_mean",
    "sample_mean_weights",
    "settings_of",
    "sft_loss",
    "spans_of",
    "steps_of",
    "tail_log_prob",
    "targets_of",
    "tis",
    "token_mean",
    "topk_divergence",
    "topk_settings",
    "topk_targets",
    "value_loss",
    "weighted_sum",
    "whiten",
]
