"""The client of each engine that serves the policy, and the way on which it gets its weights."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.run_folder import records
from slime.engines.client import EngineControl
from slime.processes import control
from slime.ray.placement import Placement
from slime.ray.released import ReleasedEngine
from slime.weights.versions import artifact_folder

if TYPE_CHECKING:
    from slime.arguments.sides import ServingSide
    from slime.engines.sglang.broadcast import SenderHandle
    from slime.engines.sglang.memory import SharerHandle

logger = logging.getLogger(__name__)

FOR_EVER = 86400.0  # seconds


def weight_sender(args: ServingSide, placement: Placement) -> SenderHandle | None:
    """What broadcasts weights; None where engines get them in another way."""
    if args.update_weight_transport != "nccl":
        return None
    from slime.ray.weight_sender import RaySender

    return RaySender(args, placement)


def weight_sharer(args: ServingSide, placement: Placement, env: Mapping[str, str]) -> SharerHandle | None:
    """What shares memory with an own engine that has this environment; None where engines need no help for that."""
    if args.update_weight_transport != "tensor" or args.rollout_backend != "sglang":
        return None
    from slime.ray.weight_sender import RaySharer

    return RaySharer(args, placement, env.get("CUDA_VISIBLE_DEVICES", "") if args.rollout_num_gpus else "")


def engine_client(
    args: ServingSide,
    url: str,
    sender: SenderHandle | None,
    own: str | None = None,
    over_gloo: bool = False,
) -> EngineControl:
    """The client of the engine at `url`.

    Args:
        sender: what brings it the weights; None: it reads them by itself.
        own: the name of its process, where slime started it.
        over_gloo: NCCL would not join sender and engine.
    """
    limit = args.weight_update_timeout or FOR_EVER
    if args.rollout_backend != "sglang":
        return EngineControl(url, args.rollout_backend, prepare_timeout=limit)
    from slime.engines.sglang.broadcast import Broadcast
    from slime.engines.sglang.memory import ThroughMemory
    from slime.engines.sglang.routes import SGLangRoutes

    memory = ReleasedEngine(Path(args.run_dir), own)
    if sender is None:
        return EngineControl(url, "sglang", prepare_timeout=limit, routes=SGLangRoutes(memory=memory))

    def folder_of_version(version: int) -> Path:
        return artifact_folder(Path(args.update_weight_disk_dir), version)

    kind: type[Broadcast] = ThroughMemory if args.update_weight_transport == "tensor" else Broadcast
    transport = kind(
        url,
        sender,
        args.update_weight_buffer_size,
        limit,
        folder_of_version,
        on_stuck=end_process(Path(args.run_dir), own),
        over_gloo=over_gloo,
    )
    return EngineControl(url, "sglang", prepare_timeout=limit, routes=SGLangRoutes(transport, memory))


def gate_client(args: ServingSide, url: str) -> EngineControl:
    """The client of the engine that answers the gate alone."""
    return EngineControl(url, "embedded", prepare_timeout=args.weight_update_timeout or FOR_EVER)


def end_process(run_dir: Path, name: str | None) -> Callable[[], None]:
    """What ends one of slime's own engines that hangs; it comes back by itself with the live weights."""

    def end() -> None:
        record = None if name is None else records.read_record(run_dir, name)
        if record is not None:
            logger.warning("%s hangs in a weight update: it is started again", name)
            control.terminate(record, grace=0.0)

    return end
