"""The process that hosts vLLM: loads, proves, serves until a signal, and ends with vLLM. Runs in vLLM's Python."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from types import FrameType
from typing import Any

import uvicorn

from slime.engines.json_http import SERVER_OPTIONS
from slime.engines.requests import WeightsError
from slime.engines.vllm.engine import HostedEngine
from slime.engines.vllm.server import VLLMServer
from slime.engines.vllm.weights import HostedWeights


def serve(args: Any, request: dict[str, Any], version: str) -> int:
    """Loads the model, proves it and serves until a signal; returns an exit status. vLLM's processes end with it.

    Args:
        args: vLLM's AsyncEngineArgs. request: see `child`. version: vLLM's.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    return asyncio.run(_serve(args, request, version))


async def _serve(args: Any, request: dict[str, Any], version: str) -> int:
    from vllm import SamplingParams
    from vllm.exceptions import VLLMClientError
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = HostedEngine(
        AsyncLLM.from_engine_args(args),
        lambda **options: SamplingParams(output_kind=RequestOutputKind.DELTA, **options),
        (ValueError, VLLMClientError),
    )
    weights = HostedWeights(engine)
    try:
        await engine.start()
        await weights.prove_first(args.model, request["version"], request["checksum"])
        failed = await _listen(
            engine, weights, {"model_path": request["model_path"], "version": version}, request
        )
    except WeightsError as error:
        print(f"engine: {error}", file=sys.stderr, flush=True)
        return 2
    finally:
        engine.shutdown()
    return 1 if failed else 0


async def _listen(
    engine: HostedEngine, weights: HostedWeights, about: dict[str, str], request: dict[str, Any]
) -> bool:
    """Serves until a signal (False) or until the engine is broken (True)."""
    broken = asyncio.Event()

    def end() -> None:
        broken.set()
        server.should_exit = True

    config = uvicorn.Config(
        VLLMServer(engine, weights, {**about, "pid": str(os.getpid())}, end).app(),
        host=request["host"],
        port=request["port"],
        log_level="warning",
        **SERVER_OPTIONS,
    )
    server = uvicorn.Server(config)
    await server.serve()
    return broken.is_set()


def _leave(number: int, frame: FrameType | None) -> None:
    """Out of whatever loads, through the blocks that end vLLM. Uvicorn, while it serves, has handlers of its own."""
    sys.exit(0)
