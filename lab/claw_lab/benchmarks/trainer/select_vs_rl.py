"""Compares one update of the hybrid method with one of Binary RL on the same samples: the cost of teachers and top-K.

    bash lab/run.sh benchmarks.trainer.select_vs_rl

The model has tiny-claw's shape and random weights. Both train the same 16 answers of 48 tokens to prompts of 120 and
of 480 tokens, without a reference model; the hybrid method adds 3 hints of 12 to 32 tokens to each prompt, K = 4,
hints by overlap over the response. The updates of both alternate. Prints one JSON line for each case, times in
seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from slime.arguments import Arguments
from slime.training.fsdp import FSDPTrainer
from slime.types import Sample

VOCABULARY, SAMPLES, RESPONSE, TAIL = 2048, 16, 48, 6
HINTS = (12, 20, 32)
CASES = {"prompt_120": 120, "prompt_480": 480}


def write_model(folder: Path) -> None:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text("{}")


def make_samples(prompt_length: int) -> list[Sample]:
    """Returns samples; hints are near the end of the prompt, before the few tokens that begin an answer."""
    rng = random.Random(prompt_length)
    words = lambda n: [rng.randrange(VOCABULARY) for _ in range(n)]  # noqa: E731
    samples = []
    for index in range(SAMPLES):
        prompt, tail, response = words(prompt_length - TAIL), words(TAIL), words(RESPONSE)
        samples.append(
            Sample(
                index=index,
                tokens=prompt + tail + response,
                response_length=RESPONSE,
                reward=rng.choice((1.0, -1.0)),
                teacher_tokens_candidates=[prompt + words(n) + tail + response for n in HINTS],
            )
        )
    return samples


def make_trainer(model: Path, threads: int, **changes: Any) -> FSDPTrainer:
    save = str(model / ("select" if changes else "rl"))
    common: dict[str, Any] = {"hf_checkpoint": str(model), "ref_load": str(model), "save": save}
    common |= {"train_threads": threads, "disable_rewards_normalization": True, "lr": 1e-5}
    return FSDPTrainer(Arguments(**common, **changes))


def measure(trainers: dict[str, FSDPTrainer], samples: list[Sample], updates: int) -> dict[str, list[float]]:
    """Returns the processor seconds of each update, after a warm-up update."""
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for number in range(updates + 1):
        for name, trainer in trainers.items():
            started = time.process_time()
            trainer.train(number, samples)
            if number:
                seconds[name].append(time.process_time() - started)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=15, help="updates of each side and case")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    select: dict[str, Any] = {
        "loss_spec_path": "openclaw_combine.loss:topk_select",
        "teacher_source": "trainer",
        "distill_topk": 4,
    }
    select |= {"distill_subset_mode": "student", "hint_selection": "sequence_optimal"}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder)
        write_model(model)
        trainers = {
            "rl": make_trainer(model, options.threads),
            "select": make_trainer(model, options.threads, **select),
        }
        for case, prompt_length in CASES.items():
            seconds = measure(trainers, make_samples(prompt_length), options.updates)
            rl, hybrid = (statistics.median(seconds[name]) for name in ("rl", "select"))
            ratios = [b / a for a, b in zip(seconds["rl"], seconds["select"], strict=True)]
            report = {"rl": round(rl, 4), "select": round(hybrid, 4), "ratio": round(hybrid / rl, 3)}
            spread = {"ratio_min": round(min(ratios), 3), "ratio_max": round(max(ratios), 3)}
            print(json.dumps({"case": case, **report, **spread, "updates": options.updates}), flush=True)
        trainers["rl"].close()


if __name__ == "__main__":
    main()
