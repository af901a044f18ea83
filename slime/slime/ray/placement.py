"""Assigns GPUs (or CPU ranks) with Ray placement groups, and divides them among the parts of the run.

Engines are plain processes, so the machine of each is chosen before the GPUs are requested from Ray, starting
with the driver's. Trainers get the other machines first. If a machine with trainers is lost, an error names
it, and Ray moves their bundles to another machine when one joins. The run does not wait for a lost machine
that has only engines.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
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
from slime.plan.gpu_split import GpuSplit, RunPart
from slime.plan.seats import Machine, Seats, seats_of, seats_on_trainers
from slime.processes.known_failures import with_advice
from slime.ray.cluster import check_shared
from slime.ray.waiting import LOOK_INTERVAL, NOTE_INTERVAL

logger = logging.getLogger(__name__)

PLACEMENT_TIMEOUT = 60.0  # seconds
TAKE_TIMEOUT = 10.0  # seconds for Ray to release the GPUs of a machine that has joined again
ANSWER_TIMEOUT = 60.0  # seconds for a machine to respond, in which Ray also notices its loss
NODE_ID = "ray.io/node-id"  # label that Ray sets on each node
TRAINERS = "trainers"
"""Key of the trainers' placement group; the group of a machine's engines is keyed by the node's id."""


@dataclass(frozen=True)
class BundleSite:
    """Location of a bundle: address and id of its node, and its GPU there (None for a CPU rank).

    The GPU is an index, or a UUID if CUDA_VISIBLE_DEVICES lists UUIDs.
    """

    bundle: int
    node: str
    gpu: int | str | None
    node_id: str = ""


def in_node_order(sites: Sequence[BundleSite], last: str = "") -> list[BundleSite]:
    """Sorts by node address (numerically: .9 before .10), then GPU.

    Nodes without an address, and then the node `last` (an address or an id), come last: engines are started
    on the driver's node, so trainers get the other nodes first.
    """

    def key(site: BundleSite) -> tuple[object, ...]:
        here = last in (site.node, site.node_id)
        gpu = ("", site.gpu or 0) if not isinstance(site.gpu, str) else (site.gpu, 0)
        try:
            return (here, 0, int(ip_address(site.node)), "", site.node_id, *gpu, site.bundle)
        except ValueError:
            return (here, 1, 0, site.node, site.node_id, *gpu, site.bundle)

    return sorted(sites, key=key)


def gpu_named(name: int | str) -> int | str:
    """Returns a GPU in Ray's form: an index, or a name of CUDA_VISIBLE_DEVICES (GPU-..., MIG-...)."""
    return int(name) if str(name).isdigit() else str(name)


def alive_nodes() -> dict[str, dict[str, Any]]:
    """Returns Ray's description of each living node, by id."""
    return {str(node["NodeID"]): node for node in ray.nodes() if node["Alive"]}


