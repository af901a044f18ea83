"""The environment of the sections, and the lines that they report."""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from slime.arguments import Arguments
from slime.types import Sample

GIB = 2**30
EPSILON = 2.0**-8
"""Precision of bf16: a rounding changes a number by at most half of it, relatively."""
COMMON = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936}
SHAPES: dict[str, dict[str, int]] = {
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    },
    "small": COMMON | {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28},
    "large": COMMON
    | {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
}
SHAPES["medium"] = SHAPES["large"] | {"num_hidden_layers": 24}
"""Shapes of Qwen3: tiny, 0.6B, 4B, and two thirds of the 4B model's layers, whose weights, gradients and moments fit
a GPU of 80 GB."""
LARGE_GIB = 100
"""GPU memory from which the whole 4B model is trained, whose state alone takes 64 GiB."""


class Bench:
    """One run of the check.

    Args:
        work: folder for models and checkpoints, removed by the caller.
        versions: the same for weight versions, in memory as in a run if there is space.
        lines: the file of the report.
        tiny: a model of a few thousand parameters on the CPU, to see that every section runs.
    """

    def __init__(self, work: Path, versions: Path, lines: Path, tiny: bool) -> None:
        self.work, self.versions, self.lines, self.tiny = work, versions, lines, tiny
        self.device = torch.device("cpu" if tiny else "cuda")
        self.small, self.large = ("tiny", "tiny") if tiny else ("small", "large")
        if not tiny and torch.cuda.get_device_properties(0).total_memory < LARGE_GIB * GIB:
            self.large = "medium"
        self.began = time.monotonic()

    def report(self, section: str, **values: Any) -> None:
        """Prints one line and appends it to the file."""
        rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}
        line = json.dumps({"section": section, "at": round(time.monotonic() - self.began, 1), **rounded})
        print(line, flush=True)
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @cached_property
    def peak(self) -> float:
        """Measures the bf16 operations per second of a large matrix product."""
        size = 256 if self.tiny else 8192
        x = torch.randn(size, size, device=self.device, dtype=torch.bfloat16)
        self.timed(lambda: x @ x, 3)
        seconds, _ = self.timed(lambda: x @ x, 20)
        return 2 * size**3 / seconds

    def timed(self, call: Callable[[], Any], times: int = 1) -> tuple[float, Any]:
        """Returns the mean seconds of a call until the GPU has finished, and the last result."""
        self.wait()
        began = time.perf_counter()
        for _ in range(times):
            result = call()
        self.wait()
        return (time.perf_counter() - began) / times, result

    def wait(self) -> None:
        if not self.tiny:
            torch.cuda.synchronize()

    def fresh(self) -> None:
        """Frees unused memory, and resets the peak."""
        gc.collect()
        if not self.tiny:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def most(self) -> float | None:
        """Returns the peak of tensor memory since `fresh` in GiB."""
        return None if self.tiny else torch.cuda.max_memory_allocated() / GIB

    def model(self, shape: str) -> str:
        """Returns the folder of a random model, created once."""
        from transformers import Qwen3Config, Qwen3ForCausalLM

        folder = self.work / shape
        if not folder.exists():
            torch.manual_seed(0)
            with self.device:
                config = Qwen3Config(**SHAPES[shape], tie_word_embeddings=True, dtype=torch.bfloat16)
                Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
            (folder / "tokenizer_config.json").write_text("{}")
            self.fresh()
        return str(folder)

    def arguments(self, shape: str, **flags: Any) -> Arguments:
        """Returns the arguments of a run on this one device."""
        folder, gpus = self.model(shape), 0 if self.tiny else 1
        common: dict[str, Any] = {
            "hf_checkpoint": folder,
            "ref_load": folder,
            "save": str(self.work / f"save-{time.time_ns()}"),
            "disable_rewards_normalization": True,
            "lr": 1e-5,
            "actor_num_gpus_per_node": gpus,
            "rollout_num_gpus": gpus,
            "rollout_backend": "sglang",
            "bf16": True,
            "gradient_checkpointing": True,
            "log_probs_chunk_size": 16 if self.tiny else 1024,
            "max_tokens_per_gpu": 128 if self.tiny else 32768,
        }
        return Arguments(**(common | flags))

    def samples(self, shape: str, count: int, length: int, answer: int) -> list[Sample]:
        """Returns samples of at most `length` tokens and nearly as many, so that packs of the planned size are full;
        24 tokens in the tiny run."""
        length, answer = (24, 8) if self.tiny else (length, answer)
        rng, vocabulary = random.Random(0), SHAPES[shape]["vocab_size"]
        drawn = []
        for i in range(count):
            shorter = rng.randrange(max(4, length // 32))
            tokens = [rng.randrange(vocabulary) for _ in range(length - shorter)]
            drawn.append(
                Sample(
                    index=i,
                    group_index=i,
                    tokens=tokens,
                    response_length=answer,
                    loss_mask=[1] * answer,
                    reward=rng.choice((1.0, -1.0)),
                    temperature=1.0,
                )
            )
        return drawn

    def trainer(self, args: Arguments) -> Any:
        """Returns one loaded rank of the backend in the flags."""
        if args.train_backend == "megatron":
            from slime.training.megatron import MegatronTrainer as Trainer
        else:
            from slime.training.fsdp import FSDPTrainer as Trainer  # type: ignore[assignment]
        made = Trainer(args)
        made.load()
        return made


class Skip(Exception):
    """A section cannot run here; the message gives the reason."""


class Wrong(Exception):
    """A measured value is one that no correct program gives."""


def refuse(wrong: list[str], bound: float | None = None) -> None:
    """Raises Wrong, with the bound of the gaps, if the list has an entry."""
    if wrong:
        raise Wrong("; ".join(wrong) + ("" if bound is None else f" (at most {bound:.4f} is right)"))
