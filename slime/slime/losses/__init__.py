"""The loss library: pure torch, shared by all training backends."""

from slime.losses.distribution import DenseDistribution, Distribution
from slime.losses.output import LossOutput
from slime.losses.reducers import Reducer, sample_mean, sample_mean_weights, token_mean, weighted_sum
from slime.losses.sft import sft_loss

__all__ = [
    "DenseDistribution",
    "Distribution",
    "LossOutput",
    "Reducer",
    "sample_mean",
    "sample_mean_weights",
    "sft_loss",
    "token_mean",
    "weighted_sum",
]
