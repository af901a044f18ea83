"""The routes of SGLang 0.5.23 for broadcast weights, with a real gloo rank for each of the engine's ranks.

`fault` of the engine: "refuses_group" (400), "never_joins" (waits for a key that is never written), "load_fails" (400
at
the second bucket, after the first was loaded), "hangs" (the first bucket's answer does not come, not even when the
sender has gone), "stale_rank" (the last rank keeps its old weights), "dies_joining", "dies_receiving", "dies_ending"
(kill -9 of the own process at that point); "loads_nothing" and "stale_head" as when reading from disk.
"""

from __future__ import annotations

import base64
import io
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from torch import Tensor

if TYPE_CHECKING:
    from tests.fakes.sglang import FakeSGLang


TIMEOUT = timedelta(seconds=90)
"""SGLang waits 30 minutes; here, an incomplete group must not outlive the test run."""


def said(success: bool, message: str = "") -> Response:
    return JSONResponse({"success": success, "message": message}, 200 if success else 400)


@dataclass
class FlattenedTensorMetadata:
    """The fields of the class of the same name in `sglang.srt.weight_sync.tensor_bucket`."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    start_idx: int
    end_idx: int
    numel: int


class Unpickler(pickle.Unpickler):
    """Unpickles what SGLang's own unpickler accepts: torch's parts of a shared tensor, and the class above."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata"):
            return FlattenedTensorMetadata
        assert module == "torch" or module.startswith("torch."), f"{module}.{name} is not let in"
        return super().find_class(module, name)


