"""Tests four processes (gloo) with optimizer states divided among copies, adapters and critics in parts, and resuming
of all of it.

They are forks of one process that has imported everything, as importing takes longer than what they compute.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from slime.gate.memory import KeptState
from tests.fakes.fixtures import MakeArgs, MakeSamples, MakeTrainer, RunRanks

TENSOR, PIPELINE = {"tensor_model_parallel_size": 2}, {"pipeline_model_parallel_size": 2}
CONTEXT = {"context_parallel_size": 2}
SHARED = {"use_distributed_optimizer": True}
LORA: dict[str, Any] = {"use_lora": True, "lora_rank": 4, "lora_alpha": 8.0, "lora_dropout": 0.0}
KL = {"use_kl_loss": True, "kl_loss_coef": 0.1}
TOPK = {
    "loss_spec_path": "openclaw_combine.loss:topk_select",
    "distill_topk": 4,
    "distill_subset_mode": "overlap",
}
JOBS: dict[str, dict[str, Any]] = {
    "shared_tensor": SHARED
    | TENSOR
    | KL
    | {"global_batch_size": 4, "weight_decay": 0.1, "average_steps": 0.5},
    "adapters_sequence": LORA | TENSOR | SHARED | {"sequence_parallel": True, "entropy_coef": 0.05},
    "adapters_pipeline": LORA | TENSOR | PIPELINE | TOPK | {"lora_target_modules": "q_proj,o_proj,down_proj"},
    "adapters_hybrid": LORA | TENSOR | SHARED | {"sequence_parallel": True},
    "adapters_context": LORA | SHARED | CONTEXT | KL | {"ref_update_interval": 1, "lora_rank": 2},
    "critic": SHARED | TENSOR | {"advantage_estimator": "ppo", "kl_coef": 0.1, "ref_update_interval": 2},
    "critic_pipeline": SHARED | PIPELINE | CONTEXT | {"advantage_estimator": "ppo", "lambd": 0.9},
}
OTHERS: dict[str, list[dict[str, Any]]] = {
    "shared_tensor": [TENSOR | SHARED, {}],
    "adapters_sequence": [TENSOR | SHARED | {"sequence_parallel": True}, PIPELINE | SHARED],
    "adapters_hybrid": [TENSOR | SHARED | {"sequence_parallel": True}, PIPELINE | SHARED],
    "adapters_context": [CONTEXT | SHARED],  # four ranks share two rows
}
"""Divisions in which a run is resumed, its own first."""
RANKS = """
import pickle, sys
import torch
from dataclasses import replace
from pathlib import Path
from slime.gate.memory import KeptState
from slime.training.megatron import MegatronTrainer
folder = sys.argv[1]
torch.set_num_threads(1)
jobs, others, rollouts = pickle.load(open(folder + "/order", "rb"))


def work(rank):
    # megatron-core gathers sequence-parallel tensors on "the current CUDA device".
    torch.cuda.current_device = lambda: torch.device("cpu")
    results = {}
    for name, args in jobs.items():
        trainer = MegatronTrainer(args, rank, 4, init_method=f"file://{folder}/meet")
        metrics = [trainer.train(i, samples) for i, samples in enumerate(rollouts[:2])]
        trainer.save(1, 2, 1, wait=False)  # written while the next rollout moves the weights
        steps = trainer.global_step
        states = sum(x.numel() for state in trainer.learner.optimizer.state.values() for x in state.values())
        kept = KeptState(trainer)
        metrics.append(trainer.train(2, rollouts[2]))
        kept.shrink(trainer, 0.5)
        trainer.finish_save()
        torch.distributed.barrier()  # the first rank names it when all have written
        results[name] = metrics, trainer.export_weights(f"{folder}/{name}_weights", 3), states
        if args.use_lora:
            write = trainer.adapter_writer()
            if rank == 0:
                write(Path(folder, f"{name}_adapter"))
        for number, flags in enumerate(others.get(name, ())):
            resumed = MegatronTrainer(replace(args, **flags), rank, 4)
            assert resumed.load().rollout_id == 1 and resumed.global_step == steps
            kept = KeptState(resumed)
            loss = resumed.train(2, rollouts[2])
            kept.shrink(resumed, 0.5)
            results[f"{name}/{number}"] = [loss], resumed.export_weights(f"{folder}/{name}_{number}", 3), 0
    pickle.dump(results, open(f"{folder}/result{rank}", "wb"))
    trainer.close()
