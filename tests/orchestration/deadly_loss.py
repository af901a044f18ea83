"""A loss that draws random numbers on every rank, and processes that kill themselves at named points, once each.

The points are words in the environment variable DEADLY; the folder DEADLY_DIR remembers which are over.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def die_once(point: str, how: int = signal.SIGKILL) -> None:
    """Kills (or stops) this process if the point is asked for and not yet over."""
    if point in os.environ.get("DEADLY", "").split():
        mark = Path(os.environ["DEADLY_DIR"]) / point
        if not mark.exists():
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), how)


def deadly(point: str, function: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if when(*args):
            die_once(point)
        return function(*args, **kwargs)

    return call


def lay_traps() -> None:
    """In the trainer: before a checkpoint counts, while it is written, and between its folder and its link."""
    module = sys.modules.get("slime.backends.fsdp.checkpoint")
    if module is None or not os.environ.get("DEADLY") or getattr(module, "trapped", False):
        return
    from torch.distributed.checkpoint import FileSystemWriter

    module.trapped = True  # type: ignore[attr-defined]
    module.commit = deadly(  # type: ignore[attr-defined]
        "before-commit", module.commit, lambda temporary, folder, meta: folder.name == "checkpoint-2"
    )
    FileSystemWriter.write_data = deadly(  # type: ignore[method-assign]
        "in-write", FileSystemWriter.write_data, lambda writer, *rest: "checkpoint-3" in str(writer.path)
    )
    files = sys.modules["slime.checkpoints"]
    files.temporary_beside = deadly(  # type: ignore[attr-defined]
        "before-link",
        files.temporary_beside,  # type: ignore[attr-defined]
        lambda path: path.name == "checkpoint-latest" and (path.parent / "checkpoint-4").exists(),
    )


def compute_loss(
    policy_logits: Any, reference_logits: Any, rewards: Any, advantages: Any, config: dict[str, Any]
) -> Any:
    import torch
    import torch.distributed as dist

    lay_traps()
    if dist.get_rank() == 1 and float(rewards.float().mean()) > 100:  # the rollout marked by its reward
        die_once("in-step")
        die_once("hang-in-step", signal.SIGSTOP)
    noise = torch.rand(policy_logits.shape)
    return -(policy_logits * (advantages.clamp(-1, 1) + 0.1 * noise)).mean()


def on_weights_live(args: Any, rollout_id: int, version: int, checkpoint: dict[str, Any]) -> None:
    if rollout_id == 4:
        die_once("driver-after-live")
