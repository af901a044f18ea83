"""Which GPUs (or CPU ranks) do what: one placement group, dealt out to the parts of the run in order.

Engines are plain processes beside the driver, so their GPUs are asked for on its machine; trainers take the other
machines first. A machine that is lost is named, and Ray gives its bundles to another one when that is there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from slime.errors import ClusterError
from slime.processes.known_failures import with_advice
from slime.ray.cluster import check_shared
from slime.ray.gpu_split import GpuSplit
from slime.ray.waiting import LOOK_INTERVAL, NOTE_INTERVAL

logger = logging.getLogger(__name__)

PLACEMENT_TIMEOUT = 60.0  # seconds
ANSWER_TIMEOUT = 60.0  # seconds that a machine has to answer, in which Ray notices that it is lost
NODE_ID = "ray.io/node-id"  # label that Ray gives each node


@dataclass(frozen=True)
class BundleSite:
    """Where a bundle lies: address and id of its node, and its GPU there, None for a CPU rank. The GPU is a number, or
    its UUID where CUDA_VISIBLE_DEVICES names UUIDs."""

    bundle: int
    node: str
    gpu: int | str | None
    node_id: str = ""


def in_node_order(sites: Sequence[BundleSite], last: str = "") -> list[BundleSite]:
    """Sorts by node address (as a number: .9 before .10), then GPU. Nodes without one, and then the node `last` (an
    address or an id), come last: engines are started where the driver is, so trainers take the other nodes first."""

    def key(site: BundleSite) -> tuple[object, ...]:
        here = last in (site.node, site.node_id)
        gpu = ("", site.gpu or 0) if not isinstance(site.gpu, str) else (site.gpu, 0)
        try:
            return (here, 0, int(ip_address(site.node)), "", site.node_id, *gpu, site.bundle)
        except ValueError:
            return (here, 1, 0, site.node, site.node_id, *gpu, site.bundle)

    return sorted(sites, key=key)


def gpu_named(told: int | str) -> int | str:
    """A GPU as Ray names it: a number, or a name of CUDA_VISIBLE_DEVICES (GPU-..., MIG-...)."""
    return int(told) if str(told).isdigit() else str(told)


def alive_nodes() -> dict[str, dict[str, Any]]:
    """Ray's description of each node that lives, by id."""
    return {str(node["NodeID"]): node for node in ray.nodes() if node["Alive"]}


