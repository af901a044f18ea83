"""Ray on several machines: waits until all have joined, and checks the requirements of a run on them.

    python -m slime.ray.cluster --address HEAD:6379 --nodes 2 --gpus 16 --shared RUN_DIR

Exits with status 0 if machines, GPUs and folder are available in time, else with 2 and a list of the missing ones.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.errors import ClusterError, ConfigError

POLL_SECONDS = 1.0


def here() -> NodeAffinitySchedulingStrategy:
    """Returns a scheduling strategy for the driver's node, for actors that manage its processes and files."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def wait_for_nodes(nodes: int, gpus: int, timeout: float) -> None:
    """Waits until `nodes` nodes with `gpus` GPUs in total have joined.

    Raises:
        ClusterError: they did not join within `timeout` seconds; the message lists those that did.
    """
    deadline, announced = time.monotonic() + timeout, False
    while True:
        alive = [node for node in ray.nodes() if node["Alive"]]
        joined = sum(int(node["Resources"].get("GPU", 0)) for node in alive)
        if len(alive) >= nodes and joined >= gpus:
            return
        if not announced:
            announced = True
            print(f"waiting for {nodes} machines with {gpus} GPUs, up to {timeout:g} s", file=sys.stderr)
        if time.monotonic() > deadline:
            members = ", ".join(
                f"{node['NodeManagerAddress']} with {int(node['Resources'].get('GPU', 0))} GPUs"
                for node in alive
            )
            raise ClusterError(
                (
                    f"{len(alive)} of {nodes} machines and {joined} of {gpus} GPUs joined in "
                    f"{timeout:g} s: {members}. "
                )
                + (
                    (
                        "Run the script on the other machines too, with the same MASTER_ADDR and "
                        "another NODE_RANK."
                    )
                    if nodes > 1
                    else "Check ray status, or reduce ACTOR_GPUS, ROLLOUT_GPUS or PRM_GPUS"
                )
            )
        time.sleep(POLL_SECONDS)


def check_shared(folder: Path, only: Collection[str] | None = None) -> None:
    """Checks that every node (or those with the ids `only`) can access the same folder, used for weights.

    Raises:
        ConfigError: a node cannot; the message names it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    token = uuid.uuid4().hex
    probe = folder / f".shared-{token}"
    probe.touch()
    try:
        nodes = [node for node in ray.nodes() if node["Alive"] and (only is None or node["NodeID"] in only)]
        exists = ray.remote(num_cpus=0, max_retries=0)(_exists)
        answers = [
            exists.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(str(probe))
            for node in nodes
        ]
        failed = [
            node["NodeManagerAddress"]
            for node, is_accessible in zip(nodes, ray.get(answers), strict=True)
            if not is_accessible
        ]
    finally:
        probe.unlink()
    if failed:
        raise ConfigError(
            f"{', '.join(failed)} cannot access {folder}: with several machines RUN_DIR and "
            "SAVE_CKPT must be on a shared file system"
        )


def _exists(path: str) -> bool:
    return Path(path).exists()


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """Command line: the machines that must be present."""

    address: str = flag(REQUIRED, "address of Ray's head, HOST:PORT")
    nodes: int = flag(REQUIRED, "number of machines that must join")
    gpus: int = flag(REQUIRED, "total number of GPUs")
    shared: list[Path] = flag([], "folders that all machines must be able to access")
    timeout: float = flag(600.0, "seconds to wait for the machines")


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(Requirements, argv, "python -m slime.ray.cluster", __doc__.splitlines()[0])
    from slime.ray.runtime import join

    os.environ["RAY_ADDRESS"] = args.address
    try:
        join(args.address)
        wait_for_nodes(args.nodes, args.gpus, args.timeout)
        for folder in args.shared:
            check_shared(folder.resolve())
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
