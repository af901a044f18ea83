"""Measures the tokens per second of the embedded engine over HTTP; prints one JSON line.

    bash lab/run.sh benchmarks.serving.engine_throughput [--model-path FOLDER] [--rows 64         8 4 1] [--threads 1]

Without --model-path a random Qwen3 of 1.2 M parameters (hidden 128, 4 layers, vocabulary 2048) is used: speed does
not depend on the values of weights. Each row is a streamed request with log-probs, as the gateway sends them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from typing import Any

import httpx

from claw_lab.benchmarks.embedded_engine import engine_of
from openclaw_test.loop.chat_client import event_lines


def random_model(folder: str) -> str:
    """Saves a random tiny Qwen3; returns its folder."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=2048,
        hidden_size=128,
        intermediate_size=448,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=32768,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


async def one_stream(client: httpx.AsyncClient, prompt: list[int], tokens: int) -> tuple[int, float, float]:
    """Returns the tokens received, the seconds to the first one, and the longest gap between two chunks."""
    params = {"max_new_tokens": tokens, "temperature": 0.6, "ignore_eos": True}
    body = {"input_ids": prompt, "sampling_params": params, "return_logprob": True, "stream": True}
    last = started = time.perf_counter()
    first, longest, count = 0.0, 0.0, 0
    async with client.stream("POST", "/generate", json=body) as answer:
        answer.raise_for_status()
        async for line in event_lines(answer):
            if not line.startswith("data: {"):
                continue
            now = time.perf_counter()
            first, longest = (now - started, 0.0) if not first else (first, max(longest, now - last))
            last, count = now, line.count('"completion_tokens"') and _completed(line)
    return count, first, longest


def _completed(line: str) -> int:
    start = line.index('"completion_tokens":') + len('"completion_tokens":')
    return int(line[start : line.index(",", start)])


async def measure(url: str, rows: int, prompt: int, tokens: int) -> dict[str, Any]:
    """Measures all rows at once: prompts of `prompt` tokens, answers of `tokens` tokens."""
    rng = random.Random(rows)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=600, trust_env=False, limits=limits) as client:
        started = time.perf_counter()
        prompts = [rng.choices(range(100, 2000), k=prompt) for _ in range(rows)]
        done = await asyncio.gather(*(one_stream(client, p, tokens) for p in prompts))
        seconds = time.perf_counter() - started
    return {
        "rows": rows,
        "tokens_per_s": round(sum(count for count, _, _ in done) / seconds),
        "first_token_ms": round(1000 * statistics.median(first for _, first, _ in done)),
        "longest_silence_ms": round(1000 * max(silence for _, _, silence in done)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model-path")
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 8, 4, 1])
    parser.add_argument("--prompt-tokens", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model_path = args.model_path or random_model(folder)
        started = time.perf_counter()
        with engine_of(model_path, "--threads", str(args.threads)) as url:
            start_s = time.perf_counter() - started
            asyncio.run(measure(url, 2, 20, 20))
            runs = [asyncio.run(measure(url, rows, args.prompt_tokens, args.tokens)) for rows in args.rows]
    print(json.dumps({"start_s": round(start_s, 2), "threads": args.threads, "runs": runs}))


if __name__ == "__main__":
    main()
