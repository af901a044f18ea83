"""The process that broadcasts weights: an actor on the GPU of the trainer's first rank, with its own CUDA context.

A broadcast that hangs can therefore be killed without the trainer. The actor starts with the first update.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from slime.ray import actor_process
from slime.ray.actor_process import reset_allocator
from slime.ray.cluster import here
from slime.ray.placement import Placement

if TYPE_CHECKING:
    from slime.engines.sglang.buckets import Bucket
    from slime.engines.sglang.sender import Meeting
    from slime.flags.run import RunArguments

LOCAL = ("127.0.0.1", "localhost", "::1")


@ray.remote(num_cpus=0, max_restarts=0)
class WeightSender:
    """Runs `slime.engines.sglang.sender.Sender` in its own process. `gpu`: its index or UUID on that machine, None:
    CPU."""

    def __init__(self, run_dir: Path, gpu: int | str | None) -> None:
        actor_process.enter(run_dir, "weight_sender")
        os.environ["CUDA_VISIBLE_DEVICES"] = "" if gpu is None else str(gpu)  # before torch is imported
        os.environ.setdefault("NCCL_CUMEM_ENABLE", "0")  # SGLang sets it too; both sides must agree
        from slime.engines.sglang.sender import Sender

        self.sender = Sender()

    def meet(self, engine_host: str, timeout: float) -> Meeting:
        return self.sender.meet(engine_host, timeout)

    def join(self, name: str, world_size: int, backend: str, timeout: float) -> None:
        self.sender.join(name, world_size, backend, timeout)

    def send(self, bucket: Bucket) -> None:
        self.sender.send(bucket)

    def leave(self) -> None:
        self.sender.leave()


@ray.remote(num_cpus=0, max_restarts=0)
class WeightSharer:
    """Runs `slime.engines.sglang.memory.Sharer` in its own process. `gpus`: those of the engine, "": CPU."""

    def __init__(self, run_dir: Path, gpus: str) -> None:
        actor_process.enter(run_dir, "weight_sender")
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # before torch is imported
        reset_allocator(os.environ)  # expandable segments have no CUDA IPC handles
        from slime.engines.sglang.memory import Sharer

        self.sharer = Sharer()

    def share(self, bucket: Bucket, ranks: int) -> list[str]:
        return self.sharer.share(bucket, ranks)

    def drop(self) -> None:
        self.sharer.drop()

    def leave(self) -> None:
        self.sharer.leave()


class RaySender:
    """The driver's client of the weight sender: starts it on demand, and again after `kill`."""

    def __init__(self, args: RunArguments, placement: Placement) -> None:
        self.args, self.placement = args, placement
        self.turn = threading.Lock()
        self.actor: Any = None

    def meet(self, engine_host: str, timeout: float) -> Future[Meeting]:
        """Starts the rendezvous; if the trainer is on another machine, it connects to the driver's machine by its
        network address."""
        elsewhere = self.placement.sites["actor"][0].node_id != self.placement.here
        if elsewhere and engine_host in LOCAL:
            engine_host = str(ray.util.get_node_ip_address())
        return self.ask("meet", engine_host, timeout)

    def join(self, name: str, world_size: int, backend: str, timeout: float) -> Future[None]:
        return self.ask("join", name, world_size, backend, timeout)

    def send(self, bucket: Bucket) -> Future[None]:
        return self.ask("send", bucket)

    def leave(self) -> Future[None]:
        return self.ask("leave")

    def kill(self) -> None:
        if self.actor is not None:
            ray.kill(self.actor)
        self.actor = None

    def start(self) -> Any:
        site = self.placement.sites["actor"][0]
        strategy = self.placement.strategy_of(site.bundle)
        kind = WeightSender.options(scheduling_strategy=strategy)  # type: ignore[attr-defined]
        return kind.remote(Path(self.args.run_dir), site.gpu)

    def ask(self, method: str, *words: object) -> Future[Any]:
        if self.actor is None:
            self.actor = self.start()
        answer: Future[Any] = getattr(self.actor, method).remote(*words).future()
        return answer


class RaySharer(RaySender):
    """The driver's client of the process that shares memory with one engine, on the driver's machine like the engine.

    `gpus`: as the engine sees them (CUDA_VISIBLE_DEVICES), "" for an engine on a CPU.
    """

    def __init__(self, args: RunArguments, placement: Placement, gpus: str) -> None:
        super().__init__(args, placement)
        self.gpus = gpus

    def share(self, bucket: Bucket, ranks: int) -> Future[list[str]]:
        return self.ask("share", bucket, ranks)

    def drop(self) -> Future[None]:
        return self.ask("drop")

    def start(self) -> Any:
        kind = WeightSharer.options(scheduling_strategy=here())  # type: ignore[attr-defined]
        return kind.remote(Path(self.args.run_dir), self.gpus)
