"""The process that hosts vLLM: loads, proves, serves until a signal, and ends with vLLM. Runs in vLLM's Python."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from types import FrameType
from typing import Any

import uvicorn

from slime.engines.vllm.engine import Engine
from slime.engines.vllm.server import VLLMServer
from slime.engines.vllm.weights import WeightsError, WeightStore

KEEP_ALIVE = 75  # seconds; longer than clients keep an idle connection


def serve(args: Any, order: dict[str, Any], version: str) -> int:
    """Loads the model, proves it and serves until a signal; returns an exit status. vLLM's processes end with it.

    Args:
        args: vLLM's AsyncEngineArgs. order: see `child`. version: vLLM's.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    return asyncio.run(_serve(args, order, version))


async def _serve(args: Any, order: dict[str, Any], version: str) -> int:
    from vllm import SamplingParams
    from vllm.exceptions import VLLMClientError
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = Engine(
        AsyncLLM.from_engine_args(args),
        lambda **options: SamplingParams(output_kind=RequestOutputKind.DELTA, **options),
        (ValueError, VLLMClientError),
    )
    weights = WeightStore(engine)
    try:
        await engine.start()
        await weights.prove_first(args.model, order["version"], order["checksum"])
        failed = await _listen(
            engine, weights, {"model_path": order["model_path"], "version": version}, order
        )
    except WeightsError as error:
        print(f"engine: {error}", file=sys.stderr, flush=True)
        return 2
    finally:
        engine.shutdown()
    return 1 if failed else 0


async def _listen(engine: Engine, weights: WeightStore, about: dict[str, str], order: dict[str, Any]) -> bool:
    """Serves until a signal (False) or until the engine is broken (True)."""
    broken = asyncio.Event()

    def end() -> None:
        broken.set()
        server.should_exit = True

    config = uvicorn.Config(
        VLLMServer(engine, weights, {**about, "pid": str(os.getpid())}, end).app(),
        host=order["host"],
        port=order["port"],
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    await server.serve()
    return broken.is_set()


def _leave(number: int, frame: FrameType | None) -> None:
    """Out of whatever loads, through the blocks that end vLLM. Uvicorn, while it serves, has handlers of its own."""
    sys.exit(0)
