"""All flags of the trainer, typed, one group per file.

All other packages use these groups in annotations, so this one imports none of them except `errors`.
"""

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
from slime.flags.run import (
    CheckpointArguments,
    LimitArguments,
    LoopArguments,
    RunArguments,
    TrackingArguments,
)
from slime.flags.sampling import SamplingArguments
from slime.flags.sides import GenerationSide, ObjectiveSide, ServingSide, TrainingSide

GROUPS: tuple[type, ...] = (
    RunArguments,
    LoopArguments,
    CheckpointArguments,
    GateArguments,
    LimitArguments,
    TrackingArguments,
    ModelArguments,
    DataArguments,
    RolloutArguments,
    SamplingArguments,
    RewardArguments,
    PrmArguments,
    EvaluationArguments,
    HookArguments,
    ClusterArguments,
    ParallelArguments,
    EngineArguments,
    RentedArguments,
    BatchArguments,
    LossArguments,
    AdvantageArguments,
    CriticArguments,
    DistillationArguments,
    StalenessArguments,
    LoraArguments,
    OptimizerArguments,
)


@dataclass
class Arguments(
    TrainingSide,
    ObjectiveSide,
    GenerationSide,
    ServingSide,
    OptimizerArguments,
    LoraArguments,
    StalenessArguments,
    DistillationArguments,
    CriticArguments,
    AdvantageArguments,
    LossArguments,
    BatchArguments,
    RentedArguments,
    EngineArguments,
    ParallelArguments,
    ClusterArguments,
    HookArguments,
    EvaluationArguments,
    RewardArguments,
    PrmArguments,
    SamplingArguments,
    RolloutArguments,
    DataArguments,
    ModelArguments,
    TrackingArguments,
    LimitArguments,
    GateArguments,
    CheckpointArguments,
    LoopArguments,
    RunArguments,
):
    """Every flag as an attribute, including those of plug-ins."""


__all__ = ["GROUPS", "Arguments"]
