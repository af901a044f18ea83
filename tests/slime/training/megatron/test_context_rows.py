"""Tests four processes (gloo) with context parallelism: each computes the output head of its own tokens, and all get
the same losses.

All is computed in float64, so that one process gives the same except the last digits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.fakes.fixtures import MakeArgs, MakeSamples, RunRanks

DIVISIONS: dict[str, dict[str, Any]] = {
    "whole": {},
    "context": {"context_parallel_size": 4},
    "context_chunked": {"context_parallel_size": 2, "log_probs_chunk_size": 5},
    "context_tensor": {"context_parallel_size": 2, "tensor_model_parallel_size": 2},
    "context_sequence": {
        "context_parallel_size": 2,
        "tensor_model_parallel_size": 2,
        "sequence_parallel": True,
        "log_probs_chunk_size": 7,
    },
    "context_pipeline": {"context_parallel_size": 2, "pipeline_model_parallel_size": 2},
}
RANKS = """
import pickle, sys
import torch
from slime.training.core.packing import pack
from slime.training.megatron import MegatronTrainer, loading
folder = sys.argv[1]
torch.set_num_threads(1)
jobs, samples, hinted = pickle.load(open(folder + "/order", "rb"))


def objective(_, packed, dist):
    '''Of whole sequences, of the entropy and of likely ids.'''
    said = dist.log_probs(packed.targets)
    means = torch.stack([part.mean() for part in said.split(packed.counts)])
    likely = dist.log_probs(dist.topk(3)[1])
    return means.exp().sum() + dist.entropy().square().sum() + likely.square().mean()


def gradient_of(trainer, packs):
    '''By Hugging Face's names, gathered as weights are.'''
    trainer.learner.accumulate(packs, objective)
    for each in trainer.learner.gradients.all:
        each.parameter.data = each.gradient
    return {name: tensor / trainer.replicas for name, tensor in trainer.whole_weights(None).tensors}


def work(rank):
    # megatron-core gathers sequence-parallel tensors on "the current CUDA device".
    torch.cuda.current_device = lambda: torch.device("cpu")
    loading.computing_dtype = lambda *_: torch.float64
    results = {}
    for name, args in jobs.items():
        trainer = MegatronTrainer(args, rank, 4, init_method=f"file://{folder}/meet")
        model, rows = trainer.model, []
        if model.core.post_process:
            model.core.output_layer.register_forward_pre_hook(lambda _layer, given: rows.append(len(given[0])))
        plain, other = (pack(which, torch.device("cpu")) for which in (samples, hinted))
        with torch.no_grad():
            dist = model.distribution(plain)
            dist.log_probs(plain.targets)
            seen = sum(rows)
            guided = model.distribution(other).guided(dist, 1.5)
            said = dist.logsumexp(), *dist.topk(4), guided.log_probs(plain.targets), guided.entropy()
        packs = [pack(part, torch.device("cpu")) for part in (samples[:2], samples[2:])]
        gradient = gradient_of(trainer, packs)
        results[name] = seen, said, gradient
    pickle.dump(results, open(f"{folder}/result{rank}", "wb"))
    trainer.close()
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=63,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        initializer_range=0.2,
        tie_word_embeddings=False,
    )
    Qwen3ForCausalLM(config).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text("{}")
    return str(tmp_path / "model")


def test_each_rank_computes_the_logits_of_its_own_tokens_and_gradients_are_those_of_one_process(
    make_args: MakeArgs, make_samples: MakeSamples, folder: str, run_ranks: RunRanks
) -> None:
    samples, hinted = make_samples(6), make_samples(6)
    for number, (sample, other) in enumerate(zip(samples, hinted, strict=True)):
        sample.tokens = [number, *sample.tokens]  # no prompt is shared
        other.tokens = [7] * 9 * (number % 2) + sample.tokens
    jobs = {name: make_args(hf_checkpoint=folder, **sizes) for name, sizes in DIVISIONS.items()}
    results = run_ranks(RANKS, (jobs, samples, hinted))

    targets = sum(sum(sample.mask) for sample in samples)
    tokens = sum(len(sample.tokens) for sample in samples)
    for name, sizes in DIVISIONS.items():
        ranks = sizes.get("context_parallel_size", 1)
        rows = [result[name][0] for result in results]
        assert sum(rows) * sizes.get("pipeline_model_parallel_size", 1) * ranks == 4 * targets, name
        assert max(rows) <= -(-tokens // ranks) + 1 and (ranks == 1 or max(rows) < 0.7 * targets), name
        for _, said, _ in (result[name] for result in results):
            for mine, single in zip(said, results[0]["whole"][1], strict=True):
                assert_close(mine, single, atol=1e-12, rtol=1e-12)
        gradients = results[0][name][2]
        for key, expected in results[0]["whole"][2].items():
            assert (gradients[key] - expected).norm() <= 1e-13 * expected.norm(), (name, key)
