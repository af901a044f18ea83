"""What an engine that shares its GPU with a trainer may keep, in tokens: the same whoever is on the GPU first.

SGLang takes its share of what is free when it starts, and everything that others take meanwhile is charged to its keys
and values: behind a trainer, as after a restart, it would keep a third or nothing. So it gets the number of tokens that
the plan has for it, and a share so large that the number decides. vLLM gets the bytes.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING

from slime.errors import ConfigError
from slime.plan.hardware import GIB, Gpu, gpus_here
from slime.plan.memory import engine_parts, kv_tokens
from slime.plan.of_arguments import mem_fraction
from slime.plan.parts import EngineMemory
from slime.plan.shape import read_shape

if TYPE_CHECKING:
    from slime.arguments.sides import ServingSide

logger = logging.getLogger(__name__)

LARGE = "0.9"
"""Share of the free memory behind which SGLang's number of tokens decides; the rest is for what it computes with."""
CAPS = {"sglang": "--sglang-max-total-tokens", "vllm": "--vllm-kv-cache-memory-bytes"}


@lru_cache(maxsize=1)
def smallest_gpu() -> Gpu | None:
    """Of this machine, where engines run; None where there is none."""
    return min(gpus_here(), key=lambda gpu: gpu.memory, default=None)


def share_words(args: ServingSide, gpu: Gpu | None) -> list[str]:
    """The engine's own words that keep it to its share of a GPU with a trainer; none where it has the GPU to itself,
    where nobody knows the GPU, or where the user's words name a number.

    Raises:
        ConfigError: the share does not even hold the weights.
    """
    words = args.engine_words.get("rollout", [])
    cap = CAPS.get(args.rollout_backend)
    if not args.colocate or not args.rollout_num_gpus or gpu is None or cap is None:
        return []
    if any(word.split("=", 1)[0].replace("_", "-") == cap for word in words):
        return []
    try:
        shape = read_shape(args.hf_checkpoint)
    except ConfigError as error:
        logger.warning("%s; its engine keeps what it finds free when it starts", error)
        return []
    share, context = mem_fraction(args), args.context_length or shape.context
    engine = EngineMemory(shape, args.rollout_num_gpus_per_engine, share, context)
    parts = engine_parts(engine, gpu)
    if parts["keys and values"] <= 0:
        raise ConfigError(
            f"the engine's share {share:g} of a {gpu.name} does not hold the {parts['weights'] / GIB:.1f} GiB of its "
            "weights: a larger share (MEM_FRACTION_STATIC), or more GPUs an engine (TP)"
        )
    if args.rollout_backend == "vllm":
        return [cap, str(int(parts["keys and values"]))]
    return [cap, str(kv_tokens(engine, gpu)), "--sglang-mem-fraction-static", LARGE]
