"""Checks that vLLM's own reload leaves the LM head of a tied model on a CPU unchanged, that our comparison detects
it, and that our loading does not.

In vLLM's Python: `vllm_stale_head.py MODEL_FOLDER OTHER_FOLDER`
"""

import asyncio
import os
import sys
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

MODEL, OTHER = sys.argv[1:3]


async def main() -> None:
    llm = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=MODEL,
            dtype="float32",
            enforce_eager=True,
            kv_cache_memory_bytes=1 << 28,
            disable_log_stats=True,
            worker_extension_cls="slime.engines.vllm.worker.LiveWeights",
        )
    )

    async def compared(folder: str) -> Any:
        [report] = await llm.collective_rpc("slime_compare", args=(folder,))
        return report

    try:
        await llm.collective_rpc("slime_start", args=(os.getpid(),))
        first = await compared(MODEL)
        assert not first["wrong"] and not (await compared(OTHER))["compared"]
        await llm.collective_rpc("reload_weights", kwargs={"weights_path": OTHER})
        assert (await compared(OTHER))["wrong"] == ["lm_head.weight"]
        await llm.collective_rpc("slime_load", args=(OTHER,))
        assert await compared(OTHER) == first
        print(
            f"passed  a stale head is found: of {first['compared']} tensors, after vLLM's own reload",
            flush=True,
        )
    finally:
        llm.shutdown(timeout=1)


if __name__ == "__main__":
    asyncio.run(main())
