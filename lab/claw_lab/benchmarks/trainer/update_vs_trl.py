"""Compares one GRPO update here and in TRL's GRPOTrainer: time, peak memory and gradients, both measured in the same
run.

    bash lab/run.sh benchmarks.trainer.update_vs_trl --trl-python ENV/bin/python

ENV is a separate environment with TRL: `python -m venv ENV && ENV/bin/pip install torch==2.13.0 trl==1.16.0`. Both
sides train the same random Qwen3 in fp32 with the same AdamW on the same samples, with as many threads, one forward
and backward pass over all of them in one micro-batch, without generation. The two processes alternate, so that other
work of the machine affects both. Cases: 8 answers of 64 tokens to one prompt of 96; the same to 8 different prompts;
prompts and answers of 16 to 512 tokens in total. Prints one JSON line for each case.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TRL_SIDE = str(Path(__file__).with_name("update_trl.py"))
"""Script of the TRL process; it runs in an environment without this repository's packages."""
SAMPLES = 8
VOCABULARY = 4096
LENGTHS = (16, 60, 110, 160, 200, 256, 384, 512)


def write_model(folder: Path) -> int:
    """Saves a Qwen3 of 5.2 million random parameters with a tokenizer of as many words; returns their number."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w0").save_pretrained(folder)
    return model.num_parameters()


def make_samples(case: str) -> list[dict[str, Any]]:
    """Returns prompt ids, response ids and a reward for each sample."""
    rng = random.Random(case)
    words = lambda n: [rng.randrange(2, VOCABULARY) for _ in range(n)]  # noqa: E731
    rewards = [1.0, 0.0, 0.5, 1.0, 0.0, 0.25, 1.0, 0.0]
    if case == "spread":
        sizes = [(max(4, n * 2 // 5), n - max(4, n * 2 // 5)) for n in LENGTHS]
        pairs = [(words(prompt), words(response)) for prompt, response in sizes]
    else:
        shared = words(96)
        pairs = [(shared if case == "group" else words(96), words(64)) for _ in range(SAMPLES)]
    return [
        {"prompt": prompt, "response": response, "reward": reward}
        for (prompt, response), reward in zip(pairs, rewards, strict=True)
    ]


class Side:
    """A process that runs updates on request."""

    def __init__(self, command: list[str], settings: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [*command, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith('{"update"'):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise SystemExit(f"{self.process.args[1]} ended with {self.process.wait()}")  # type: ignore[index]

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=60)


def largest_difference(ours: str, theirs: str) -> float:
    """Returns the largest difference of two gradients over all tensors, relative to the largest entry of the
    tensor."""
    from safetensors.torch import load_file

    own, others = load_file(ours), load_file(theirs)
    if own.keys() != others.keys():
        raise SystemExit(f"gradients of different tensors: {sorted(own.keys() ^ others.keys())}")
    return max(float((own[k] - others[k]).abs().max() / others[k].abs().max()) for k in own)


def compare(case: str, args: argparse.Namespace, model: Path, folder: Path) -> dict[str, Any]:
    settings = {
        "model": str(model),
        "samples": make_samples(case),
        "threads": args.threads,
        "folder": str(folder),
    }
    sides = {
        "ours": Side([sys.executable, "-m", "claw_lab.benchmarks.trainer.update_ours"], settings),
        "trl": Side([args.trl_python, TRL_SIDE], settings),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(args.rounds + 1):
        for name, side in sides.items():
            seconds = side.ask({"updates": args.updates})["update"]
            times[name] += seconds if number else []  # the first round warms up
    peaks = {name: side.ask({"updates": 0}) for name, side in sides.items()}
    for side in sides.values():
        side.end()
    wall, work = (
        {name: statistics.median(v[i] for v in values) for name, values in times.items()} for i in (0, 1)
    )
    return {
        "case": case,
        "tokens": sum(len(s["prompt"]) + len(s["response"]) for s in settings["samples"]),
        "ours_ms": round(1000 * wall["ours"], 1),
        "trl_ms": round(1000 * wall["trl"], 1),
        "times_faster": round(wall["trl"] / wall["ours"], 2),
        "times_less_processor": round(work["trl"] / work["ours"], 2),
        "ours_peak_mb": peaks["ours"]["peak_mb"],
        "trl_peak_mb": peaks["trl"]["peak_mb"],
        "gradients_differ_by": largest_difference(*(str(folder / f"{name}.safetensors") for name in sides)),
        "updates_each": len(times["ours"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trl-python", required=True, help="python of an environment with trl")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6, help="rounds, in which both sides alternate")
    parser.add_argument("--updates", type=int, default=4, help="updates per round")
    parser.add_argument("--case", action="append", choices=("group", "distinct", "spread"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        parameters = write_model(model)
        print(json.dumps({"parameters": parameters, "threads": args.threads}), flush=True)
        for case in args.case or ("group", "distinct", "spread"):
            place = Path(folder) / case
            place.mkdir()
            print(json.dumps(compare(case, args, model, place)), flush=True)


if __name__ == "__main__":
    main()
