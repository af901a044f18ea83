"""The embedded engine under a socket supervisor: a forked worker serves, and a spare with the live weights
stands by.

The supervisor imports torch and the model's code without running them: a process that has used CUDA or
threads cannot be forked safely.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from pathlib import Path

import psutil

from claw_base.hotswap.socket_supervisor import CANNOT_WORK, SocketSupervisor
from claw_base.hotswap.takeover import ReclaimedWorker, TakeoverId
from claw_base.hotswap.worker_channel import WorkerChannel
from claw_base.imports import without_garbage_collection
from claw_base.run_folder import records
from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.model import import_model_code
from slime.engines.embedded.server import announced_server
from slime.engines.embedded.service import EngineService
from slime.engines.requests import WeightsError
from slime.errors import ConfigError

SPARE_NEEDS_BYTES = 1 << 30
"""By default a spare is started if available memory exceeds its copies of the weights by this many bytes."""
COPIES, PACKED_COPIES = 3, 2
"""Copies of the weights: live, prepared and the spare's. In bf16, the first two may have packed copies
(`packed.py`)."""
SPARE_NICENESS = 5
FOLLOW_SECONDS = 1.0
"""Seconds after which a spare checks again which weights are live."""
NVIDIA = Path("/dev/nvidiactl")


def serve_supervised(
    args: EmbeddedArguments,
    listener: socket.socket,
    takeover_id: TakeoverId | None,
    reclaimed: list[ReclaimedWorker],
) -> int:
    """Runs until a signal; returns the exit status.

    Args:
        reclaimed: the workers of a killed supervisor, see `take_over`.
    """
    with without_garbage_collection(), contextlib.suppress(ConfigError):  # the first worker reports the error
        import_model_code(args.model_path)
    own_pid = os.getpid()
    supervisor = SocketSupervisor(
        listener,
        lambda channel: _work(args, listener, channel),
        spare=has_room(args),
        takeover_id=takeover_id,
        note=lambda part, pid: note_part(args.record_as, own_pid, part, pid),
    )
    for worker in reclaimed:
        supervisor.adopt(worker)
    return supervisor.run()


def has_room(args: EmbeddedArguments) -> bool:
    """Returns whether to keep a spare. On a GPU, the KV store uses the memory, so there is none."""
    if args.standby != "auto":
        return args.standby == "on"
    if args.device == "cuda" or (args.device == "auto" and NVIDIA.exists()):
        return False
    weights = sum(file.stat().st_size for file in Path(args.model_path).glob("*.safetensors"))
    copies = COPIES + (PACKED_COPIES if args.dtype == "bfloat16" else 0)
    return bool(psutil.virtual_memory().available > SPARE_NEEDS_BYTES + copies * weights)


def note_part(record_as: str | None, supervisor: int, part: str, pid: int | None) -> None:
    """Records the pid of the serving or spare worker (`part`) next to the supervisor's record; None: no
    worker."""
    if record_as is None:
        return
    run_dir, name = Path(record_as).parent.parent, Path(record_as).name
    records.record_part(run_dir, name, part, supervisor, pid)


def _work(args: EmbeddedArguments, listener: socket.socket, channel: WorkerChannel) -> int:
    """Runs a worker; returns its exit status."""
    try:
        service = _built(args, SPARE_NICENESS if channel.spare else 0)
        asyncio.run(_serve(service, listener, channel))
    except (ConfigError, WeightsError) as error:
        channel.refuse(f"engine: {error}")
        return CANNOT_WORK
    return 0


def _built(args: EmbeddedArguments, nice: int) -> EngineService:
    """Returns the service, built in a thread with its own niceness, since niceness cannot be lowered again."""
    built: list[EngineService | Exception] = []

    def build() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, os.nice(0) + nice))
        try:
            built.append(EngineService(args))
        except Exception as error:  # raised below
            built.append(error)

    thread = threading.Thread(target=build, name="build")
    thread.start()
    thread.join()
    if isinstance(built[0], Exception):
        raise built[0]
    return built[0]


async def _serve(service: EngineService, listener: socket.socket, channel: WorkerChannel) -> None:
    """Waits for activation, loads the live weights, and serves until a signal or until another worker serves."""
    channel.built()
    following = asyncio.create_task(_follow(service))
    await channel.wait_for_turn(listener)
    following.cancel()
    await asyncio.wait([following])
    await asyncio.to_thread(service.refresh)
    server = announced_server(service, listener, channel.serving)
    finishing = asyncio.create_task(_finish_when_ordered(server, listener, channel))
    await server.serve(sockets=[listener])
    finishing.cancel()


async def _finish_when_ordered(server: object, listener: socket.socket, channel: WorkerChannel) -> None:
    """Stops the server once another worker serves. Open answers continue there, from the ids that clients
    have."""
    await channel.wait_for_finish(listener)
    server.should_exit = True  # type: ignore[attr-defined]


async def _follow(service: EngineService) -> None:
    """Reloads a spare's weights whenever the live ones change."""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        # the folder is being replaced; loading is repeated at the takeover
        with contextlib.suppress(ConfigError, WeightsError):
            await asyncio.to_thread(service.refresh)
