"""Engines on machines other than the driver's, with a watcher on each machine.

If a machine is lost, gateway and rollouts use the other engines, and weight updates do not wait for it. When
a machine with the same address joins again, its engines are restarted there, load the live weights, and serve
again.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from claw_base.files import write_json
from claw_base.run_folder.records import engines_file
from slime.engines.client import EngineControl
from slime.engines.programs import past_proxies
from slime.errors import ClawError, ClusterError, ConfigError, EngineError
from slime.plan.model_servers import model_servers
from slime.processes import nodes
from slime.processes.control import scratch_dir
from slime.processes.servers import ServerPorts, ServerSpec
from slime.ray.placement import BundleSite, Placement, alive_nodes
from slime.ray.servers.engine_clients import end_released, engine_client
from slime.ray.servers.external import needs_gloo
from slime.ray.servers.specs import EngineHost, sites_of_engines, visible
from slime.ray.servers.watch_actor import ServerWatcher
from slime.ray.waiting import gather, get
from slime.weights.engine_steps import go_live, serves
from slime.weights.versions import read_live

if TYPE_CHECKING:
    from slime.engines.sglang.broadcast import SenderHandle
    from slime.flags import Arguments

logger = logging.getLogger(__name__)

LOOK_INTERVAL = 5.0  # seconds between checks of the machines
ANSWER_TIMEOUT = 120.0  # seconds in which a machine must report its resources
POLICY = "engine-"
"""Name prefix of the policy's engines; other engines serve models that never change."""
RETRY_INTERVAL = 60.0  # seconds until a failed start of engines is retried


@dataclass(frozen=True)
class NodeFacts:
    """Resources of a machine for the engines of a run. `lacks`: required paths that are missing."""

    folder: Path
    python: str
    sees_run: bool
    lacks: list[str]
    ports: dict[str, int]


def facts_here(
    run_dir: Path, address: str, needed: Sequence[str], names: Sequence[str], sign: str
) -> NodeFacts:
    """Returns the resources of the machine on which this function runs.

    Args:
        needed: paths of models and of the engine's Python.
        names: names of the engines.
        sign: a file that the driver has just written into the run folder.
    """
    sees_run = Path(sign).exists()
    separate_folder = scratch_dir(run_dir).with_name(f"{scratch_dir(run_dir).name}-engines")
    folder = nodes.folder_of(run_dir if sees_run else separate_folder, address)
    nodes.begin(folder)
    end_released(folder)
    ports = ServerPorts(folder)
    return NodeFacts(
        folder,
        sys.executable,
        sees_run,
        [path for path in needed if not Path(path).exists()],
        {name: ports.choose_port(name, address) for name in names},
    )


@dataclass
class EngineNode:
    """One machine with engines of this run.

    Attributes:
        node_id: Ray's id, which changes when a lost machine joins again.
        engines: names of its engines.
        lost: the machine is lost; updates do not wait for it.
        starting: Ray reference of the restart of its engines; None if no restart is running.
        retry_at: monotonic time in seconds before which no restart is tried.
    """

    address: str
    node_id: str
    engines: list[str]
    facts: NodeFacts
    specs: list[ServerSpec] = field(default_factory=list)
    controls: list[EngineControl] = field(default_factory=list)
    actor: Any = None
    lost: bool = False
    starting: Any = None
    retry_at: float = 0.0

    @property
    def serves(self) -> bool:
        return not self.lost and self.starting is None

    def strategy(self) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(self.node_id, soft=False)


