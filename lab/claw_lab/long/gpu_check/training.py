"""Measures trainers: seconds and memory of a step against the plan, agreement of backends, cost of a version."""

from __future__ import annotations

import importlib.util
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from claw_lab.long.gpu_check.bench import EPSILON, GIB, Bench, Skip, refuse
from slime.plan.hardware import named_gpu
from slime.plan.memory import RUNTIME_PART, trainer_parts
from slime.plan.of_arguments import plan_of
from slime.plan.placement_plan import Batch, step_flops

LENGTH, ANSWER = 4096, 1024
AGREEMENT_BOUND = 8 * EPSILON
"""Each layer rounds its contribution; errors of layers grow like a random walk, of a hundred steps at most."""
LARGEST = 10
"""Largest ratio of a single difference to the mean difference."""


def fsdp(bench: Bench) -> None:
    """Measures three steps, a checkpoint saved and loaded, and weights and optimizer moved to the CPU and back."""
    made = train(bench, "fsdp", bench.arguments(bench.small), steps=3)
    checkpoint(bench, "fsdp", made)
    before = _allocated(bench)
    down, _ = bench.timed(lambda: _offload(made, "to_cpu"))
    left = _allocated(bench)
    up, _ = bench.timed(lambda: _offload(made, "to_device"))
    bench.report("fsdp.offload", down_s=down, up_s=up, before_gib=before, left_gib=left)
    made.train(9, bench.samples(bench.small, 2, LENGTH, ANSWER))
    made.close()


def fsdp_fused(bench: Bench) -> None:
    """Measures the same steps with plain layers and with all fused kernels."""
    for kind in ("off", "all"):
        with torch.compiler.set_stance("force_eager" if bench.tiny else "default"):
            train(bench, f"fsdp_fused.{kind}", bench.arguments(bench.small, fused_layers=kind)).close()
        bench.fresh()


def fsdp_cpu_offload(bench: Bench) -> None:
    args = bench.arguments(bench.small, fsdp_cpu_offload=not bench.tiny)
    train(bench, "fsdp_cpu_offload", args).close()


def megatron(bench: Bench) -> None:
    """Measures the same with megatron-core, with logits at once and in chunks."""
    if importlib.util.find_spec("megatron") is None:
        raise Skip("megatron-core is not installed")
    for chunk in (-1, 16 if bench.tiny else 1024):
        args = bench.arguments(bench.small, train_backend="megatron", log_probs_chunk_size=chunk)
        made = train(bench, f"megatron.chunk{chunk}", args)
        checkpoint(bench, f"megatron.chunk{chunk}", made)
        made.close()
        del made
        bench.fresh()


def agreement(bench: Bench) -> None:
    """Measures differences of log-probs in bf16 between backends and attention kernels, and to transformers in fp32.

    Raises Wrong if their mean exceeds `AGREEMENT_BOUND` times the spread of the log-probs, or one of them is
    `LARGEST` times the mean.
    """
    from transformers import AutoModelForCausalLM

    samples = bench.samples(bench.small, 4, 512, 128)
    tensors: dict[str, torch.Tensor] = {}
    kernels = ("sdpa",) if bench.tiny else ("sdpa", "varlen", "flex_attention")
    ways = [("fsdp", kernel) for kernel in kernels]
    ways += [("megatron", ways[-1][1])] if importlib.util.find_spec("megatron") else []
    for backend, kernel in ways:
        made = bench.trainer(bench.arguments(bench.small, train_backend=backend, attn_implementation=kernel))
        tensors[f"{backend} {kernel}"] = torch.tensor([x for one in made.log_probs(samples) for x in one])
        made.close()
        del made
        bench.fresh()
    plain = AutoModelForCausalLM.from_pretrained(
        bench.model(bench.small), dtype=torch.float32, trust_remote_code=False
    )
    plain.to(bench.device).eval()
    values: list[float] = []
    for sample in samples:
        with torch.no_grad():
            table = plain(torch.tensor([sample.tokens], device=bench.device)).logits[0].log_softmax(-1)
        rows = table[sample.prompt_length - 1 : -1]
        ids = torch.tensor(sample.tokens[sample.prompt_length :], device=bench.device)
        values += rows.gather(-1, ids[:, None]).flatten().tolist()
    exact, wrong = torch.tensor(values), list[str]()
    bound = AGREEMENT_BOUND * float(exact.std())
    for name, log_probs in tensors.items():
        gap = (log_probs - exact).abs()
        mean, largest = float(gap.mean()), float(gap.max())
        bench.report("agreement", of=name, to="transformers fp32", mean=mean, largest=largest)
        if not (mean <= bound and largest <= LARGEST * bound):
            wrong.append(f"{name}: {mean:.4f} on average, {largest:.4f} at most")
    refuse(wrong, bound)


