"""The client of each engine of the policy, how the engine receives weights, and whether it has released its
memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.run_folder import records
from slime.engines.client import EngineControl
from slime.engines.spare import SpareEngine
from slime.processes import control
from slime.ray.limits import update_limit
from slime.ray.placement import Placement
from slime.weights.versions import artifact_folder

if TYPE_CHECKING:
    from slime.engines.sglang.broadcast import SenderHandle
    from slime.engines.sglang.memory import SharerHandle
    from slime.flags.sides import ServingSide


logger = logging.getLogger(__name__)

MAX_SECONDS = 86400.0  # seconds


def weight_sender(args: ServingSide, placement: Placement) -> SenderHandle | None:
    """Returns the process that broadcasts weights; None if engines receive them in another way."""
    if args.update_weight_transport != "nccl":
        return None
    from slime.ray.servers.weight_sender import RaySender

    return RaySender(args, placement)


def weight_sharer(args: ServingSide, placement: Placement, env: Mapping[str, str]) -> SharerHandle | None:
    """Returns the process that shares memory with an own engine of environment `env`; None if not needed."""
    if args.update_weight_transport != "tensor" or args.rollout_backend != "sglang":
        return None
    from slime.ray.servers.weight_sender import RaySharer

    return RaySharer(args, placement, env.get("CUDA_VISIBLE_DEVICES", "") if args.rollout_num_gpus else "")


def engine_client(
    args: ServingSide,
    url: str,
    sender: SenderHandle | None,
    own: str | None = None,
    over_gloo: bool = False,
    folder: Path | None = None,
    end: Callable[[], None] | None = None,
) -> EngineControl:
    """Returns the client of the engine at `url`.

    Args:
        sender: broadcasts weights to the engine; None: the engine reads them from disk.
        own: name of its process, if slime started it.
        over_gloo: use gloo, because NCCL cannot connect sender and engine.
        folder: folder of its process record; default: the run folder.
        end: kills its process if it hangs on another machine.
    """
    folder = folder or Path(args.run_dir)
    limit = min(update_limit(args), MAX_SECONDS)
    if args.rollout_backend != "sglang":
        return EngineControl(url, args.rollout_backend, prepare_timeout=limit)
    from slime.engines.sglang.broadcast import Broadcast
    from slime.engines.sglang.memory import ThroughMemory
    from slime.engines.sglang.routes import SGLangRoutes

    memory, probe_limit = ReleasedEngine(folder, own), args.weight_probe_limit
    if sender is None:
        return EngineControl(
            url, "sglang", prepare_timeout=limit, routes=SGLangRoutes(memory=memory, limit=probe_limit)
        )

    def folder_of_version(version: int) -> Path:
        return artifact_folder(Path(args.update_weight_disk_dir), version)

    # memory can be shared only within one machine
    shares = args.update_weight_transport == "tensor" and end is None
    kind: type[Broadcast] = ThroughMemory if shares else Broadcast
    transport = kind(
        url,
        sender,
        args.update_weight_buffer_size,
        limit,
        folder_of_version,
        on_stuck=end or end_process(folder, own),
        over_gloo=over_gloo,
    )
    return EngineControl(
        url, "sglang", prepare_timeout=limit, routes=SGLangRoutes(transport, memory, probe_limit)
    )


def gate_client(args: ServingSide, url: str) -> EngineControl:
    """Returns the client of the engine that serves only the gate."""
    return EngineControl(url, "embedded", prepare_timeout=min(update_limit(args), MAX_SECONDS))


def spare_clients(args: ServingSide) -> list[SpareEngine]:
    """Returns the client of the spare engine given by --gate-engine; [] if there is none."""
    if not args.gate or "://" not in args.gate_engine:
        return []
    return [SpareEngine(args.gate_engine, prepare_timeout=min(update_limit(args), MAX_SECONDS))]


def end_process(run_dir: Path, name: str | None) -> Callable[[], None]:
    """Returns a function that kills one of slime's own engines, which is then restarted with the live
    weights."""

    def end() -> None:
        record = None if name is None else records.read_record(run_dir, name)
        if record is not None:
            logger.warning("%s hangs in a weight update: restarting it", name)
            control.terminate(record, grace=0.0)

    return end


class ReleasedEngine:
    """Records in the run folder which engine process has released its memory, since SGLang does not report
    it.

    SGLang crashes on a second release of memory, and on a resume without a release.

    Args:
        name: name of the engine's process; None: it runs on another machine, and nothing is recorded.
    """

    def __init__(self, run_dir: Path, name: str | None) -> None:
        self.run_dir, self.name = run_dir, name

    def process(self) -> str:
        """Returns the id of the process that serves now; "" if unknown."""
        record = None if self.name is None else records.read_record(self.run_dir, self.name)
        return "" if record is None else f"{record.pid}/{record.birth or record.create_time}"

    def note(self, process: str) -> None:
        """Records the process that has released its memory; "": none."""
        if self.name is None:
            return
        path = _folder(self.run_dir) / self.name
        if process:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(process, encoding="utf-8")
        else:
            path.unlink(missing_ok=True)


def end_released(run_dir: Path) -> None:
    """Kills engines whose memory an earlier driver released, or was about to release; they are restarted."""
    for path in sorted(_folder(run_dir).glob("*")):
        record = records.read_record(run_dir, path.name)
        same = ReleasedEngine(run_dir, path.name).process() == path.read_text(encoding="utf-8")
        if record is not None and record.alive() and same:
            logger.warning("%s has released its memory for an earlier driver: restarting it", path.name)
            control.terminate(record)
        path.unlink(missing_ok=True)


def _folder(run_dir: Path) -> Path:
    return run_dir / "released"
