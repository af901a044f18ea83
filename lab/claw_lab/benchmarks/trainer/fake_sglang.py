"""Runs an engine that only waits: SGLang's protocol, made-up tokens, latencies with a long tail. Needs no model.

    bash lab/run.sh benchmarks.trainer.fake_sglang --port 21001 --median 0.4 --sigma 0.8 --longest 4

The latency of a request depends only on its sampling seed, so two runs with the same prompts have the same latencies.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
from typing import Any

from aiohttp import web


class FakeEngine:
    """Answers after a log-normal time; loads weights in `update` seconds and serves meanwhile."""

    def __init__(self, median: float, sigma: float, longest: float, update: float) -> None:
        self.median, self.sigma, self.longest, self.update = median, sigma, longest, update
        self.version, self.prepared = 0, 0

    def latency(self, seed: int) -> float:
        """Returns the latency of one request in seconds."""
        drawn = random.Random(seed).lognormvariate(math.log(self.median), self.sigma)
        return min(self.longest, drawn)

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        seed = body["sampling_params"]["sampling_seed"]
        began = self.version
        await asyncio.sleep(self.latency(seed))
        chance, count = random.Random(seed), 8
        ids = [chance.randrange(4, 200) for _ in range(count)]
        meta = {
            "finish_reason": {"type": "stop", "matched": 1},
            "output_token_logprobs": [[-1.0, token, None] for token in ids],
            "completion_tokens": count,
            "weight_version": str(began),
        }
        return web.json_response({"text": "made up", "output_ids": ids, "meta_info": meta})

    async def prepare(self, request: web.Request) -> web.Response:
        self.prepared = int((await request.json())["weight_version"])
        await asyncio.sleep(self.update)
        return self.done(self.prepared)

    async def switch(self, request: web.Request) -> web.Response:
        self.version = int((await request.json())["weight_version"])
        return self.done(self.version)

    def done(self, version: int) -> web.Response:
        answer = {
            "success": True,
            "message": "",
            "weight_version": str(version),
            "checksum": checksum(version),
        }
        return web.json_response(answer)

    async def info(self, request: web.Request) -> web.Response:
        answer: dict[str, Any] = {"model_path": "none", "max_context_length": 4096}
        return web.json_response(
            answer | {"weight_version": str(self.version), "checksum": checksum(self.version)}
        )

    async def fine(self, request: web.Request) -> web.Response:
        return web.json_response({"success": True, "message": ""})

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self.fine)
        app.router.add_get("/model_info", self.info)
        app.router.add_post("/generate", self.generate)
        app.router.add_post("/prepare_weights", self.prepare)
        app.router.add_post("/switch_weights", self.switch)
        for path in ("/discard_weights", "/abort_request"):
            app.router.add_post(path, self.fine)
        return app


def checksum(version: int) -> str:
    """Returns the checksum that both sides use for the weights of a version."""
    return f"made-up-{version}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--median", type=float, default=0.4, help="median latency, seconds")
    parser.add_argument(
        "--sigma", type=float, default=0.8, help="standard deviation of the latency's logarithm"
    )
    parser.add_argument("--longest", type=float, default=4.0, help="longest latency, seconds")
    parser.add_argument("--update", type=float, default=0.05, help="seconds to read new weights")
    args = parser.parse_args()
    engine = FakeEngine(args.median, args.sigma, args.longest, args.update)
    web.run_app(engine.app(), host="127.0.0.1", port=args.port, print=None)


if __name__ == "__main__":
    main()
