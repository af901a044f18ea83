"""Tests that recomputed activations and optimizer states in CPU memory change no numbers."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from slime.training.attention.kernels import packed_attention
from tests.fakes.fixtures import MakeSamples, MakeTrainer

AGAIN: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "nothing": ({}, (1, 1, 1, 1)),
    "every_layer": ({"gradient_checkpointing": True}, (2, 2, 2, 2)),
    "first_layers": (
        {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 1},
        (2, 1, 2, 1),
    ),
    "groups_of_layers": (
        {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 2},
        (2, 2, 2, 2),
    ),
    "attention": ({"recompute_granularity": "selective", "recompute_modules": "core_attn"}, (2, 2, 1, 1)),
    "feed_forward": ({"recompute_granularity": "selective", "recompute_modules": "mlp"}, (1, 1, 2, 2)),
}
"""Flags, and how often attention and feed-forward of two layers then run for one micro-batch."""


def count(runs: Counter[Any], module: torch.nn.Module, *_: object) -> None:
    runs[module] += 1


def counted(runs: Counter[Any], module: torch.nn.Module, *inputs: Any, **how: Any) -> Any:
    """Returns the CPU's kernel, which also counts its runs."""
    count(runs, module)
    return packed_attention(module, *inputs, **how)


@pytest.mark.parametrize("name", AGAIN)
def test_activation_recomputation_changes_no_result(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path, name: str
) -> None:
    flags, expected = AGAIN[name]
    weights = []
    for changes in ({}, flags):
        trainer = make_trainer(**changes, max_tokens_per_gpu=1000)
        layers = trainer.model.core.decoder.layers
        runs = Counter[Any]()
        for layer in layers:
            layer.self_attention.core_attention.kernel = partial(counted, runs)
            layer.mlp.linear_fc1.register_forward_hook(partial(count, runs))
        trainer.train(0, make_samples(6))
        found = [runs[layer.self_attention.core_attention] for layer in layers]
        found += [runs[layer.mlp.linear_fc1] for layer in layers]
        weights.append(trainer.export_weights(str(tmp_path / "out"), 1))
    assert tuple(found) == expected
    assert weights[0] == weights[1]


@pytest.mark.parametrize("bf16", [False, True])
def test_optimizer_states_in_cpu_memory_give_the_same_updates(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path, bf16: bool
) -> None:
    sums = []
    for apart in (False, True):
        changes = {"bf16": bf16, "fsdp_cpu_offload": apart, "save": str(tmp_path / f"apart_{apart}")}
        trainer = make_trainer(**changes)
        trainer.train(0, make_samples(6))
        trainer.save(0, 1, 0)
        resumed = make_trainer(**changes)
        resumed.load()
        sums += [one.train(1, make_samples(6, seed=1)) for one in (trainer, resumed)]
        sums += [one.export_weights(str(tmp_path / "out"), 2) for one in (trainer, resumed)]
        for piece in resumed.learner.gradients.masters.pieces:
            here = piece.of(piece.trained.parameter.detach())
            assert (here.data_ptr() != piece.master.data_ptr()) == (apart or bf16)
    assert sums[2] == sums[3] == sums[6] == sums[7]


@pytest.mark.parametrize(
    "more", [{}, {"entropy_coef": 0.1, "use_kl_loss": True, "kl_loss_coef": 0.1}], ids=["policy", "rich"]
)
def test_chunked_logits_change_no_result(
    make_trainer: MakeTrainer, make_samples: MakeSamples, more: dict[str, Any]
) -> None:
    found, widest = [], []
    for chunk in (-1, 5):
        trainer = make_trainer(**more, log_probs_chunk_size=chunk, max_tokens_per_gpu=1000)
        rows: list[int] = []
        trainer.model.core.output_layer.register_forward_hook(
            lambda _layer, given, _output, rows=rows: rows.append(len(given[0]))
        )
        metrics = trainer.train(0, make_samples(6))
        scores = trainer.log_probs(make_samples(4, seed=1))
        weights = {name: p.detach().clone() for name, p in trainer.model.core.named_parameters()}
        found.append((metrics, scores, weights))
        widest.append(max(rows))
    (whole, expected, weights), (mine, scores, others) = found
    assert widest[0] > 5 and widest[1] == 5
    for name in whole.keys() - {"train_seconds"}:
        assert mine[name] == pytest.approx(whole[name], rel=1e-4, abs=1e-5), name
    for ours, theirs in zip(scores, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
    for name, weight in weights.items():
        torch.testing.assert_close(others[name], weight, atol=3e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["qwen3", "qwen2_moe", "qwen3_5"])
def test_fused_layers_match_the_plain_ones(
    make_trainer: MakeTrainer, make_samples: MakeSamples, folders: dict[str, str], name: str
) -> None:
    """In fp32 except the order of sums; compiled functions run uncompiled."""
    found = []
    with torch.compiler.set_stance("force_eager"):
        for kind in ("off", "all"):
            trainer = make_trainer(hf_checkpoint=folders[name], fused_layers=kind)
            config = trainer.model.core.config
            assert config.bias_activation_fusion is config.bias_dropout_fusion is (kind == "all")
            metrics = [trainer.train(i, make_samples(6)) for i in range(2)]
            found.append((metrics, trainer.log_probs(make_samples(4, seed=1))))
    (expected, scores), (metrics, ours) = found
    for one, other in zip(expected, metrics, strict=True):
        for key in one.keys() - {"train_seconds"}:
            assert other[key] == pytest.approx(one[key], rel=1e-3, abs=1e-4), key
    for values, others in zip(scores, ours, strict=True):
        assert others == pytest.approx(values, abs=1e-3)
