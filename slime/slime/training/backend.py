"""The models of one training rank, as the flags want them: policy, critic, reference, teacher.

A backend says how models are spread over ranks; which models there are, and what a checkpoint holds of them, is the
same for all backends.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from slime.losses import LossSpec
from slime.training.core.checkpoint import CheckpointWriter, seed_all
from slime.training.core.critic import Critic
from slime.training.core.distributed import device_of, join
from slime.training.core.learner import Learner
from slime.training.core.model import TrainedModel, ValueModel
from slime.training.core.objective import loss_spec
from slime.training.core.part import Part
from slime.training.core.reference import PREFIX as REFERENCE
from slime.training.core.reference import Reference
from slime.training.core.teacher import Teacher, make_teacher
from slime.training.persistence import Persistent
from slime.utils.sdpa import without_cudnn

if TYPE_CHECKING:
    from slime.flags import Arguments


class Backend(Persistent):
    """One of `world_size` ranks that train a Hugging Face model. All ranks make the same calls.

    A replica is the ranks that hold one model together; replicas train on different samples.

    Args:
        args: `slime.arguments.Arguments`.
        init_method, store: how several ranks find each other, as in `torch.distributed.init_process_group`.

    Attributes:
        replica, replicas: the number of this rank's replica, and how many there are.
        learner: the policy.

    Raises:
        ConfigError: a model that this backend cannot load, ranks that do not divide it, a loss that does not exist.
    """

    replica: int
    replicas: int
    mesh: DeviceMesh
    device: torch.device
    spec: LossSpec
    learner: Learner[TrainedModel]
    reference: Reference | None = None
    teacher: Teacher | None = None

    def __init__(
        self,
        args: Arguments,
        rank: int = 0,
        world_size: int = 1,
        init_method: str | None = None,
        store: object = None,
    ) -> None:
        self.args, self.rank, self.world_size = args, rank, world_size
        on_gpu = args.actor_num_gpus_per_node > 0
        torch.set_num_threads(args.train_threads)
        without_cudnn()
        self.mesh = join(rank, world_size, on_gpu, init_method, store, one_node=args.actor_num_nodes == 1)
        self.device = device_of(self.mesh)
        self.replica, self.replicas = self.divide()
        seed_all(args.seed + rank)
        self.spec = loss_spec(args)
        first = self.first_weights()
        self.learner = self.load_policy(first)
        if self.spec.needs_advantages and args.advantage_estimator == "ppo":
            self.critic = Critic(args, self.load_critic(), self.replica, self.device)
        if self.spec.needs_reference:
            self.reference = Reference(args, self.model, first, self.load_frozen)
        if self.spec.teacher is not None:
            known = self.replica, self.model, self.reference, first, self.load_frozen
            self.teacher = make_teacher(args, *known)
        self.writer = CheckpointWriter(args.save, in_background=args.async_save)

    @property
    def model(self) -> TrainedModel:
        """The policy."""
        return self.learner.model

    @property
    def vocabulary(self) -> int:
        """Tokens that the policy knows."""
        return self.model.vocabulary

    @property
    def sees(self) -> bool:
        """The policy takes images."""
        return False

    @property
    def parts(self) -> list[Part]:
        """All that changes, as checkpoints hold it."""
        critic = [self.critic.part] if self.critic else []
        follows = self.reference is not None and self.reference.follows
        reference = [self.weights_part(self.reference.model, REFERENCE)] if self.reference and follows else []
        return [self.learner.part(), *critic, *reference]

    @property
    def resident(self) -> list[Part]:
        """All that takes memory where it trains: `parts`, and the models that stay as they are."""
        parts = self.parts
        known = [part.model for part in parts]
        for holder in (self.reference, self.teacher):
            frozen = None if holder is None else holder.model
            if frozen is not None and not any(frozen is model for model in known):
                known.append(frozen)
                parts.append(Part(frozen, None))
        return parts

    @property
    def asks_teacher_before(self) -> bool:
        """The teacher cannot be asked between forward and backward, but is before every step."""
        return False

    def keep_elsewhere(self) -> object:
        """Keeps what changes and is not in this process; returns what finds it again."""
        return None

    def return_elsewhere(self, kept: object) -> None:
        """Brings back what `keep_elsewhere` kept."""

    @abstractmethod
    def divide(self) -> tuple[int, int]:
        """Divides the ranks: the number of this rank's replica, and how many there are."""

    @abstractmethod
    def load_policy(self, folder: str) -> Learner[TrainedModel]:
        """The model that is trained, with adapters where the flags want them."""

    @abstractmethod
    def load_critic(self) -> Learner[ValueModel]:
        """The critic of --critic-load, or one that begins as the policy does."""

    @abstractmethod
    def load_frozen(self, folder: str) -> TrainedModel:
        """A model of which no gradients will be taken."""

    @abstractmethod
    def weights_part(self, model: object, prefix: str) -> Part:
        """What a checkpoint holds of a model that no optimizer moves."""

    @abstractmethod
    def add_up(self, values: Tensor) -> Tensor:
        """Sum of a CPU tensor over the replicas."""
