"""Combinations of flag groups, for functions that need several but not all of them."""

from __future__ import annotations

from dataclasses import dataclass

from slime.flags.advantages import AdvantageArguments
from slime.flags.batching import BatchArguments
from slime.flags.cluster import ClusterArguments
from slime.flags.critic import CriticArguments
from slime.flags.data import DataArguments
from slime.flags.distillation import DistillationArguments, StalenessArguments
from slime.flags.engine import EngineArguments
from slime.flags.evaluation import EvaluationArguments
from slime.flags.gate import GateArguments
from slime.flags.hooks import HookArguments
from slime.flags.lora import LoraArguments
from slime.flags.loss import LossArguments
from slime.flags.model import ModelArguments
from slime.flags.optimizer import OptimizerArguments
from slime.flags.parallel import ParallelArguments
from slime.flags.prm import PrmArguments
from slime.flags.rented import RentedArguments
from slime.flags.reward import RewardArguments
from slime.flags.rollout import RolloutArguments
from slime.flags.run import CheckpointArguments, LimitArguments, LoopArguments, RunArguments
from slime.flags.sampling import SamplingArguments


@dataclass
class ObjectiveSide(
    StalenessArguments,
    DistillationArguments,
    CriticArguments,
    AdvantageArguments,
    LossArguments,
    HookArguments,
    RolloutArguments,
):
    """The objective: losses, advantages, teachers."""


@dataclass
class TrainingSide(
    OptimizerArguments,
    LoraArguments,
    BatchArguments,
    ParallelArguments,
    ClusterArguments,
    ModelArguments,
    RunArguments,
):
    """Flags of the model's precision, parallelism and memory."""


@dataclass
class GenerationSide(
    StalenessArguments,
    EngineArguments,
    HookArguments,
    EvaluationArguments,
    RewardArguments,
    PrmArguments,
    SamplingArguments,
    RolloutArguments,
    DataArguments,
    ModelArguments,
    LoopArguments,
    RunArguments,
):
    """Flags of prompts, answers, rewards and evaluations."""


@dataclass
class ServingSide(
    RentedArguments,
    EngineArguments,
    ClusterArguments,
    RewardArguments,
    ModelArguments,
    LimitArguments,
    GateArguments,
    CheckpointArguments,
    LoopArguments,
    RunArguments,
):
    """Flags of engines and of weight transfers."""