class EngineNodes:
    """All machines with engines, except the driver's; empty on a single machine.

    Args:
        env: environment of the driver's servers.
    """

    def __init__(self, args: Arguments, placement: Placement, env: Mapping[str, str]) -> None:
        self.args, self.placement = args, placement
        self.run_dir = Path(args.run_dir)
        self.nodes = self.ask_machines() if args.rollout_num_gpus or args.prm_num_gpus else []
        self.env = (
            {**env, **past_proxies(env, *(node.address for node in self.nodes))} if self.nodes else dict(env)
        )
        self.looked = 0.0

    def ask_machines(self) -> list[EngineNode]:
        """Returns the machines with their resources. Raises ConfigError if a requirement of its engines is
        missing."""
        sites: dict[str, BundleSite] = {}
        engines: dict[str, list[str]] = {}
        for name, own in sites_of_engines(self.args, self.placement).items():
            if own[0].node_id != self.placement.here:
                sites[own[0].node_id] = own[0]
                engines.setdefault(own[0].node_id, []).append(name)
        if not sites:
            return []
        sign = self.run_dir / f".seen-{time.time_ns()}"
        sign.touch()
        try:
            task = ray.remote(num_cpus=0, max_retries=0)(facts_here)
            answers = [
                task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False)).remote(
                    self.run_dir, site.node, self.needed(), engines[node_id], str(sign)
                )
                for node_id, site in sites.items()
            ]
            facts = gather(answers, "checking the machines of engines", ANSWER_TIMEOUT)
        finally:
            sign.unlink()
        machines = [
            EngineNode(site.node, node_id, engines[node_id], fact)
            for (node_id, site), fact in zip(sites.items(), facts, strict=True)
        ]
        for node in machines:
            self.check(node)
        return machines

    def needed(self) -> list[str]:
        """Returns the paths that a machine must have for its engines."""
        models = [server.model for server in model_servers(self.args) if server.gpus]
        return [*dict.fromkeys(filter(None, [*models, self.args.engine_python]))]

    def check(self, node: EngineNode) -> None:
        """Raises ConfigError if engines could not start on a machine, or would not receive weights."""
        if node.facts.lacks:
            raise ConfigError(
                f"{node.address}, which runs {', '.join(node.engines)}, lacks "
                f"{', '.join(node.facts.lacks)}: put it on a shared file system, or at the same "
                "path on each machine"
            )
        if node.facts.sees_run or not any(name.startswith(POLICY) for name in node.engines):
            return
        if self.args.rollout_backend != "sglang":
            raise ConfigError(
                f"{node.address}, which runs {', '.join(node.engines)}, cannot access "
                f"{self.run_dir}, from which engines of --rollout-backend "
                f"{self.args.rollout_backend} read weights: put RUN_DIR and SAVE_CKPT on a shared "
                "file system"
            )
        logger.warning(
            "%s cannot access %s: its engines receive weights by broadcast", node.address, self.run_dir
        )

    @property
    def hosts(self) -> dict[str, EngineHost]:
        """Returns the machine of each engine, by engine name."""
        return {
            name: EngineHost(
                node.address,
                node.facts.folder,
                node.facts.python,
                node.facts.ports[name],
                node.facts.sees_run,
            )
            for node in self.nodes
            for name in node.engines
        }

    def start(self, specs: Sequence[ServerSpec], sender: SenderHandle | None) -> None:
        """Starts or adopts the engines without waiting until they are ready.

        Args:
            specs: specs of the run; those of these machines are started.
            sender: broadcasts weights; None: engines read them from disk.
        """
        for node in self.nodes:
            node.specs = [spec for spec in specs if spec.name in node.engines]
            node.controls = [self.control(node, spec, sender) for spec in node.specs if spec.role == "engine"]
            self.watch(node)
        self.register()

    def watch(self, node: EngineNode) -> None:
        """Starts a watcher on the machine, which starts its engines if they are not running."""
        kind = ServerWatcher.options(scheduling_strategy=node.strategy())  # type: ignore[attr-defined]
        node.actor = kind.remote(node.facts.folder, node.specs, nodes.forwarded_variables(self.env), True)

    def control(self, node: EngineNode, spec: ServerSpec, sender: SenderHandle | None) -> EngineControl:
        def end() -> None:
            logger.warning("%s hangs in a weight update: restarting it", spec.name)
            node.actor.end.remote(spec.name)

        seen = node.facts.sees_run or self.args.update_weight_transport == "nccl"
        return engine_client(
            self.args,
            str(spec.url),
            sender if seen else self.broadcaster,
            own=spec.name,
            over_gloo=not seen and self.over_gloo,
            folder=node.facts.folder,
            end=end,
        )

    @cached_property
    def broadcaster(self) -> SenderHandle:
        """Returns the process that sends weights to machines that cannot access the run folder.

        It starts at the first update.
        """
        from slime.ray.servers.weight_sender import RaySender

        return RaySender(self.args, self.placement)

    @cached_property
    def over_gloo(self) -> bool:
        """Returns whether gloo is used because NCCL cannot connect trainer and engines; logs it."""
        return needs_gloo(self.args)

    def wait_ready(self) -> None:
        """Returns when all engines respond.

        Raises:
            ConfigError, EngineError: an engine did not start; the message contains its log.
            ClusterError: a machine was lost meanwhile.
        """
        limit = sum(spec.start_timeout for node in self.nodes for spec in node.specs) + 60.0
        for node in self.nodes:
            try:
                gather(
                    [node.actor.wait_ready.remote()], f"{', '.join(node.engines)} on {node.address}", limit
                )
            except RayError as error:
                raise ClusterError(f"{node.address} was lost while its engines started: {error}") from error

    def present(self) -> list[EngineControl]:
        """Returns the policy's engines that a weight update waits for."""
        return [control for node in self.nodes if node.serves for control in node.controls]

    def node_of(self, url: str) -> EngineNode | None:
        """Returns the machine of an engine; None: the driver's, or an external engine."""
        urls = {control.url: node for node in self.nodes for control in node.controls}
        return urls.get(url)

    def is_lost(self, url: str) -> bool:
        """Returns whether an engine is on a machine that Ray has lost."""
        node = self.node_of(url)
        return node is not None and (not node.serves or node.node_id not in alive_nodes())

    def register(self) -> None:
        """Writes the addresses of the policy's responding engines to the run folder for other processes."""
        serving = {
            spec.name: spec.url
            for node in self.nodes
            if node.serves
            for spec in node.specs
            if spec.role == "engine"
        }
        path = engines_file(self.run_dir)
        if serving:
            write_json(path, serving)
        else:
            path.unlink(missing_ok=True)

    def check_machines(self) -> None:
        """Checks periodically which machines are lost and which have joined again."""
        if not self.nodes or time.monotonic() - self.looked < LOOK_INTERVAL:
            return
        self.looked = time.monotonic()
        alive = alive_nodes()
        for node in self.nodes:
            if not node.lost and node.node_id not in alive:
                self.mark_lost(node)
            elif node.lost and time.monotonic() >= node.retry_at:
                self.restart_engines(node, alive)
            elif node.starting is not None:
                self.finish_restart(node)
            elif not node.facts.sees_run and node.serves:
                try:
                    self.bring_up_to_date(node.controls)
                except EngineError as error:
                    logger.warning(
                        "the engines on %s have not loaded the live weights yet: %s", node.address, error
                    )

    def mark_lost(self, node: EngineNode) -> None:
        node.lost, node.starting = True, None
        self.register()
        logger.warning(
            "lost machine %s with %s: other engines serve; it will be used when it joins again",
            node.address,
            ", ".join(node.engines),
        )

    def restart_engines(self, node: EngineNode, alive: Mapping[str, Mapping[str, Any]]) -> None:
        """Starts the engines of a machine that has joined again."""
        taken = {one.node_id for one in self.nodes if not one.lost} | {self.placement.here}
        back = [
            node_id
            for node_id, machine in alive.items()
            if str(machine["NodeManagerAddress"]) == node.address and node_id not in taken
        ]
        if not back:
            return
        try:
            self.placement.reserve_again(node.node_id, back[0])
        except ClusterError as error:
            node.retry_at = time.monotonic() + RETRY_INTERVAL
            logger.warning("%s has joined again, but its engines got no GPUs: %s", node.address, error)
            return
        node.node_id, node.lost = back[0], False
        sites = sites_of_engines(self.args, self.placement)
        node.specs = [replace(spec, env={**spec.env, **visible(sites[spec.name])}) for spec in node.specs]
        self.watch(node)
        node.starting = node.actor.wait_ready.remote()
        logger.warning("machine %s has joined again: restarting its engines", node.address)

    def finish_restart(self, node: EngineNode) -> None:
        """Updates restarted engines to the live weights, then routes requests to them."""
        if not ray.wait([node.starting], timeout=0)[0]:
            return
        try:
            get(node.starting, f"engines on {node.address}")
            self.bring_up_to_date(node.controls)
        except (ClawError, RayError) as error:
            node.lost, node.retry_at = True, time.monotonic() + RETRY_INTERVAL
            with suppress(RayError):
                ray.kill(node.actor)
            logger.warning("the engines on %s failed to start: %s", node.address, str(error).splitlines()[0])
            return
        finally:
            node.starting = None
        self.register()
        logger.warning("%s on %s respond again", ", ".join(node.engines), node.address)

    def bring_up_to_date(self, controls: Sequence[EngineControl]) -> None:
        """Updates engines to the live weights. Raises EngineError if one fails to load them."""
        live = read_live(self.run_dir)
        if live is None:
            return
        for control in controls:
            if not serves(control, live):
                logger.warning(
                    "%s serves other weights: updating it to version %d", control.url, live.version
                )
                go_live(control, live)
