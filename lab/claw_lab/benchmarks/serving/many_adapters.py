"""Compares streams of many adapters on one base with streams of one; measures memory and updates of adapters. Prints
one JSON line.

    bash lab/run.sh benchmarks.serving.many_adapters [--model-path FOLDER] [--streams 16] [--loaded 64]

The engine runs in this process, with one thread; adapters are random, of rank 8 on all linear layers but the output
head. Speed is in tokens per second of processor time, which depends less on other programs than wall time. The
settings run in turn, `--rounds` times; results are medians.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import save_file

from claw_lab import ROOT
from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.lora.factors import adaptable_layers
from slime.engines.embedded.model import ServedModel
from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.service import EngineService
from slime.engines.requests import GenerateRequest, SamplingParams

RANK = 8
USUAL_STEPS = 20
ANSWER = 400
"""Tokens of the answers that stream while an adapter is replaced; they are aborted afterwards."""
TINY_CLAW = ROOT / "openclaw-test" / "tiny_claw" / "model"


def save_adapter(folder: Path, model: ServedModel, seed: int) -> str:
    """Saves a random adapter in PEFT's format; returns its folder."""
    draws = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, layer in adaptable_layers(model).items():
        if layer is not model.module.get_output_embeddings():
            inside, out = layer.in_features, layer.out_features
            plain = f"base_model.model.{name}"
            tensors[f"{plain}.lora_A.weight"] = 0.02 * torch.randn(RANK, inside, generator=draws)
            tensors[f"{plain}.lora_B.weight"] = 0.02 * torch.randn(out, RANK, generator=draws)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "base_model_name_or_path": "base", "r": RANK, "lora_alpha": 2 * RANK}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return str(folder)


def sequences(service: EngineService, names: list[str | None], prompt: int, tokens: int) -> list[Sequence]:
    rng = random.Random(len(names))
    sampling = SamplingParams(temperature=0.6, max_new_tokens=tokens, ignore_eos=True)
    top = min(300, service.limits.vocabulary)
    return [
        service.sequence(
            GenerateRequest(
                input_ids=rng.choices(range(4, top), k=prompt),
                sampling_params=sampling,
                return_logprob=True,
                lora_path=name,
            )
        )
        for name in names
    ]


def speed(service: EngineService, names: list[str | None], prompt: int, tokens: int) -> dict[str, float]:
    """Returns tokens per second, of processor time and of wall time, from the first decoded token of the last
    stream."""
    rows = sequences(service, names, prompt, tokens)
    for row in rows:
        service.engine.submit(row)
    while not all(row.output_ids for row in rows):
        time.sleep(0.001)
    before, cpu, clock = sum(len(row.output_ids) for row in rows), time.process_time(), time.perf_counter()
    while not any(row.finish for row in rows):
        time.sleep(0.002)
    made = sum(len(row.output_ids) for row in rows) - before
    rates = {"cpu": made / (time.process_time() - cpu), "clock": made / (time.perf_counter() - clock)}
    while not all(row.finish for row in rows):
        time.sleep(0.002)
    return rates


def medians(runs: list[dict[str, float]]) -> dict[str, Any]:
    speeds = [run["cpu"] for run in runs]
    return {
        "tokens_per_cpu_s": round(statistics.median(speeds)),
        "range": [round(min(speeds)), round(max(speeds))],
        "tokens_per_s": round(statistics.median(run["clock"] for run in runs)),
    }


def update(
    service: EngineService, names: list[str | None], folder: str, prompt: int, tokens: int
) -> dict[str, float]:
    """Returns milliseconds: the longest gap of the other streams while one adapter is replaced, a usual step, and the
    time from the call to the first token of the new version."""
    rows = sequences(service, names, prompt, tokens)
    for row in rows:
        service.engine.submit(row)
    while not all(len(row.output_ids) > 4 for row in rows):
        time.sleep(0.0005)
    stamps: list[float] = []
    service.engine.on_progress = lambda moved: stamps.append(time.perf_counter())
    while len(stamps) < USUAL_STEPS:
        time.sleep(0.001)
    steps = [b - a for a, b in pairwise(stamps)]
    began, mark = time.perf_counter(), len(stamps)
    service.adapters.register(str(names[0]), folder)
    done = time.perf_counter()
    while len(rows[0].spans) < 2 and rows[0].finish is None:
        time.sleep(0.0002)
    answering = time.perf_counter()
    after = len(stamps)
    while len(stamps) < after + 2:
        time.sleep(0.001)
    service.engine.on_progress = lambda moved: None
    during = [b - a for a, b in pairwise(stamps[mark - 1 :]) if a < answering]
    for row in rows:
        service.engine.abort(row.rid)
    while not all(row.finish for row in rows):
        time.sleep(0.002)
    return {
        "step_ms": round(1000 * statistics.median(steps), 2),
        "longest_step_ms": round(1000 * max(steps), 2),
        "longest_silence_ms": round(1000 * max(during, default=0.0), 2),
        "register_ms": round(1000 * (done - began), 1),
        "to_first_token_ms": round(1000 * (answering - began), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model-path", default=str(TINY_CLAW))
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--loaded", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    service = EngineService(EmbeddedArguments(model_path=args.model_path, max_loaded_adapters=args.loaded))
    service.engine.start()
    base: list[str | None] = [None] * args.streams
    size = (args.prompt_tokens, args.tokens)
    speed(service, base, *size)
    untouched = [speed(service, base, *size) for _ in range(args.rounds)]
    with tempfile.TemporaryDirectory() as folder:
        paths = [save_adapter(Path(folder) / f"a{n}", service.model, n) for n in range(args.loaded)]
        before = psutil.Process().memory_info().rss
        for number, path in enumerate(paths):
            service.adapters.register(f"a{number}", path)
        resident = psutil.Process().memory_info().rss - before
        one, many = ["a0"] * args.streams, [f"a{number}" for number in range(args.streams)]
        runs: dict[str, list[dict[str, float]]] = {"base": [], "one": [], "many": []}
        for _ in range(args.rounds):
            for name, names in (("base", base), ("one", [*one]), ("many", [*many])):
                runs[name].append(speed(service, names, *size))
        new = save_adapter(Path(folder) / "new", service.model, 999)
        replaced = update(service, [*many], new, args.prompt_tokens, ANSWER)
    ratios = [m["cpu"] / o["cpu"] for m, o in zip(runs["many"], runs["one"], strict=True)]
    result: dict[str, Any] = {
        "model": args.model_path,
        "streams": args.streams,
        "before_any_adapter": medians(untouched),
        **{name: medians(of_name) for name, of_name in runs.items()},
        "many_to_one": round(statistics.median(ratios), 3),
        "many_to_one_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "loaded": args.loaded,
        "adapter_mib": round(service.adapters.nbytes / args.loaded / 2**20, 3),
        "factors_mib": round(service.adapters.nbytes / 2**20, 1),
        "resident_mib": round(resident / 2**20, 1),
        "update": replaced,
    }
    print(json.dumps(result))
    service.engine.stop()


if __name__ == "__main__":
    main()
