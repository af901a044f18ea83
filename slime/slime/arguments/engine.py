"""Flags: inference engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slime.arguments.field import flag


@dataclass
class EngineArguments:
    """Inference engines."""

    rollout_backend: Literal["embedded"] = flag("embedded", "inference engine", aliases=("--backend",))
    rollout_num_gpus: int = flag(0, "GPUs of all engines together; 0 serves on the CPU")
    rollout_num_engines: int = flag(1, "engines where no GPU serves")
    engine_port: int = flag(0, "port of the first engine, the next ones follow; 0 takes free ports")
    engine_threads: int = flag(1, "CPU threads of one engine")
    context_length: int | None = flag(
        None,
        "tokens of prompt and answer (default: the model's)",
        env=("CONTEXT_LENGTH",),
        aliases=("--sglang-context-length",),
    )
    max_running_requests: int = flag(64, "requests that one engine answers at the same time")
    chunked_prefill_size: int = flag(512, "prompt tokens that an engine reads between two decode steps")