def gpus_of(node: dict[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def _by_address(nodes: dict[str, dict[str, Any]]) -> Callable[[str], tuple[int, int, str, str]]:
    """Returns a sort key of nodes by address, numerically if possible."""

    def key(node: str) -> tuple[int, int, str, str]:
        address = str(nodes[node]["NodeManagerAddress"])
        try:
            return 0, int(ip_address(address)), "", node
        except ValueError:
            return 1, 0, address, node

    return key


def bundles_of_engines(split: GpuSplit, seats: Seats) -> dict[tuple[str, int], tuple[int, list[int]]]:
    """Returns the machine and the bundles of each engine with its own GPUs, by part and number."""
    bundles: dict[tuple[str, int], tuple[int, list[int]]] = {}
    start = 0
    for part in split.parts:
        for engine in range(part.count // part.each if part in split.engine_parts else 0):
            first = start + engine * part.each
            bundles[part.name, engine] = (
                seats.engines[part.name][engine],
                list(range(first, first + part.each)),
            )
        start += part.count
    return bundles


class Placement:
    """Reserved bundles, and the part of the run that each belongs to.

    `seats_of` selects the machine of each engine. The GPUs of a machine's engines are a separate placement
    group on that machine, created first; trainers have another group, packed as closely as possible. On the
    driver's machine, trainers get the lower GPU numbers.
    """

    def __init__(self, split: GpuSplit) -> None:
        self.split = split
        self.here = ray.get_runtime_context().get_node_id()
        nodes = alive_nodes()
        self.machines = [
            self.here,
            *sorted((node for node in nodes if node != self.here), key=_by_address(nodes)),
        ]
        seats = seats_of(
            split,
            [Machine(str(nodes[node]["NodeManagerAddress"]), gpus_of(nodes[node])) for node in self.machines],
        )
        bundles = split.bundles()
        self.on_gpu = [index for index, bundle in enumerate(bundles) if "GPU" in bundle]
        self.engine_bundles = bundles_of_engines(split, seats)
        self.groups: dict[str, PlacementGroup] = {}
        self.places: dict[int, tuple[str, int]] = {}  # bundle: (key of its group, index in the group)
        try:
            self.hold_all(bundles, seats)
        except ClusterError:
            self.release_all()
            raise
        self.look(self.groups)
        self.sites = self.deal()

    def hold_all(self, bundles: Sequence[dict[str, float]], seats: Seats) -> None:
        """Reserves one group for the engines of each machine, and one for the rest.

        Trainers that share GPUs with engines are in the group of their machine, because they must leave room
        for whole engines.

        Raises:
            ClusterError: the cluster has too few free GPUs.
        """
        trainers = self.bundles_of("actor") if self.split.shared else []
        trainers = [index for index in trainers if index in self.on_gpu]
        pinned: set[int] = set()
        for number, node in enumerate(self.machines):
            own = [
                one for machine, engine in self.engine_bundles.values() if machine == number for one in engine
            ]
            if trainers:
                count = seats.trainers[number]
                own, trainers = [*trainers[:count], *own], trainers[count:]
            if own:
                self.hold(node, own, {NODE_ID: node})
                pinned |= set(own)
        rest = [index for index in range(len(bundles)) if index not in pinned]
        if rest:
            self.hold(TRAINERS, rest, {})

    def bundles_of(self, name: str) -> list[int]:
        """Returns the bundles of a part."""
        start = 0
        for part in self.split.parts:
            if part.name == name:
                return list(range(start, start + part.count))
            start += part.count
        return []

    def hold(
        self, key: str, indices: Sequence[int], labels: dict[str, str], limit: float | None = None
    ) -> None:
        """Reserves a group of these bundles on nodes with these labels.

        Args:
            limit: seconds; 0: the caller waits for it.

        Raises:
            ClusterError: it was not possible in time.
        """
        limit = PLACEMENT_TIMEOUT if limit is None else limit
        all_bundles = self.split.bundles()
        bundles = [all_bundles[index] for index in indices]
        group = placement_group(bundles, strategy="PACK", bundle_label_selector=[labels] * len(bundles))
        if limit and not group.wait(limit):
            remove_placement_group(group)  # otherwise Ray would create it later, without a user
            where = " on the driver's machine" if key == self.here else ""
            problem = f"could not reserve these bundles{where} within {limit:g} s: {bundles}"
            raise ClusterError(with_advice(problem))
        self.groups[key] = group
        self.places |= {index: (key, number) for number, index in enumerate(indices)}

    def release_all(self) -> None:
        """Releases all bundles."""
        for group in self.groups.values():
            remove_placement_group(group)
        self.groups.clear()

    def look(self, keys: Iterable[str]) -> None:
        """Records the node of each bundle of these groups."""
        tables = {key: placement_group_table(self.groups[key])["bundles_to_node_id"] for key in keys}
        known = {
            index: str(tables[key][number]) for index, (key, number) in self.places.items() if key in tables
        }
        self.nodes: dict[int, str] = {**getattr(self, "nodes", {}), **known}

    def deal(self) -> dict[str, list[BundleSite]]:
        """Assigns the bundles to the parts."""
        free = in_node_order(self.probe(self.on_gpu), last=self.here)
        engines = [bundle for _, own in self.engine_bundles.values() for bundle in own]
        others = [site for site in free if site.node_id != self.here]
        on_driver = [site for site in free if site.node_id == self.here]
        count = sum(bundle in engines for bundle in self.at(self.here))
        trainers = [site for site in others if site.bundle not in engines] + on_driver[
            : len(on_driver) - count
        ]
        left = {self.here: on_driver[len(on_driver) - count :]}
        for site in others:
            if site.bundle in engines:
                left.setdefault(site.node_id, []).append(site)
        on_cpu = [
            BundleSite(index, "", None, node)
            for index, node in sorted(self.nodes.items())
            if index not in self.on_gpu
        ]
        sites: dict[str, list[BundleSite]] = {}
        for part in self.split.parts:
            if part.on_gpu and part.name != "actor":
                sites[part.name] = self.engine_sites(part, left)
            else:
                kind = trainers if part.on_gpu else on_cpu
                sites[part.name] = [kind.pop(0) for _ in range(part.count)]
        if self.split.shared:
            sites["rollout"] = self.shared_sites(sites["actor"])
        return sites

    def at(self, node: str) -> list[int]:
        """Returns the bundles in the group of a machine's engines."""
        return [index for index, (key, _) in self.places.items() if key == node]

    def engine_sites(self, part: RunPart, left: dict[str, list[BundleSite]]) -> list[BundleSite]:
        """Returns the sites of a part's engines in order, and removes them from the sites `left` of each machine."""
        sites: list[BundleSite] = []
        for engine in range(part.count // part.each):
            machine, _ = self.engine_bundles[part.name, engine]
            own = left[self.machines[machine]]
            sites += [own.pop(0) for _ in range(part.each)]
        return sites

    def shared_sites(self, trainers: Sequence[BundleSite]) -> list[BundleSite]:
        """Returns the sites of engines that share GPUs with trainers: the last ones of each machine, the
        driver's first.

        Raises:
            ClusterError: the remaining GPUs of a machine do not divide into whole engines.
        """
        each = next(part.each for part in self.split.parts if part.name == "rollout")
        if trainers[0].gpu is None:
            return list(trainers[len(trainers) - self.split.shared :])
        nodes = sorted({site.node_id for site in trainers}, key=lambda node: self.machines.index(node))
        by_node = {node: [site for site in trainers if site.node_id == node] for node in nodes}
        counts = [len(by_node[node]) for node in nodes]
        machines = [Machine(by_node[node][0].node, count) for node, count in zip(nodes, counts, strict=True)]
        seats = seats_on_trainers(counts, self.split.shared, each, machines)
        sites: list[BundleSite] = []
        for number, node in enumerate(nodes):
            gpus = seats.count(number) * each
            sites += by_node[node][len(by_node[node]) - gpus :] if gpus else []
        return sites

    def probe(self, bundles: Sequence[int]) -> list[BundleSite]:
        """Returns the location of each bundle, from a small actor started in it."""
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
        key, number = self.places[bundle]
        return PlacementGroupSchedulingStrategy(
            placement_group=self.groups[key], placement_group_bundle_index=number
        )

    @property
    def several_nodes(self) -> bool:
        """Returns whether training ranks are on more than one machine."""
        return len({site.node_id for site in self.sites["actor"]}) > 1

    def check_folders(self, folders: Sequence[Path]) -> None:
        """Raises ConfigError if ranks are on machines that cannot access these folders."""
        elsewhere = {site.node_id for site in self.sites["actor"]} - {self.here}
        for folder in folders if elsewhere else ():
            check_shared(folder, only=elsewhere)

    def lost(self) -> str:
        """Returns a text with the lost machines of this placement and their ranks; empty if none is lost."""
        alive = alive_nodes()
        known = {str(node["NodeID"]): str(node["NodeManagerAddress"]) for node in ray.nodes()}
        ranks: dict[str, list[str]] = {}
        for rank, site in enumerate(self.sites["actor"]):
            if site.node_id not in alive:
                ranks.setdefault(known.get(site.node_id, site.node), []).append(str(rank))
        return ", ".join(f"machine {node} with rank {', '.join(own)}" for node, own in ranks.items())

    def wait_until_complete(self, look: Callable[[], None] = lambda: None) -> None:
        """Returns when every bundle is on a living machine again; logs the missing ones meanwhile.

        Args:
            look: called every `LOOK_INTERVAL`; may raise.
        """
        self.ask_nodes()
        lost, noted = self.lost(), float("-inf")
        if not lost:
            return
        self.release_lost()
        while not self.is_complete():
            if time.monotonic() - noted > NOTE_INTERVAL:
                noted = time.monotonic()
                logger.warning(
                    "%s is lost: training waits for a replacement (ray start --address, or the "
                    "launch script there); serving continues",
                    lost,
                )
            look()
            time.sleep(LOOK_INTERVAL)
        self.look(self.of_trainers())
        moved = [site.bundle for site in self.sites["actor"]]  # engines stay on their machines
        if self.sites["actor"][0].gpu is None:
            self.sites["actor"] = [BundleSite(index, "", None, self.nodes[index]) for index in moved]
        else:
            self.sites["actor"] = in_node_order(self.probe(moved), last=self.here)
        logger.warning("%s has replaced the lost machine: training continues", lost)

    def release_lost(self) -> None:
        """Requests GPUs on any machine for trainers that were bound to a lost machine."""
        alive = alive_nodes()
        for node in {site.node_id for site in self.sites["actor"]} - alive.keys():
            moved = [site.bundle for site in self.sites["actor"] if self.places[site.bundle][0] == node]
            if moved:
                remove_placement_group(self.groups.pop(node))
                self.hold(f"{TRAINERS} of {node}", moved, {}, 0.0)

    def ask_nodes(self) -> None:
        """Returns when each machine of the placement has responded, or Ray reports it lost."""
        ask = ray.remote(num_cpus=0, max_retries=0)(_answer)
        answers = [
            ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
            for node in sorted({site.node_id for site in self.sites["actor"]} - {self.here})
        ]
        if answers:
            ray.wait(answers, num_returns=len(answers), timeout=ANSWER_TIMEOUT)

    def reserve_again(self, lost_node: str, node: str) -> None:
        """Reserves GPUs for the engines of a lost machine that has joined again as another node.

        Raises:
            ClusterError: the GPUs are not free, or the trainers that share them are not placed yet.
        """
        names = [
            (part, engine)
            for (part, engine), (place, _) in self.engine_bundles.items()
            if self.machines[place] == lost_node
        ]
        if not names:
            self.share_gpus_again(lost_node, node)
            return
        own = [bundle for name in names for bundle in self.engine_bundles[name][1]]
        if (group := self.groups.pop(lost_node, None)) is not None:
            remove_placement_group(group)
        self.hold(node, own, {NODE_ID: node}, TAKE_TIMEOUT)
        self.machines[self.machines.index(lost_node)] = node
        self.look([node])
        sites = in_node_order(self.probe(own))
        for part, engine in names:
            each = len(self.engine_bundles[part, engine][1])
            self.sites[part][engine * each : (engine + 1) * each] = [sites.pop(0) for _ in range(each)]

    def share_gpus_again(self, lost_node: str, node: str) -> None:
        """Like `reserve_again`, for engines that share GPUs with trainers."""
        old = [number for number, site in enumerate(self.sites["rollout"]) if site.node_id == lost_node]
        trainers = [site for site in self.sites["actor"] if site.node_id == node]
        if len(trainers) < len(old):
            raise ClusterError(
                f"the machine has {len(trainers)} trainers, but on the lost machine engines "
                f"shared {len(old)} GPUs with trainers"
            )
        for number, site in zip(old, trainers[len(trainers) - len(old) :], strict=True):
            self.sites["rollout"][number] = site

    def is_complete(self) -> bool:
        """Returns whether every trainer has a bundle on a living machine; machines that have only engines may be lost."""
        alive = alive_nodes()
        tables = [placement_group_table(self.groups[key]) for key in self.of_trainers()]
        return all(table["state"] == "CREATED" for table in tables) and all(
            str(node) in alive for table in tables for node in table["bundles_to_node_id"].values()
        )

    def of_trainers(self) -> set[str]:
        """Returns the groups in which trainers have bundles."""
        return {self.places[site.bundle][0] for site in self.sites["actor"]}


def _answer() -> None:
    """Does nothing; its completion shows that the machine is alive."""


@ray.remote(num_cpus=0)
class BundleProbe:
    """Reports the machine and GPU of a bundle."""

    def site(self) -> tuple[str, int | str]:
        return str(ray.util.get_node_ip_address()), gpu_named(ray.get_gpu_ids()[0])
