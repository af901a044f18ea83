"""Groups of flags that are read together: what a function takes that reads several of one side, and not all of them."""

from __future__ import annotations

from dataclasses import dataclass

from slime.arguments.groups.advantages import AdvantageArguments
from slime.arguments.groups.batching import BatchArguments
from slime.arguments.groups.cluster import ClusterArguments
from slime.arguments.groups.critic import CriticArguments
from slime.arguments.groups.data import DataArguments
from slime.arguments.groups.distillation import DistillationArguments, StalenessArguments
from slime.arguments.groups.engine import EngineArguments
from slime.arguments.groups.evaluation import EvaluationArguments
from slime.arguments.groups.gate import GateArguments
from slime.arguments.groups.hooks import HookArguments
from slime.arguments.groups.lora import LoraArguments
from slime.arguments.groups.loss import LossArguments
from slime.arguments.groups.model import ModelArguments
from slime.arguments.groups.optimizer import OptimizerArguments
from slime.arguments.groups.parallel import ParallelArguments
from slime.arguments.groups.prm import PrmArguments
from slime.arguments.groups.rented import RentedArguments
from slime.arguments.groups.reward import RewardArguments
from slime.arguments.groups.rollout import RolloutArguments
from slime.arguments.groups.run import CheckpointArguments, LimitArguments, LoopArguments, RunArguments
from slime.arguments.groups.sampling import SamplingArguments


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
    """What is optimised: losses, advantages, teachers."""


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
    """How a model is held, divided and moved."""


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
    """How samples come about: prompts, answers, rewards, evaluations."""


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
    """Which engines run where, and how weights reach them."""
