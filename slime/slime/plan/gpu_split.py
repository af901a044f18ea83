"""The number of GPUs (or CPU ranks) of each part of a run, from its flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slime.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from slime.flags.engine import EngineArguments
    from slime.flags.sides import ServingSide


@dataclass(frozen=True)
class RunPart:
    """One part of a run: its number of bundles, each with a GPU or, if `on_gpu` is False, a CPU rank. `each`: GPUs of
    one of its engines."""

    name: str
    count: int
    on_gpu: bool = False
    each: int = 1


@dataclass(frozen=True)
class GpuSplit:
    """The parts of a run in the order of their bundles. `shared`: engines use the GPUs of the first trainers."""

    parts: tuple[RunPart, ...]
    shared: int = 0

    @property
    def total(self) -> int:
        return sum(part.count for part in self.parts)

    @property
    def gpus(self) -> int:
        return sum(part.count for part in self.parts if part.on_gpu)

    @property
    def ray_gpus(self) -> int | None:
        """Returns the number of GPUs that Ray may assign; None: Ray counts them."""
        return None if self.gpus else 0

    def bundles(self) -> list[dict[str, float]]:
        """Returns the resources of every bundle, in order."""
        with_gpu, without = {"CPU": 1.0, "GPU": 1.0}, {"CPU": 1.0}
        return [with_gpu if part.on_gpu else without for part in self.parts for _ in range(part.count)]

    @property
    def engine_parts(self) -> list[RunPart]:
        """Returns the parts whose engines have their own GPUs."""
        return [part for part in self.parts if part.on_gpu and part.name != "actor" and part.count]

    def check(self, gpus: int) -> None:
        """Raises ClusterError with the numbers if the parts need more than `gpus` GPUs."""
        if self.gpus > gpus:
            total = self.sum_of(self.parts)
            raise ClusterError(f"{total} = {self.gpus} GPUs, but there are {gpus}: make a part smaller")

    @staticmethod
    def sum_of(parts: Sequence[RunPart]) -> str:
        return " + ".join(f"{part.name} {part.count}" for part in parts if part.on_gpu and part.count)


def split_of(args: ServingSide) -> GpuSplit:
    """Returns the split given by the flags."""
    trains_on_gpu, serves_on_gpu = args.actor_num_gpus_per_node > 0, args.rollout_num_gpus > 0
    engines = args.rollout_num_gpus or args.rollout_num_engines
    if args.debug_train_only or args.rollout_external_engine_addrs:
        engines = 0
    each = args.rollout_num_gpus_per_engine if serves_on_gpu else 1
    others = () if args.debug_train_only else judge_parts(args)
    actor = RunPart("actor", 0 if args.debug_rollout_only else args.train_world_size, trains_on_gpu)
    if not args.colocate or args.debug_rollout_only:
        return GpuSplit((actor, RunPart("rollout", engines, serves_on_gpu, each), *others))
    if serves_on_gpu and engines > actor.count:
        raise ConfigError(
            f"--colocate: the engines need {engines} GPUs, but the trainers have only {actor.count}; "
            f"set --rollout-num-gpus to at most {actor.count}"
        )
    return GpuSplit((actor, RunPart("rollout", 0, serves_on_gpu, each), *others), shared=engines)


def judge_parts(args: EngineArguments) -> tuple[RunPart, ...]:
    """Returns the GPUs of judge and teacher engines, if there are any."""
    parts = (
        RunPart("prm", args.prm_num_gpus, True, args.prm_num_gpus_per_engine),
        RunPart("teacher", args.prm_teacher_num_gpus, True, args.prm_teacher_num_gpus),
    )
    return tuple(part for part in parts if part.count)