class Group:
    """The ranks of one engine. `open` is the session between begin and end, `groups` its process groups by name."""

    def __init__(self, engine: FakeSGLang, tp: int) -> None:
        self.engine, self.tp = engine, tp
        self.parallel: dict[str, int] = {}
        self.groups: dict[str, list[Any]] = {}
        self.open = False
        self.bytes = 0
        self.freed = threading.Event()
        self.copy_to_others()

    def routes(self) -> dict[str, Any]:
        methods = {
            "/init_weights_update_group": "join",
            "/destroy_weights_update_group": "leave",
            "/begin_weight_update": "begin",
            "/update_weights_from_distributed": "receive",
            "/update_weights_from_tensor": "take",
            "/end_weight_update": "end",
            "/update_weight_version": "relabel",
        }

        def handler(name: str) -> Any:
            async def answer(request: Request) -> Response:
                if name == "take" and self.engine.group.fault == "ends":
                    self.engine.start_again()
                    request.receive.__self__.transport.abort()  # type: ignore[attr-defined]
                method = getattr(self.engine.group, name)  # a restarted engine has another group
                return await run_in_threadpool(method, await request.json())

            return answer

        return {path: handler(name) for path, name in methods.items()}

    @property
    def fault(self) -> str | None:
        return self.engine.fault if self.engine.faults_left > 0 else None

    def die_if(self, fault: str) -> None:
        if self.fault == fault:
            os.kill(os.getpid(), signal.SIGKILL)

    def copy_to_others(self) -> None:
        """Copies the weights to the ranks after the first, which have their own copies."""
        named = {**dict(self.engine.model.named_parameters()), "lm_head.weight": self.engine.head}
        self.others = [{name: x.detach().clone() for name, x in named.items()} for _ in range(self.tp - 1)]

    def join(self, body: dict[str, Any]) -> Response:
        self.die_if("dies_joining")
        if self.fault == "refuses_group":
            self.engine.faults_left -= 1
            return said(False, "Failed to initialize custom process group: no interface.")
        name, size = body["group_name"], body["world_size"]
        assert size == self.tp + 1 and body["rank_offset"] == 1 and body["backend"] == "gloo"
        address = (body["master_address"], body["master_port"])
        try:
            with ThreadPoolExecutor(self.tp) as pool:
                ranks = pool.map(lambda rank: self.rank(address, name, rank, size), range(1, size))
                self.groups[name] = list(ranks)
        except RuntimeError as error:
            return said(False, f"Failed to initialize custom process group: {error}.")
        return said(True)

    def rank(self, address: tuple[str, int], name: str, rank: int, size: int) -> Any:
        """Creates torch's gloo group of that name without torch's registry, which allows one rank per process."""
        store = dist.TCPStore(*address, size, is_master=False, timeout=TIMEOUT)
        if self.fault == "never_joins":
            store.get("a key that nobody writes")
        for prefix in (name, f"{name}/", "cpu/"):
            store = dist.PrefixStore(prefix, store)
        return dist.ProcessGroupGloo(store, rank, size, TIMEOUT)

    def leave(self, body: dict[str, Any]) -> Response:
        there = self.groups.pop(body["group_name"], None) is not None
        return said(there, "" if there else "The group to be destroyed does not exist.")

    def begin(self, body: dict[str, Any]) -> Response:
        if self.open:
            return said(False, "a weight-update session is already open; call end_weight_update() first")
        assert self.engine.paused
        self.open, self.bytes, self.buckets = True, 0, 0
        return said(True)

    def end(self, body: dict[str, Any]) -> Response:
        self.die_if("dies_ending")
        if not self.open:
            return said(False, "no weight-update session is open; call begin_weight_update() first")
        self.open = False
        self.engine.faults_left -= 1
        return said(True)

    def relabel(self, body: dict[str, Any]) -> Response:
        assert not body["abort_all_requests"]
        self.engine.version = body["new_version"]
        self.engine.calls.append(f"version {body['new_version']}")
        return said(True)

    def receive(self, body: dict[str, Any]) -> Response:
        if not self.open:
            return said(False, "update_weights_from_distributed must run between begin and end")
        assert body["load_format"] == "flattened_bucket" and not body["abort_all_requests"]
        self.die_if("dies_receiving")
        if self.fault == "hangs":
            self.freed.wait(60)
            return said(False, "too late")
        dtypes = [getattr(torch, dtype) for dtype in body["dtypes"]]
        shapes = [torch.Size(shape) for shape in body["shapes"]]
        sizes = [shape.numel() * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True)]
        try:
            received = self.receive_on_all(body["group_name"], sum(sizes))
        except (RuntimeError, KeyError) as error:
            return said(False, f"Failed to receive weights: {error}")
        self.bytes += sum(sizes)
        self.buckets += 1
        if self.fault == "load_fails" and self.buckets == 2:
            return said(False, "Failed to update parameter online. Please discard the whole weights.")
        for rank, flat in enumerate(received):
            parts = [x.view(dtype) for x, dtype in zip(flat.split(sizes), dtypes, strict=True)]
            tensors = {n: x.reshape(s) for n, x, s in zip(body["names"], parts, shapes, strict=True)}
            try:
                self.load(rank, tensors)
            except RuntimeError as error:
                return said(False, f"Failed to update parameter online: {error}")
        return said(True)

    def take(self, body: dict[str, Any]) -> Response:
        """Receives a bucket in memory, in the format of SGLang's flattened buckets."""
        if not self.open:
            return said(False, "update_weights_from_tensor must run between begin and end")
        assert body["load_format"] == "flattened_bucket" and not body["abort_all_requests"]
        assert len(body["serialized_named_tensors"]) == self.tp
        self.die_if("dies_receiving")
        if self.fault == "hangs":
            self.freed.wait(60)
            return said(False, "too late")
        self.buckets += 1
        for rank, handle in enumerate(body["serialized_named_tensors"]):
            found = Unpickler(io.BytesIO(base64.b64decode(handle, validate=True))).load()
            flat = found["flattened_tensor"]
            self.bytes += flat.nbytes if rank == 0 else 0
            if self.fault == "load_fails" and self.buckets == 2:
                return said(False, "Failed to update parameter online. Please discard the whole weights.")
            self.load(
                rank,
                {
                    m.name: flat[m.start_idx : m.end_idx].view(m.dtype).reshape(m.shape)
                    for m in found["metadata"]
                },
            )
        return said(True)

    def receive_on_all(self, name: str, size: int) -> list[Tensor]:
        def one(group: dist.ProcessGroup) -> Tensor:
            flat = torch.empty(size, dtype=torch.uint8)
            options = dist.BroadcastOptions()
            options.rootRank = 0
            group.broadcast([flat], options).wait()
            return flat

        with ThreadPoolExecutor(self.tp) as pool:
            return list(pool.map(one, self.groups[name]))

    @torch.no_grad()
    def load(self, rank: int, tensors: dict[str, Tensor]) -> None:
        if self.fault == "loads_nothing" or (self.fault == "stale_rank" and rank == self.tp - 1):
            return
        own = dict(self.engine.model.named_parameters()) if rank == 0 else self.others[rank - 1]
        for name, tensor in tensors.items():
            if name in own:
                own[name].copy_(tensor)
            if name == "model.embed_tokens.weight" and self.fault != "stale_head":
                (self.engine.head if rank == 0 else own["lm_head.weight"]).copy_(tensor)
