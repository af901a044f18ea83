"""Which GPUs (or CPU ranks) do what: one placement group, dealt out to the parts of the run in order."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from slime.errors import ConfigError
from slime.trouble import with_advice

PLACEMENT_TIMEOUT = 60.0  # seconds


@dataclass(frozen=True)
class Part:
    """One part of a run: how many bundles it has, each with a GPU or, where `on_gpu` is False, a CPU rank."""

    name: str
    count: int
    on_gpu: bool = False


@dataclass(frozen=True)
class Split:
    """The parts of a run in the order of their bundles. `shared`: engines lie where the first trainers do."""

    parts: tuple[Part, ...]
    shared: int = 0

    @property
    def total(self) -> int:
        return sum(part.count for part in self.parts)

    @property
    def gpus(self) -> int:
        return sum(part.count for part in self.parts if part.on_gpu)

    def bundles(self) -> list[dict[str, float]]:
        """The resources of every bundle, in order."""
        with_gpu, without = {"CPU": 1.0, "GPU": 1.0}, {"CPU": 1.0}
        return [with_gpu if part.on_gpu else without for part in self.parts for _ in range(part.count)]

    def check(self, gpus: int) -> None:
        """Raises ConfigError with the arithmetic if the parts need more GPUs than the `gpus` there are."""
        if self.gpus > gpus:
            wanted = " + ".join(
                f"{part.name} {part.count}" for part in self.parts if part.on_gpu and part.count
            )
            raise ConfigError(f"{wanted} = {self.gpus} GPUs, but there are {gpus}: make a part smaller")


def split_of(args: Any) -> Split:
    """The split that the flags ask for."""
    trains_on_gpu, serves_on_gpu = args.actor_num_gpus_per_node > 0, args.rollout_num_gpus > 0
    engines = 0 if args.debug_train_only else args.rollout_num_gpus or args.rollout_num_engines
    others = () if args.debug_train_only else judge_parts(args)
    actor = Part("actor", 0 if args.debug_rollout_only else args.train_world_size, trains_on_gpu)
    if not args.colocate or args.debug_rollout_only:
        return Split((actor, Part("rollout", engines, serves_on_gpu), *others))
    if serves_on_gpu and engines > actor.count:
        raise ConfigError(
            f"--colocate: {engines} engines do not fit on the {actor.count} GPUs of the trainers; "
            "set --rollout-num-gpus to no more"
        )
    return Split((actor, Part("rollout", 0, serves_on_gpu), *others), shared=engines)


def judge_parts(args: Any) -> tuple[Part, ...]:
    """The GPUs of judge and teacher engines, where there are any."""
    parts = (Part("prm", args.prm_num_gpus, True), Part("teacher", args.prm_teacher_num_gpus, True))
    return tuple(part for part in parts if part.count)


@dataclass(frozen=True)
class BundleSite:
    """Where a bundle lies; without a GPU, its node does not matter."""

    bundle: int
    node: str
    gpu: int | None


def in_node_order(sites: Sequence[BundleSite], last: str = "") -> list[BundleSite]:
    """Sorts by node address (as a number: .9 before .10), then GPU. Nodes without one, and then the node `last`, come
    last: engines are started where the driver is, so trainers take the other nodes first."""

    def key(site: BundleSite) -> tuple[bool, int, int, str, int, int]:
        here = site.node == last
        try:
            return (here, 0, int(ip_address(site.node)), "", site.gpu or 0, site.bundle)
        except ValueError:
            return (here, 1, 0, site.node, site.gpu or 0, site.bundle)

    return sorted(sites, key=key)


class Placement:
    """A placement group that is ready, and where each part of the split lies in it."""

    def __init__(self, split: Split) -> None:
        split.check(int(ray.cluster_resources().get("GPU", 0)))
        self.split = split
        bundles = split.bundles()
        self.group: PlacementGroup = placement_group(bundles, strategy="PACK")
        if not self.group.wait(PLACEMENT_TIMEOUT):
            raise ConfigError(with_advice(f"no room in {PLACEMENT_TIMEOUT:g} s for these bundles: {bundles}"))
        self.sites: dict[str, list[BundleSite]] = {}
        on_gpu = [index for index, bundle in enumerate(bundles) if "GPU" in bundle]
        free = in_node_order(self.probe(on_gpu), last=ray.util.get_node_ip_address())
        on_cpu = [BundleSite(index, "", None) for index, bundle in enumerate(bundles) if "GPU" not in bundle]
        for part in split.parts:
            kind = free if part.on_gpu else on_cpu
            self.sites[part.name] = [kind.pop(0) for _ in range(part.count)]
        if split.shared:
            self.sites["rollout"] = self.sites["actor"][: split.shared]

    def probe(self, bundles: Sequence[int]) -> list[BundleSite]:
        """Asks a small actor in each of these bundles where it is."""
        probes = [
            Probe.options(num_gpus=1, scheduling_strategy=self.strategy_of(index)).remote()  # type: ignore[attr-defined]
            for index in bundles
        ]
        answers = ray.get([probe.site.remote() for probe in probes])
        for probe in probes:
            ray.kill(probe)
        return [BundleSite(index, node, gpu) for index, (node, gpu) in zip(bundles, answers, strict=True)]

    def strategy_of(self, bundle: int) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(
            placement_group=self.group, placement_group_bundle_index=bundle
        )


@ray.remote(num_cpus=0)
class Probe:
    """Tells where a bundle is."""

    def site(self) -> tuple[str, int]:
        address = ray.util.get_node_ip_address() or socket.gethostname()
        return address, int(ray.get_gpu_ids()[0])
