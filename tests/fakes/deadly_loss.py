"""A loss that draws random numbers on every rank, and processes that kill or stop themselves at named points.

The points are listed in the environment variable DEADLY; the folder DEADLY_DIR records the used ones, so that each is
used once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slime.arguments import Arguments
    from slime.rollout.data_source import DataSource


KILLED, STOPPED = 100.0, 1500.0
"""Rollouts with rewards above these have a fault in their step."""


def die_once(point: str, how: int = signal.SIGKILL) -> None:
    """Kills (or stops) this process if the point is listed and not yet used."""
    if point in os.environ.get("DEADLY", "").split():
        mark = Path(os.environ["DEADLY_DIR"]) / point
        if not mark.exists():
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), how)


def lay_trap() -> None:
    """Installs a fault in the trainer: after a checkpoint is written but before it is valid."""
    module: Any = sys.modules.get("slime.training.core.checkpoint")
    if module is None or hasattr(module, "put_untrapped"):
        return
    module.put_untrapped = module.activate_checkpoint

    def activate_checkpoint(folder: Path) -> None:
        if folder.name == "checkpoint-3":
            die_once("before-commit")
        hangs = folder.name == "checkpoint-5" and "commit-hangs" in os.environ["DEADLY"]
        if hangs and not over("commit-hangs"):
            time.sleep(600)
        module.put_untrapped(folder)

    module.activate_checkpoint = activate_checkpoint


def compute_loss(
    policy_logits: Any, reference_logits: Any, rewards: Any, advantages: Any, config: dict[str, Any]
) -> Any:
    import torch
    import torch.distributed as dist

    lay_trap()
    marked = float(rewards.float().mean())
    if marked > STOPPED and "stop-in-step" in os.environ["DEADLY"] and not over("stop-in-step"):
        supervisor = Path(os.environ["DEADLY_DIR"], "supervisor.lock").read_text()
        os.kill(int(supervisor), signal.SIGTERM)
        time.sleep(2)  # until the driver has noticed
    if dist.get_rank() == 1 and marked > KILLED:
        die_once("in-step")
        die_once("hang-in-step", signal.SIGSTOP)
    noise = torch.rand(policy_logits.shape)
    return -(policy_logits * (advantages.clamp(-1, 1) + 0.1 * noise)).mean()


def generate_rollout(
    args: Arguments, rollout_id: int, data_source: DataSource, evaluation: bool = False
) -> Any:
    """Returns the recorded samples of the prompts, from a process that stops, hangs or ends."""
    from slime.types import Sample

    groups = data_source.get_samples(args.rollout_batch_size)
    if rollout_id == 2:
        die_once("manager-stops", signal.SIGSTOP)
    if rollout_id == 3 and "function-hangs" in os.environ["DEADLY"] and not over("function-hangs"):
        time.sleep(600)
    if rollout_id == 4:
        die_once("manager-dies")
    return [[Sample.from_dict(prompt.metadata | {"group_index": prompt.group_index})] for [prompt] in groups]


def over(point: str) -> bool:
    mark = Path(os.environ["DEADLY_DIR"]) / point
    before = mark.exists()
    mark.touch()
    return before


def on_weights_live(args: Arguments, rollout_id: int, version: int, checkpoint: dict[str, Any]) -> None:
    told = {"rollout_id": rollout_id, "version": version, **checkpoint}
    with (Path(args.run_dir) / "live.jsonl").open("a") as file:
        file.write(json.dumps(told) + "\n")
    if rollout_id == 4:
        die_once("driver-after-live")
