"""The loss library: pure torch, shared by all training backends."""

from slime.losses.advantages import group_advantages
from slime.losses.distribution import DenseDistribution, Distribution
from slime.losses.kl import approx_kl, kl_loss
from slime.losses.output import LossOutput
from slime.losses.policy import entropy_loss, policy_loss
from slime.losses.reducers import Reducer, sample_mean, sample_mean_weights, token_mean, weighted_sum
from slime.losses.sft import sft_loss
from slime.losses.spec import Component, LossBatch, LossSpec, compute_loss, loss_spec

__all__ = [
    "Component",
    "DenseDistribution",
    "Distribution",
    "LossBatch",
    "LossOutput",
    "LossSpec",
    "Reducer",
    "approx_kl",
    "compute_loss",
    "entropy_loss",
    "group_advantages",
    "kl_loss",
    "loss_spec",
    "policy_loss",
    "sample_mean",
    "sample_mean_weights",
    "sft_loss",
    "token_mean",
    "weighted_sum",
]
