"""All flags of the trainer, typed, one group a file; read them with `parse_args`.

Importing this loads no torch: the driver reads its flags in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from slime.arguments.groups.run import (
    CheckpointArguments,
    LimitArguments,
    LoopArguments,
    RunArguments,
    TrackingArguments,
)
from slime.arguments.groups.sampling import SamplingArguments
from slime.arguments.parser import environment, read_values
from slime.arguments.rules.parallel import check_packages
from slime.arguments.rules.validation import validate
from slime.arguments.sides import GenerationSide, ObjectiveSide, ServingSide, TrainingSide

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
    """Every flag as an attribute; flags that plug-ins declared are attributes too."""


def parse_args(
    argv: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    prog: str | None = None,
    packages: bool = True,
) -> Arguments:
    """Reads, checks and completes the arguments: flags over environment over defaults.

    Args:
        argv: words of the command line; None takes those of the process.
        env: environment; None takes that of the process.
        packages: refuse a backend whose package is not installed; not for a plan.

    Raises:
        ConfigError: one line that says what is wrong and what to do.
        SystemExit: after --help.
    """
    if argv is None:
        import sys

        argv = sys.argv[1:]
    values = read_values(argv, GROUPS, environment() if env is None else env, prog)
    args = Arguments()
    for name, value in values.items():
        setattr(args, name, value)
    validate(args)
    if packages:
        check_packages(args)
    return args


__all__ = ["GROUPS", "Arguments", "parse_args", "validate"]
