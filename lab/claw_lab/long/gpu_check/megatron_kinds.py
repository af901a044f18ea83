"""Checks Megatron's layers of models that are not dense: mixtures of experts, and linear attention next to full
attention."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import linear, silu

from claw_lab.long.gpu_check.bench import EPSILON, GIB, SHAPES, Bench, Skip
from slime.plan.hardware import named_gpu
from slime.plan.memory import RUNTIME_PART, trainer_parts
from slime.plan.of_arguments import plan_of
from slime.training.core.packing import pack

LENGTH, ANSWER = 4096, 1024
FAR = 0.1
"""Mean difference of bf16 log-probs from transformers in fp32 above which the layers compute something else."""


def megatron_moe(bench: Bench) -> None:
    """Checks a mixture of experts: steps against the memory plan, log-probs, experts without tokens, and a filler
    pack."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    sizes = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    if not bench.tiny:
        sizes = {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
    config = Qwen3MoeConfig(**_shape(bench), **sizes, norm_topk_prob=True, tie_word_embeddings=False)
    made = _train(bench, "megatron_moe", Qwen3MoeForCausalLM, config)
    _without_rows(bench, made.model.core.decoder.layers[0].mlp.experts)
    _filler(bench, "megatron_moe", made)
    made.close()


def megatron_hybrid(bench: Bench) -> None:
    """Checks a model with linear attention in every other layer in the same way."""
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    width = 16 if bench.tiny else 128
    config = Qwen3_5TextConfig(
        **_shape(bench),
        linear_num_key_heads=2 if bench.tiny else 16,
        linear_num_value_heads=4 if bench.tiny else 16,
        linear_key_head_dim=width,
        linear_value_head_dim=width,
        full_attention_interval=2,
        tie_word_embeddings=False,
    )
    made = _train(bench, "megatron_hybrid", Qwen3_5ForCausalLM, config)
    _filler(bench, "megatron_hybrid", made)
    made.close()


def _shape(bench: Bench) -> dict[str, int]:
    return SHAPES[bench.small] | {"num_hidden_layers": 2 if bench.tiny else 8}


def _train(bench: Bench, name: str, kind: Any, config: Any) -> Any:
    """Trains two steps of a random model of this kind, after comparing its log-probs with those of transformers."""
    if importlib.util.find_spec("megatron") is None:
        raise Skip("megatron-core is not installed")
    folder = bench.work / name
    torch.manual_seed(0)
    with bench.device:
        kind(config).to(torch.bfloat16).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text("{}")
    flags = {"hf_checkpoint": str(folder), "ref_load": str(folder), "train_backend": "megatron"}
    args = bench.arguments(bench.small, **flags)
    made = bench.trainer(args)
    _compare(bench, name, made, kind)
    plan = plan_of(replace(args, actor_num_gpus_per_node=1), 2, named_gpu("H200"))
    assert plan is not None
    parts = trainer_parts(plan.trainer)
    planned = sum(size for part, size in parts.items() if part != RUNTIME_PART) / GIB
    samples = bench.samples(bench.small, 8, LENGTH, ANSWER)
    for step in range(2):
        bench.fresh()
        seconds, metrics = bench.timed(lambda step=step: made.train(step, samples))  # type: ignore[misc]
        values = {key: metrics[key] for key in ("loss", "grad_norm")}
        most = bench.most()
        bench.report(f"{name}.step", step=step, seconds=seconds, most_gib=most, planned_gib=planned, **values)
    return made


def _compare(bench: Bench, name: str, made: Any, kind: Any) -> None:
    samples = bench.samples(bench.small, 2, 512, 128)
    log_probs = torch.tensor([x for one in made.log_probs(samples) for x in one])
    plain = kind.from_pretrained(bench.work / name, dtype=torch.float32).to(bench.device).eval()
    expected = []
    for sample in samples:
        ids = torch.tensor([sample.tokens], device=bench.device)
        with torch.no_grad():
            table = plain(ids).logits[0].log_softmax(-1)[sample.prompt_length - 1 : -1]
        expected.append(table.gather(-1, ids[0, sample.prompt_length :, None]).flatten().cpu())
    gap = (log_probs - torch.cat(expected)).abs()
    bench.report(f"{name}.agreement", mean=float(gap.mean()), largest=float(gap.max()))
    assert float(gap.mean()) < FAR


def _without_rows(bench: Bench, experts: Any) -> None:
    """Compares output and gradients with plain products if only the second expert has rows, and if none has."""
    count, _, hidden = experts.gate_up.shape
    for size in (0, 1, 33):
        rows = torch.randn(size, hidden, device=bench.device, dtype=experts.gate_up.dtype, requires_grad=True)
        counts = torch.zeros(count, dtype=torch.long, device=bench.device)
        counts[1] = size
        output = experts(rows, counts)
        gate, up = linear(rows, experts.gate_up[1]).chunk(2, -1)
        expected = linear(silu(gate) * up, experts.down[1])
        gaps = SimpleNamespace(output=_gap(output, expected))
        weights = rows, experts.gate_up, experts.down
        pairs = (torch.autograd.grad(x, weights, torch.ones_like(x)) for x in (output, expected))
        gaps.gradients = max(_gap(*pair) for pair in zip(*pairs, strict=True))
        bench.report("megatron_moe.without_rows", rows=size, **vars(gaps))
        assert max(vars(gaps).values()) <= 8 * EPSILON


def _gap(log_probs: torch.Tensor, expected: torch.Tensor) -> float:
    """Returns the relative difference; 0 for two empty or zero tensors, infinity for non-finite numbers."""
    if not log_probs.numel():
        return 0.0
    scale = float(expected.float().norm()) or 1.0
    gap = float((log_probs.float() - expected.float()).norm()) / scale
    return gap if gap == gap else float("inf")


def _filler(bench: Bench, name: str, made: Any) -> None:
    """Checks forward and backward of the pack of a rank without samples: all is finite, and its gradient is zero."""
    packed = pack([], bench.device)
    made.learner.clear()
    made.learner.accumulate([packed], lambda _, pack_, seen: 0.0 * seen.log_probs(pack_.targets).sum())
    largest = max(float(each.gradient.abs().max()) for each in made.learner.gradients.all)
    made.learner.clear()
    bench.report(f"{name}.filler", largest_gradient=largest)
    assert largest == 0.0
