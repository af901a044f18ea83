"""Which GPUs (or CPU ranks) do what: one placement group, cut into consecutive pieces.

Bundles are sorted by node and GPU; the pieces follow in the order actor, critic, rollout, PRM, teacher.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, fields
from ipaddress import ip_address
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from slime.errors import ConfigError

PLACEMENT_TIMEOUT = 60.0  # seconds


@dataclass(frozen=True)
class Split:
    """How many GPUs (without GPUs: CPU ranks) each part of the run has, in the order of their bundles."""

    actor: int
    critic: int = 0
    rollout: int = 0
    prm: int = 0
    teacher: int = 0

    @property
    def total(self) -> int:
        return sum(self.counts().values())

    def counts(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def pieces(self) -> dict[str, range]:
        """The logical bundle numbers of each part."""
        pieces, start = {}, 0
        for name, count in self.counts().items():
            pieces[name] = range(start, start + count)
            start += count
        return pieces

    def check(self, available: int, unit: str) -> None:
        """Raises ConfigError with the arithmetic if more is asked for than there is, or less than nothing."""
        parts = " + ".join(f"{name} {count}" for name, count in self.counts().items() if count)
        if any(count < 0 for count in self.counts().values()) or self.actor < 1:
            raise ConfigError(f"a split needs at least one actor and no negative part: {self.counts()}")
        if self.total > available:
            raise ConfigError(
                f"{parts} = {self.total} {unit}s, but there are {available}: make a part smaller"
            )


@dataclass(frozen=True)
class BundleSite:
    """Where a bundle lies."""

    bundle: int
    node: str
    gpu: int


def in_node_order(sites: Sequence[BundleSite]) -> list[BundleSite]:
    """Sorts by node address (as a number: .9 before .10), then GPU. Nodes without an IP address come last."""

    def key(site: BundleSite) -> tuple[int, int, str, int, int]:
        try:
            return (0, int(ip_address(site.node)), "", site.gpu, site.bundle)
        except ValueError:
            return (1, 0, site.node, site.gpu, site.bundle)

    return sorted(sites, key=key)


def split_of(args: Any) -> Split:
    """The split that the flags ask for."""
    return Split(
        actor=args.actor_num_nodes * args.actor_num_gpus_per_node,
        rollout=args.rollout_num_gpus,
        prm=args.prm_num_gpus,
        teacher=args.prm_teacher_num_gpus,
    )


class Placement:
    """A placement group that is ready, and its pieces."""

    def __init__(self, split: Split, use_gpus: bool) -> None:
        self.split = split
        self.use_gpus = use_gpus
        available = ray.cluster_resources().get("GPU" if use_gpus else "CPU", 0)
        split.check(int(available), "GPU" if use_gpus else "CPU rank")
        bundle = {"CPU": 1, "GPU": 1} if use_gpus else {"CPU": 1}
        self.group: PlacementGroup = placement_group([bundle] * split.total, strategy="PACK")
        if not self.group.wait(PLACEMENT_TIMEOUT):
            raise ConfigError(
                f"{split.total} bundles of {bundle} could not be placed in {PLACEMENT_TIMEOUT:g} s"
            )
        unsorted = [BundleSite(index, "", index) for index in range(split.total)]
        self.sites = in_node_order(self.probe()) if use_gpus else unsorted

    def probe(self) -> list[BundleSite]:
        """Asks a small actor in every bundle where it is."""
        probes = [
            Probe.options(num_gpus=1, scheduling_strategy=self.strategy_of(index)).remote()  # type: ignore[attr-defined]
            for index in range(self.split.total)
        ]
        answers = ray.get([probe.site.remote() for probe in probes])
        for probe in probes:
            ray.kill(probe)
        return [BundleSite(index, node, gpu) for index, (node, gpu) in enumerate(answers)]

    def strategy_of(self, bundle: int) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(
            placement_group=self.group, placement_group_bundle_index=bundle
        )

    def sites_of(self, part: str) -> list[BundleSite]:
        """The sites of one part, in node order."""
        return [self.sites[logical] for logical in self.split.pieces()[part]]


@ray.remote(num_cpus=0)
class Probe:
    """Tells where a bundle is."""

    def site(self) -> tuple[str, int]:
        address = ray.util.get_node_ip_address() or socket.gethostname()
        return address, int(ray.get_gpu_ids()[0])
