"""Measures the embedded engine on the device: decoding with a new length in each step, and a new version during an
answer."""

from __future__ import annotations

import random
import time
from typing import Any

from claw_lab.long.gpu_check.bench import SHAPES, Bench
from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.service import EngineService
from slime.engines.requests import GenerateRequest


def embedded(bench: Bench) -> None:
    """Measures the milliseconds of a decode step for 1 and 16 answers at a time; seconds to prepare and to switch a
    version."""
    folder = bench.model(bench.small)
    device = "cpu" if bench.tiny else "cuda"
    seconds, service = bench.timed(
        lambda: EngineService(EmbeddedArguments(model_path=folder, device=device, dtype="bfloat16"))
    )
    bench.report(
        "embedded.start", seconds=seconds, device=str(service.model.device), dtype=str(service.model.dtype)
    )
    service.engine.start()
    tokens = 8 if bench.tiny else 256
    for answers in (1, 16):
        rows = [_request(bench, service, tokens, seed) for seed in range(answers)]
        began = time.perf_counter()
        for row in rows:
            service.engine.submit(row)
        _wait(service, rows)
        step_ms = 1e3 * (time.perf_counter() - began) / tokens
        bench.report("embedded.decode", answers=answers, tokens=tokens, step_ms=step_ms)
    running = _request(bench, service, tokens, seed=99)
    service.engine.submit(running)
    prepare, _ = bench.timed(lambda: service.weights.prepare(folder, 1))
    switch, live = bench.timed(lambda: service.weights.switch(1))
    _wait(service, [running])
    service.engine.stop()
    bench.report("embedded.version", prepare_s=prepare, switch_s=switch, live=live.version)


def _request(bench: Bench, service: EngineService, tokens: int, seed: int) -> Any:
    prompt = random.Random(seed).choices(
        range(4, SHAPES[bench.small]["vocab_size"]), k=16 if bench.tiny else 512
    )
    sampling = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 1.0}
    body = {"input_ids": prompt, "return_logprob": True, "sampling_params": sampling}
    return service.sequence(GenerateRequest.model_validate(body))


def _wait(service: EngineService, rows: list[Any], timeout: float = 300.0) -> None:
    end = time.monotonic() + timeout
    while any(row.finish is None for row in rows):
        if time.monotonic() > end or not service.engine.alive:
            raise RuntimeError("the engine has stopped, or takes too long")
        time.sleep(0.001)
