"""A server with the control calls of SGLang 0.5.23 over a real tiny model, with faults like those of engines.

`fault`: "loads_nothing" (200, but the old weights stay), "stale_head" (loads all but the LM head), "refuses" (200
with success false), "breaks" (500), "keeps_version" (loads, but reports the old version), "ends" (exits during a
bucket without an answer, and is restarted). Broadcast weights go to the real gloo ranks of `sglang_group.py`, which
has its own faults.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.fakes.sglang_group import Group
from tests.fakes.tiny_engine_model import plain_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class FakeSGLang:
    """One set of weights; `calls` lists the received control calls.

    `blind`: its machine cannot access the trainer's folders. `tp`: ranks, each with a copy of the weights.
    """

    def __init__(self, folder: Path, load: Callable[[Path], PreTrainedModel], tp: int = 1) -> None:
        self.load = load
        self.model = load(folder)
        # as in vLLM, a tied head is a separate tensor, so that it can become stale
        self.head = self.model.get_input_embeddings().weight.detach().clone()
        self.path, self.version = str(folder), "default"
        self.fault: str | None = None
        self.faults_left = 10**6
        self.paused = self.blind = False
        self.first, self.starts = folder, 1
        self.calls: list[str] = []
        self.compiles = 0.0  # seconds that its hashes take
        self.group = Group(self, tp)

    def start_again(self) -> None:
        """Restarts with the initial weights and without the state of earlier calls."""
        self.starts += 1
        self.model = self.load(self.first)
        self.head = self.model.get_input_embeddings().weight.detach().clone()
        self.path, self.version, self.paused = str(self.first), "default", False
        self.group = Group(self, self.group.tp)

    def app(self) -> Starlette:
        post = {
            "/generate": self.generate,
            "/pause_generation": self.pause,
            "/continue_generation": self.continue_generation,
            "/update_weights_from_disk": self.update,
            "/weights_checker": self.digests,
            "/release_memory_occupation": self.release,
            "/resume_memory_occupation": self.resume,
            **self.group.routes(),
        }
        routes = [Route(path, handler, methods=["POST"]) for path, handler in post.items()]
        return Starlette(
            routes=[
                *routes,
                Route("/model_info", self.info),
                Route("/health", self.health),
                Route("/server_info", self.server_info),
            ]
        )

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("")

    async def server_info(self, request: Request) -> Response:
        parallel = {"tp_size": self.group.tp, "pp_size": 1, "dp_size": 1, **self.group.parallel}
        return JSONResponse({"version": "0.5.23", "dtype": "float32", "device": "cpu", **parallel})

    async def info(self, request: Request) -> Response:
        return JSONResponse({"model_path": self.path, "weight_version": self.version})

    async def pause(self, request: Request) -> Response:
        self.calls.append(f"pause {(await request.json())['mode']}")
        self.paused = True
        return JSONResponse({"status": "ok"})

    async def continue_generation(self, request: Request) -> Response:
        if self.paused:
            self.calls.append("continue")
        self.paused = False
        return JSONResponse({"status": "ok"})

    async def release(self, request: Request) -> Response:
        self.calls.append("release")
        return Response(status_code=200)

    async def resume(self, request: Request) -> Response:
        self.calls.append("resume")
        return Response(status_code=200)

    async def update(self, request: Request) -> Response:
        body = await request.json()
        self.calls.append(f"update {body['weight_version']}")
        assert self.paused and body["flush_cache"]
        fault = self.fault if self.faults_left > 0 else None
        self.faults_left -= 1
        if fault == "breaks":
            return PlainTextResponse("out of memory", 500)
        if self.blind:
            return JSONResponse({"success": False, "message": "Failed to get weights iterator"}, 400)
        if fault == "refuses":
            return JSONResponse({"success": False, "message": "no such shard"})
        if fault != "loads_nothing":
            self.model = self.load(Path(body["model_path"]))
            if fault != "stale_head":
                self.head = self.model.get_input_embeddings().weight.detach().clone()
            self.group.copy_to_others()
        self.path = body["model_path"]
        if fault != "keeps_version":
            self.version = body["weight_version"]
        return JSONResponse({"success": True, "message": "Succeeded to update model weights."})

    async def digests(self, request: Request) -> Response:
        await asyncio.sleep(self.compiles)
        first = {**dict(self.model.named_parameters()), "lm_head.weight": self.head}
        found = [
            {name: hashlib.sha256(t.detach().numpy().tobytes()).hexdigest() for name, t in tensors.items()}
            for tensors in (first, *self.group.others)
        ]
        return JSONResponse({"success": True, "message": "", "ranks": [{"checksums": one} for one in found]})

    async def generate(self, request: Request) -> Response:
        if self.paused:
            return PlainTextResponse("paused", 503)
        ids = (await request.json())["input_ids"]
        with torch.no_grad():
            hidden = self.model.model(torch.tensor([ids])).last_hidden_state[0]
            table = torch.log_softmax(hidden @ self.head.T, dim=-1)
        scores = [[None, ids[0], None]]
        scores += [[table[place, token].item(), token, None] for place, token in enumerate(ids[1:])]
        best = int(table[-1].argmax())
        meta = {
            "input_token_logprobs": scores,
            "output_token_logprobs": [[table[-1, best].item(), best, None]],
        }
        return JSONResponse({"text": "", "output_ids": [best], "meta_info": meta})


class Running:
    """A fake in its own thread."""

    def __init__(self, fake: FakeSGLang) -> None:
        self.fake = fake
        config = uvicorn.Config(fake.app(), port=0, log_level="error", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive(), "the fake engine could not listen"
            time.sleep(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def close(self) -> None:
        """Does not wait for a hanging request: its thread ends with the group's own timeout."""
        self.server.should_exit = True
        self.thread.join(10)


def serve(folder: str, port: int, fault: str | None) -> None:
    """Serves in a separate process, which may be killed."""
    torch.set_num_threads(1)
    fake = FakeSGLang(Path(folder), plain_model)
    fake.fault, fake.blind = fault, True
    uvicorn.run(fake.app(), port=port, log_level="error")
