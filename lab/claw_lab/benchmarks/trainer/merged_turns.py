"""Compares training the turns of one session together with training them one by one: processor seconds, peak memory,
growth with the number of turns.

    bash lab/run.sh benchmarks.trainer.merged_turns --turns 2 4 8 16 32 --system 600 --new 60

A random Qwen3 of 5 million parameters takes one optimizer step on a CPU, one thread. Prints one JSON line for each
measurement, then one with ratios and exponents. Memory is the peak above the memory before the step. `longest` is a
step on the last turn alone. `rendered again`: prompts hold other tokens than the sampled ones, so each answer is a
branch. `apart`: samples without common tokens.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from slime.arguments import Arguments
from slime.training.fsdp import FSDPTrainer
from slime.types import Sample

VOCABULARY = 2048


def write_model(folder: str) -> None:
    """Saves a Qwen3 of 5 million random parameters, without a tokenizer."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6, "head_dim": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen3Config(vocab_size=VOCABULARY, tie_word_embeddings=True, **shape, **heads)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    (Path(folder) / "tokenizer_config.json").write_text("{}")


def session(turns: int, system: int, new: int, again: bool = False) -> list[Sample]:
    """Returns turns of a question and an answer, half of `new` tokens each, after a system prompt. `again`: answers
    end in the histories with another token than the sampled one."""
    chance = random.Random(0)

    def words(count: int) -> list[int]:
        return [chance.randrange(VOCABULARY) for _ in range(count)]

    history, samples = words(system), list[Sample]()
    for turn in range(turns):
        prompt, answer = history + words(new - new // 2), words(new // 2)
        samples.append(sample(turn, prompt + answer, len(answer)))
        history = prompt + ([*answer[:-1], VOCABULARY - 1] if again else answer)
    return samples


def sample(number: int, tokens: list[int], answer: int) -> Sample:
    """Returns a sample with its own reward."""
    reward = (1.0, -1.0, 0.5)[number % 3]
    return Sample(index=number, group_index=number, tokens=tokens, response_length=answer, reward=reward)


def strangers(count: int, length: int) -> list[Sample]:
    """Returns samples of about equal lengths without common tokens."""
    chance = random.Random(1)
    lengths = [chance.randint(length // 2, length) for _ in range(count)]
    return [
        sample(i, [chance.randrange(VOCABULARY) for _ in range(tokens)], tokens // 3)
        for i, tokens in enumerate(lengths)
    ]


class Bench:
    """One trainer that merges turns and one that does not, of the same model.

    Args:
        max_tokens: of a micro-batch.
    """

    def __init__(self, folder: str, max_tokens: int) -> None:
        torch.set_num_threads(1)
        self.trainers = {}
        for merge in (True, False):
            args = Arguments(hf_checkpoint=folder, ref_load=folder, save="unused", lr=1e-6)
            args.disable_rewards_normalization, args.max_tokens_per_gpu = True, max_tokens
            args.merge_prefixes = merge
            self.trainers[merge] = FSDPTrainer(args)

    def measured(self, samples: Sequence[Sample], merge: bool) -> tuple[float, float]:
        """Returns the processor seconds of a step, and its peak in MiB above the memory before it."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before, start = _status("VmRSS"), time.process_time()
        self.trainers[merge].train(0, samples)
        return time.process_time() - start, _status("VmHWM") - before

    def report(self, kind: str, samples: Sequence[Sample], merge: bool, **how: Any) -> tuple[float, float]:
        """Measures, prints a line and returns the result."""
        seconds, memory = self.measured(samples, merge)
        row = {"kind": kind, "merged": merge, **how, "seconds": round(seconds, 2), "MiB": round(memory)}
        print(json.dumps(row), flush=True)
        return seconds, memory


def _status(name: str) -> float:
    """Returns the MiB of this process under one of the kernel's names."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def exponent(costs: dict[int, float]) -> float:
    """Returns the exponent of the power law of the number of turns that fits the costs best."""
    xs, ys = [math.log(turns) for turns in costs], [math.log(cost) for cost in costs.values()]
    middle = statistics.fmean(xs)
    spread = sum((x - middle) ** 2 for x in xs)
    return sum((x - middle) * y for x, y in zip(xs, ys, strict=True)) / spread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--system", type=int, default=3000, help="tokens of the system prompt")
    parser.add_argument("--new", type=int, default=300, help="new tokens of a turn")
    parser.add_argument("--apart-up-to", type=int, default=32, help="most turns trained separately")
    parser.add_argument("--max-tokens", type=int, default=8192, help="--max-tokens-per-gpu")
    parser.add_argument("--repeats", type=int, default=5, help="runs with samples without common tokens")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder)
        bench = Bench(folder, args.max_tokens)
        shape = (args.system, args.new)
        for merge in (True, False):
            bench.measured(session(2, *shape), merge)
        merged, separate, result = dict[int, float](), dict[int, float](), dict[str, Any]()
        for turns in args.turns:
            samples = session(turns, *shape)
            merged[turns], peak = bench.report("turns", samples, True, turns=turns)
            if turns <= args.apart_up_to:
                separate[turns], _ = bench.report("turns", samples, False, turns=turns)
                result["times_faster"] = round(separate[turns] / merged[turns], 2)
                _, longest = bench.report("longest", samples[-1:], False, turns=turns)
                result["memory_of_longest"] = round(peak / longest, 2)
                branched, _ = bench.report(
                    "rendered again", session(turns, *shape, again=True), True, turns=turns
                )
                result["times_faster_rendered_again"] = round(separate[turns] / branched, 2)
        result["exponent_merged"] = round(exponent(merged), 2)
        result["exponent_one_by_one"] = round(exponent(separate), 2)
        others = strangers(16, args.system)
        pairs = [
            [bench.report("apart", others, merge)[0] for merge in (True, False)] for _ in range(args.repeats)
        ]
        result["nothing_in_common"] = round(statistics.median(one / two for one, two in pairs), 3)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