def qlora(bench: Bench) -> None:
    """Measures 4-bit weights with adapters: steps, then the cost of a version."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise Skip("bitsandbytes is not installed")
    flags: dict[str, Any] = {"load_in_4bit": True, "use_lora": True, "lora_rank": 16, "lora_alpha": 32.0}
    made = train(bench, "qlora", bench.arguments(bench.large, lora_dropout=0.0, **flags))
    version(bench, "qlora", made)
    made.close()


def large(bench: Bench) -> None:
    """Measures the larger model: memory, share of the peak rate, and the seconds of a new version."""
    made = train(bench, "large", bench.arguments(bench.large), steps=3, length=8192)
    version(bench, "large", made)
    made.close()


def train(bench: Bench, name: str, args: Any, steps: int = 2, length: int = LENGTH) -> Any:
    """Loads and trains; reports seconds, tokens per second, the share of the measured peak rate (including attention
    and recomputation by checkpoints), and memory against the plan."""
    bench.fresh()
    seconds, made = bench.timed(lambda: bench.trainer(args))
    bench.report(f"{name}.load", seconds=seconds, most_gib=bench.most())
    shape = Path(args.hf_checkpoint).name
    samples = bench.samples(shape, 8, length, ANSWER)
    tokens = sum(len(sample.tokens) for sample in samples)
    plan = plan_of(replace(args, actor_num_gpus_per_node=1), 2, named_gpu("H200"))
    assert plan is not None
    parts, peak = trainer_parts(plan.trainer), bench.peak
    # the same parts as `most` counts
    planned = sum(size for part, size in parts.items() if part != RUNTIME_PART) / GIB
    flops = step_flops(plan.trainer, Batch(len(samples), tokens // len(samples), forwards=0))
    for step in range(steps):
        bench.fresh()
        seconds, metrics = bench.timed(lambda step=step: made.train(step, samples))  # type: ignore[misc]
        most = bench.most()
        bench.report(
            f"{name}.step",
            step=step,
            seconds=seconds,
            tokens_per_s=tokens / seconds,
            share_of_peak=flops / seconds / peak,
            loss=metrics["loss"],
            grad_norm=metrics["grad_norm"],
            most_gib=most,
            planned_gib=planned,
            plan_over_most=None if most is None else planned / most,
        )
    return made


def checkpoint(bench: Bench, name: str, made: Any) -> None:
    """Saves and loads a checkpoint, which contains the random state of the device."""
    save, _ = bench.timed(lambda: made.save(1, 1, 0))
    load, state = bench.timed(made.load)
    bench.report(f"{name}.checkpoint", save_s=save, load_s=load, rollout_id=state.rollout_id)


def version(bench: Bench, name: str, made: Any) -> None:
    """Measures the steps from the trainer's weights to a folder for the engine, the driver's check, and the
    gate's."""
    from slime.gate.files import measure_files
    from slime.weights.artifact import read_artifact

    folder = bench.versions / f"{name}-version"
    export, _ = bench.timed(lambda: made.export_weights(str(folder), 1))
    read, _ = bench.timed(lambda: read_artifact(str(folder)))
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1e9
    began = time.process_time()
    measure_files(str(folder), str(folder))
    gate = time.process_time() - began
    bench.report(f"{name}.version", gb=size, export_s=export, driver_read_s=read, gate_files_cpu_s=gate)
    shutil.rmtree(folder)


def _offload(made: Any, where: str) -> None:
    from slime.training.fsdp import offload

    if where == "to_cpu":
        offload.to_cpu(made.parts)
    else:
        offload.to_device(made.parts, made.device)


def _allocated(bench: Bench) -> float | None:
    return None if bench.tiny else torch.cuda.memory_allocated() / GIB