def gpus_of(node: dict[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


class Placement:
    """Bundles that are held, and where each part of the split lies in them.

    The GPUs of engines are a placement group of their own, which is made first and on the driver's machine; what
    follows packs the rest as closely as there is room. Which of the GPUs there a trainer has, and which an engine, goes
    by their numbers: trainers have the lower ones.
    """

    def __init__(self, split: GpuSplit) -> None:
        self.split = split
        self.here = ray.get_runtime_context().get_node_id()
        nodes = alive_nodes()
        split.check(sum(map(gpus_of, nodes.values())))
        split.check_here(gpus_of(nodes[self.here]) if self.here in nodes else 0)
        bundles = split.bundles()
        self.on_gpu = [index for index, bundle in enumerate(bundles) if "GPU" in bundle]
        at_home = self.on_gpu[len(self.on_gpu) - split.gpus_of_engines :]
        others = [index for index in range(len(bundles)) if index not in at_home]
        self.groups: list[PlacementGroup] = []
        self.places: dict[int, tuple[int, int]] = {}  # of each bundle: its group, its number there
        for indices, labels in ((at_home, {NODE_ID: self.here}), (others, {})):
            if indices:
                self.hold([bundles[index] for index in indices], labels)
                self.places |= {index: (len(self.groups) - 1, number) for number, index in enumerate(indices)}
        self.look()
        self.sites = self.deal()

    def hold(self, bundles: Sequence[dict[str, float]], labels: dict[str, str]) -> None:
        """Another group of bundles, on nodes with these labels. Raises ClusterError if there is no room."""
        group = placement_group(list(bundles), strategy="PACK", bundle_label_selector=[labels] * len(bundles))
        if not group.wait(PLACEMENT_TIMEOUT):
            where = " on the driver's machine" if labels else ""
            for asked in (group, *self.groups):
                remove_placement_group(asked)  # else it would be made when there is room, without a user
            said = f"no room{where} in {PLACEMENT_TIMEOUT:g} s for these bundles: {bundles}"
            raise ClusterError(with_advice(said))
        self.groups.append(group)

    def look(self) -> None:
        """Notes the node of each bundle."""
        tables = [placement_group_table(group)["bundles_to_node_id"] for group in self.groups]
        self.nodes = {index: str(tables[group][number]) for index, (group, number) in self.places.items()}

    def deal(self) -> dict[str, list[BundleSite]]:
        """Gives the bundles to the parts in node order."""
        free = in_node_order(self.probe(self.on_gpu), last=self.here)
        on_cpu = [
            BundleSite(index, "", None, node)
            for index, node in sorted(self.nodes.items())
            if index not in self.on_gpu
        ]
        sites: dict[str, list[BundleSite]] = {}
        for part in self.split.parts:
            kind = free if part.on_gpu else on_cpu
            sites[part.name] = [kind.pop(0) for _ in range(part.count)]
        if self.split.shared:
            sites["rollout"] = sites["actor"][len(sites["actor"]) - self.split.shared :]
        return sites

    def probe(self, bundles: Sequence[int]) -> list[BundleSite]:
        """Asks a small actor in each of these bundles where it is."""
        probes = [
            BundleProbe.options(num_gpus=1, scheduling_strategy=self.strategy_of(index)).remote()  # type: ignore[attr-defined]
            for index in bundles
        ]
        answers = ray.get([probe.site.remote() for probe in probes])
        for probe in probes:
            ray.kill(probe)
        return [
            BundleSite(index, node, gpu, self.nodes[index])
            for index, (node, gpu) in zip(bundles, answers, strict=True)
        ]

    def strategy_of(self, bundle: int) -> PlacementGroupSchedulingStrategy:
        group, number = self.places[bundle]
        return PlacementGroupSchedulingStrategy(
            placement_group=self.groups[group], placement_group_bundle_index=number
        )

    @property
    def several_nodes(self) -> bool:
        """Whether training ranks lie on more than one machine."""
        return len({site.node_id for site in self.sites["actor"]}) > 1

    def check_folders(self, folders: Sequence[Path]) -> None:
        """Raises ConfigError if ranks lie on machines that do not see these folders."""
        elsewhere = {site.node_id for site in self.sites["actor"]} - {self.here}
        for folder in folders if elsewhere else ():
            check_shared(folder, only=elsewhere)

    def lost(self) -> str:
        """The machines of this placement that are gone, with the ranks that were there; empty while all live."""
        alive = alive_nodes()
        known = {str(node["NodeID"]): str(node["NodeManagerAddress"]) for node in ray.nodes()}
        ranks: dict[str, list[str]] = {}
        for rank, site in enumerate(self.sites["actor"]):
            if site.node_id not in alive:
                ranks.setdefault(known.get(site.node_id, site.node), []).append(str(rank))
        return ", ".join(f"machine {node} with rank {', '.join(own)}" for node, own in ranks.items())

    def make_whole(self, look: Callable[[], None] = lambda: None) -> None:
        """Returns when every bundle lies on a living machine again; logs meanwhile what is missing.

        Args:
            look: called every `LOOK_INTERVAL`; may raise.
        """
        self.ask_nodes()
        lost, noted = self.lost(), float("-inf")
        if not lost:
            return
        while not self.is_whole():
            if time.monotonic() - noted > NOTE_INTERVAL:
                noted = time.monotonic()
                logger.warning(
                    "%s is lost: training waits for a machine in its place (ray start --address, or the launch script "
                    "there); what serves goes on",
                    lost,
                )
            look()
            time.sleep(LOOK_INTERVAL)
        self.look()
        moved = [site.bundle for site in self.sites["actor"]]  # engines keep their place
        if self.sites["actor"][0].gpu is None:
            self.sites["actor"] = [BundleSite(index, "", None, self.nodes[index]) for index in moved]
        else:
            self.sites["actor"] = in_node_order(self.probe(moved), last=self.here)
        logger.warning("in place of %s: training goes on", lost)

    def ask_nodes(self) -> None:
        """Returns when each machine of the placement has answered, or Ray knows that it is lost."""
        ask = ray.remote(num_cpus=0, max_retries=0)(_answer)
        answers = [
            ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
            for node in sorted(set(self.nodes.values()) - {self.here})
        ]
        if answers:
            ray.wait(answers, num_returns=len(answers), timeout=ANSWER_TIMEOUT)

    def is_whole(self) -> bool:
        alive = alive_nodes()
        tables = [placement_group_table(group) for group in self.groups]
        return all(table["state"] == "CREATED" for table in tables) and all(
            str(node) in alive for table in tables for node in table["bundles_to_node_id"].values()
        )


def _answer() -> None:
    """What a machine that lives can do."""


@ray.remote(num_cpus=0)
class BundleProbe:
    """Tells where a bundle is."""

    def site(self) -> tuple[str, int | str]:
        return str(ray.util.get_node_ip_address()), gpu_named(ray.get_gpu_ids()[0])
