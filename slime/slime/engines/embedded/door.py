"""The embedded engine behind a door: a fork serves, another one with the live weights waits to take over.

The door imports torch and the model's code and runs neither: a fork of a process that has used CUDA or threads breaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from pathlib import Path

import psutil

from claw_base.hotswap.door import CANNOT_WORK, Door
from claw_base.hotswap.orphans import Lineage, Orphan
from claw_base.hotswap.post import Post
from claw_base.imports import uncollected
from claw_base.run_folder import records
from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.model import import_model_code
from slime.engines.embedded.server import announced_server
from slime.engines.embedded.service import EngineService
from slime.engines.requests import WeightsError
from slime.errors import ConfigError

SPARE_NEEDS_BYTES = 1 << 30
"""A spare is started by default if available memory exceeds three times the weights by this much."""
SPARE_NICENESS = 5
FOLLOW_SECONDS = 1.0
"""Interval at which a spare checks which weights are live."""
NVIDIA = Path("/dev/nvidiactl")


def serve_behind_door(
    args: EmbeddedArguments, listener: socket.socket, lineage: Lineage | None, orphans: list[Orphan]
) -> int:
    """Until a signal; returns the exit status. `orphans`: the workers of an earlier door, see `take_over`."""
    with uncollected(), contextlib.suppress(ConfigError):  # the first worker refuses it, with its reason
        import_model_code(args.model_path)
    own_pid = os.getpid()
    door = Door(
        listener,
        lambda post: _work(args, listener, post),
        spare=has_room(args),
        lineage=lineage,
        note=lambda part, pid: note_part(args.record_as, own_pid, part, pid),
    )
    for orphan in orphans:
        door.adopt(orphan)
    return door.run()


def has_room(args: EmbeddedArguments) -> bool:
    """Returns whether a spare waits. On a GPU one is too much: its memory is the store's."""
    if args.standby != "auto":
        return args.standby == "on"
    if args.device == "cuda" or (args.device == "auto" and NVIDIA.exists()):
        return False
    weights = sum(file.stat().st_size for file in Path(args.model_path).glob("*.safetensors"))
    return bool(psutil.virtual_memory().available > SPARE_NEEDS_BYTES + 3 * weights)


def note_part(record_as: str | None, door: int, part: str, pid: int | None) -> None:
    """Records the pid of the worker that serves or waits (`part`), next to the door's record; pid None: no worker."""
    if record_as is None:
        return
    run_dir, name = Path(record_as).parent.parent, Path(record_as).name
    records.record_part(run_dir, name, part, door, pid)


def _work(args: EmbeddedArguments, listener: socket.socket, post: Post) -> int:
    """The life of a worker; returns its exit status."""
    try:
        service = _built(args, SPARE_NICENESS if post.spare else 0)
        asyncio.run(_serve(service, listener, post))
    except (ConfigError, WeightsError) as error:
        post.refuse(f"engine: {error}")
        return CANNOT_WORK
    return 0


def _built(args: EmbeddedArguments, nice: int) -> EngineService:
    """In a thread, whose niceness is its own: without privileges a process cannot take its own back."""
    found: list[EngineService | Exception] = []

    def build() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, os.nice(0) + nice))
        try:
            found.append(EngineService(args))
        except Exception as error:  # raised below
            found.append(error)

    thread = threading.Thread(target=build, name="build")
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


async def _serve(service: EngineService, listener: socket.socket, post: Post) -> None:
    """Waits for its turn with the weights that are live by then; serves until a signal, or until another one does."""
    post.built()
    following = asyncio.create_task(_follow(service))
    await post.wait_for_turn(listener)
    following.cancel()
    await asyncio.wait([following])
    await asyncio.to_thread(service.refresh)
    server = announced_server(service, listener, post.serving)
    finishing = asyncio.create_task(_finish_when_told(server, listener, post))
    await server.serve(sockets=[listener])
    finishing.cancel()


async def _finish_when_told(server: object, listener: socket.socket, post: Post) -> None:
    """Another one serves now. What this one is sampling goes on there, from the ids that its clients have."""
    await post.wait_for_finish(listener)
    server.should_exit = True  # type: ignore[attr-defined]


async def _follow(service: EngineService) -> None:
    """Keeps the weights of a spare those that are live."""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        # Being replaced right now, or tried again at its turn
        with contextlib.suppress(ConfigError, WeightsError):
            await asyncio.to_thread(service.refresh)