"""
DIVISION = {
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "context_parallel_size": 1,
    "sequence_parallel": False,
    "use_distributed_optimizer": False,
}


def check_metrics(mine: list[dict[str, float]], single: list[dict[str, float]], name: str) -> None:
    for one, other in zip(mine, single, strict=True):
        for key in one.keys() - {"train_seconds"}:
            assert one[key] == pytest.approx(other[key], abs=1e-4, rel=1e-3), (name, key)


def check_weights(folder: Path, other: Path) -> None:
    tensors = load_file(other / "model.safetensors")
    for key, tensor in load_file(folder / "model.safetensors").items():
        assert_close(tensors[key], tensor, atol=1e-4, rtol=1e-3)


def test_sharded_states_adapters_and_critics_train_and_resume_like_one_process(
    make_args: MakeArgs,
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    run_ranks: RunRanks,
    folders: dict[str, str],
    tmp_path: Path,
) -> None:
    rollouts = [make_samples(count, seed=seed) for seed, count in enumerate((8, 5, 6))]
    for sample in (sample for samples in rollouts for sample in samples):
        sample.teacher_tokens_candidates = [[5, 9, *sample.tokens]]
    shared = {"lr": 1e-3, "teacher_source": "trainer", "hint_m": 1, "async_save": True}
    flags = {name: shared | job for name, job in JOBS.items()}
    flags["adapters_hybrid"] |= dict.fromkeys(("hf_checkpoint", "ref_load"), folders["qwen3_5"])
    jobs = {name: make_args(**job, save=str(tmp_path / name)) for name, job in flags.items()}
    others = {name: [DIVISION | flags for flags in many] for name, many in OTHERS.items()}
    results = run_ranks(RANKS, (jobs, others, rollouts))

    for name, job in flags.items():
        assert len({result[name][1] for result in results}) == 1, name
        one = make_trainer(**job | DIVISION)
        expected = [one.train(i, samples) for i, samples in enumerate(rollouts[:2])]
        kept = KeptState(one)
        expected.append(one.train(2, rollouts[2]))
        kept.shrink(one, 0.5)
        for result in results:
            check_metrics(result[name][0], expected, name)
        one.export_weights(str(tmp_path / "one"), 1)
        check_weights(tmp_path / f"{name}_weights", tmp_path / "one")
        if one.args.use_lora:
            one.adapter_writer()(tmp_path / "one_adapter")
            ours, theirs = (
                load_file(tmp_path / which / "adapter_model.safetensors")
                for which in (f"{name}_adapter", "one_adapter")
            )
            assert ours.keys() == theirs.keys()
            for key, tensor in theirs.items():
                assert_close(ours[key], tensor, atol=1e-4, rtol=1e-3)
        for number, flags in enumerate(OTHERS.get(name, ())):
            again = [result[f"{name}/{number}"] for result in results]
            check_metrics(again[0][0], expected[2:], name)
            check_weights(tmp_path / f"{name}_{number}", tmp_path / "one")
            if number == 0:
                assert {checksum for _, checksum, _ in again} == {results[0][name][1]}, (name, flags)
        if name in OTHERS:
            resumed = make_trainer(**job | DIVISION, save=str(tmp_path / name))
            assert resumed.load().rollout_id == 1
            check_metrics([resumed.train(2, rollouts[2])], expected[2:], name)
    numbers = sum(x.numel() for x in load_file(tmp_path / "shared_tensor_weights/model.safetensors").values())
    held = [result["shared_tensor"][2] for result in results]
    assert sum(held) == pytest.approx(2 * numbers, rel=0.1) and max(held) < 0.3 * sum(held)
