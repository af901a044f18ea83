"""Tests four processes (gloo) in every division of the model: logits, gradients and training equal those of one
process.

They are forks of one process that has imported everything, as importing takes longer than what they compute.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AutoConfig, AutoModelForCausalLM

from slime.plan.division import Division
from slime.plan.shape import shape_of
from slime.utils.decoders import language_part
from tests.fakes.fixtures import GradientsOf, MakeArgs, MakeSamples, MakeTrainer, RunRanks

DIVISIONS: dict[str, dict[str, int]] = {
    "tensor": {"tensor_model_parallel_size": 2, "log_probs_chunk_size": 3},
    "pipeline": {"pipeline_model_parallel_size": 2, "log_probs_chunk_size": 4},
    "context": {"context_parallel_size": 2, "log_probs_chunk_size": 3},
    "context_pipeline": {"context_parallel_size": 2, "pipeline_model_parallel_size": 2},
    "tensor_pipeline": {
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2,
        "log_probs_chunk_size": 5,
    },
    "tensor_sequence": {"tensor_model_parallel_size": 2, "sequence_parallel": True},
    "data": {},
    "experts": {"expert_model_parallel_size": 2},
    "tensor_experts": {"tensor_model_parallel_size": 2, "expert_model_parallel_size": 4},
    "sequence_experts": {
        "tensor_model_parallel_size": 2,
        "sequence_parallel": True,
        "expert_model_parallel_size": 2,
    },
    "pipeline_experts": {"pipeline_model_parallel_size": 2, "expert_model_parallel_size": 2},
    "context_experts": {"context_parallel_size": 2, "expert_model_parallel_size": 4},
    "shared_experts": {"expert_model_parallel_size": 2, "use_distributed_optimizer": True},
    "longer_first_stage": {"pipeline_model_parallel_size": 2, "decoder_last_pipeline_num_layers": 1},
    "hybrid_tensor_context": {"tensor_model_parallel_size": 2, "context_parallel_size": 2},
    "hybrid_pipeline_shared": {"pipeline_model_parallel_size": 2, "use_distributed_optimizer": True},
    "hybrid_sequence_pipeline": {
        "tensor_model_parallel_size": 2,
        "sequence_parallel": True,
        "pipeline_model_parallel_size": 2,
    },
}
LOSSES: dict[str, dict[str, Any]] = {
    "tensor": {"use_kl_loss": True, "kl_loss_coef": 0.1, "entropy_coef": 0.05, "global_batch_size": 4},
    "pipeline": {
        "loss_spec_path": "openclaw_opd.loss:opd_topk",
        "distill_topk": 4,
        "distill_subset_mode": "student",
    },
    "context": {
        "advantage_estimator": "reinforce_plus_plus",
        "normalize_advantages": True,
        "calculate_per_token_loss": True,
    },
    "context_pipeline": {
        "loss_spec_path": "openclaw_combine.loss:topk_select",
        "distill_topk": 4,
        "distill_subset_mode": "overlap",
        "teacher_guidance": 1.5,
        "global_batch_size": 4,
    },
    "tensor_pipeline": {
        "loss_spec_path": "openclaw_combine.loss:topk_select",
        "distill_topk": 4,
        "distill_subset_mode": "overlap",
        "teacher_guidance": 1.5,
        "entropy_coef": 0.05,
        "use_kl_loss": True,
        "kl_loss_coef": 0.1,
        "ref_update_interval": 1,
        "global_batch_size": 4,
    },
    "tensor_sequence": {"advantage_estimator": "gspo"},
    "data": {"loss_spec_path": "openclaw_combine.loss:combine", "gradient_checkpointing": True},
    "experts": {"use_kl_loss": True, "kl_loss_coef": 0.1, "global_batch_size": 4},
    "tensor_experts": {"gradient_checkpointing": True},
    "sequence_experts": {"advantage_estimator": "gspo"},
    "pipeline_experts": {
        "loss_spec_path": "openclaw_opd.loss:opd_topk",
        "distill_topk": 4,
        "distill_subset_mode": "student",
    },
    "context_experts": {"calculate_per_token_loss": True},
    "shared_experts": {"entropy_coef": 0.05, "global_batch_size": 4},
    "longer_first_stage": {"entropy_coef": 0.05, "gradient_checkpointing": True},
    "hybrid_tensor_context": {"use_kl_loss": True, "kl_loss_coef": 0.1, "global_batch_size": 4},
    "hybrid_pipeline_shared": {"calculate_per_token_loss": True},
    "hybrid_sequence_pipeline": {
        "loss_spec_path": "openclaw_combine.loss:combine",
        "gradient_checkpointing": True,
    },
}
MODELS = {"pipeline": "qwen2", "context": "llama", "data": "qwen2"}
MODELS |= dict.fromkeys(("experts", "shared_experts", "pipeline_experts", "context_experts"), "qwen3_moe")
MODELS |= dict.fromkeys(("tensor_experts", "sequence_experts"), "qwen2_moe")
MODELS |= dict.fromkeys(("hybrid_tensor_context", "hybrid_sequence_pipeline"), "qwen3_5_vision")
MODELS |= {"hybrid_pipeline_shared": "qwen3_5", "longer_first_stage": "qwen3_moe_sparse"}
RANKS = """
import pickle, sys
import torch
from dataclasses import replace
from slime.training.core.packing import pack
from slime.training.megatron import MegatronTrainer
from slime.errors import TrainError
folder = sys.argv[1]
torch.set_num_threads(1)
jobs, rollouts = pickle.load(open(folder + "/order", "rb"))


def gradient_of(trainer, samples):
    '''Of an objective over three micro-batches, by Hugging Face's names, gathered as weights are.'''
    packs = [pack(part, torch.device("cpu")) for part in (samples[:2], samples[2:5], samples[5:])]
    objective = lambda _, packed, dist: dist.log_probs(packed.targets).square().sum() + dist.entropy().sum()
    trainer.learner.accumulate(packs, objective)
    trained = trainer.learner.gradients.all
    kept = [each.parameter.data for each in trained]
    for each in trained:
        each.parameter.data = each.gradient
    found = {name: tensor.clone() for name, tensor in trainer.whole_weights(None).tensors}
    for each, data in zip(trained, kept):
        each.parameter.data = data
    trainer.learner.clear()
    return {name: gradient / trainer.replicas for name, gradient in found.items()}


def work(rank):
    # megatron-core gathers sequence-parallel tensors on "the current CUDA device".
    torch.cuda.current_device = lambda: torch.device("cpu")
    results = {}
    for name, args in jobs.items():
        trainer = MegatronTrainer(args, rank, 4, init_method=f"file://{folder}/meet")
        trainer.load()
        first = trainer.log_probs(rollouts[0])
        gradient = None if args.use_distributed_optimizer else gradient_of(trainer, rollouts[0])
        metrics = [trainer.train(i, samples) for i, samples in enumerate(rollouts)]
        checksum = trainer.export_weights(f"{folder}/{name}_weights", 1)
        trainer.save(len(rollouts) - 1, 1, 0)
        results[name] = first, gradient, metrics, checksum
        results["numbers of " + name] = sum(p.numel() for p in trainer.model.parameters())
    saved = jobs["tensor_pipeline"]
    for tensor, pipeline in ((2, 2), (1, 2), (2, 1)):
        sizes = {"tensor_model_parallel_size": tensor, "pipeline_model_parallel_size": pipeline}
        resumed = MegatronTrainer(replace(saved, **sizes), rank, 4)
        assert resumed.load().rollout_id == 1
        assert resumed.export_weights(f"{folder}/again", 1) == results["tensor_pipeline"][3]
        results[f"resumed in {tensor} x {pipeline}"] = resumed.train(2, rollouts[0])["loss"]
    for sample in rollouts[0]:
        sample.reward = 3e38
    try:
        trainer.train(9, rollouts[0])
    except TrainError as error:
        results["refused"] = str(error)
    pickle.dump(results, open(f"{folder}/result{rank}", "wb"))
    trainer.close()
"""


def rollouts_of(make_samples: MakeSamples) -> list[list[Any]]:
    """Returns two rollouts with hints in every sample; the second one leaves a rank without a sample."""
    found = [make_samples(8), make_samples(3, seed=2)]
    for sample in (sample for samples in found for sample in samples):
        sample.teacher_tokens_candidates = [[5, 9, *sample.tokens], [1, 2, 3, 4, *sample.tokens]]
    return found


def check_gradient(
    found: dict[str, torch.Tensor],
    folder: str,
    samples: list[Any],
    gradients_of: GradientsOf,
    near: Callable[[str], float],
) -> None:
    """Compares with the same objective on transformers' model, one sample at a time."""
    config = language_part(AutoConfig.from_pretrained(folder))
    how = {"dtype": torch.float32, "attn_implementation": "eager"}
    model = AutoModelForCausalLM.from_pretrained(folder, config=config, **how)
    for sample in samples:
        logits = model(torch.tensor([sample.tokens])).logits[0] / sample.temperature
        rows = torch.log_softmax(logits, -1)[sample.prompt_length - 1 : -1][torch.tensor(sample.mask).bool()]
        targets = torch.tensor(sample.tokens[sample.prompt_length :])[torch.tensor(sample.mask).bool()]
        (rows.gather(-1, targets[:, None]).square().sum() - (rows.exp() * rows).sum()).backward()
    wanted = gradients_of(model)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert (found[name] - gradient).norm() <= near(name) * gradient.norm(), name


def planned(folder: str, sizes: dict[str, Any], held: list[int]) -> bool:
    """Returns whether `slime.plan` predicts the parameters of the first and the last stage, except norms and routers,
    which each rank holds completely; for layers of two kinds only their sum, since the plan uses the mean."""
    config = json.loads((Path(folder) / "config.json").read_text()) | {"vocab_size": 64}
    names = [
        f"{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context", "expert_model")
    ]
    division = Division(
        *(sizes.get(name, 1) for name in names), last_layers=sizes.get("decoder_last_pipeline_num_layers")
    )
    ends = [sum(division.numbers(shape_of(config, "small"), first)) for first in (True, False)]
    if "linear_conv_kernel_dim" in json.dumps(config) or division.last_layers is not None:
        return held[0] + held[-1] == pytest.approx(sum(ends), rel=0.04)
    return [held[0], held[-1]] == pytest.approx(ends, rel=0.04)


def test_training_does_not_depend_on_the_parallelism(
    make_args: MakeArgs,
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    gradients_of: GradientsOf,
    near: Callable[[str], float],
    folders: dict[str, str],
    run_ranks: RunRanks,
    tmp_path: Path,
) -> None:
    rollouts = rollouts_of(make_samples)
    flags = {
        name: {
            "hf_checkpoint": folders[MODELS.get(name, "qwen3")],
            "ref_load": folders[MODELS.get(name, "qwen3")],
            "teacher_source": "trainer",
            "hint_selection": "sequence_optimal"
            if "topk" in losses.get("loss_spec_path", "")
            else "shortest",
            "hint_m": 2,
            "lr": 1e-3,
            **losses,
        }
        for name, losses in LOSSES.items()
    }
    jobs = {
        name: make_args(**flags[name], **sizes, train_backend="megatron", save=str(tmp_path / name))
        for name, sizes in DIVISIONS.items()
    }
    results = run_ranks(RANKS, (jobs, rollouts))

    assert all("rollout 9, step 0" in result["refused"] for result in results)
    losses = [loss for result in results for name, loss in result.items() if name.startswith("resumed in")]
    assert len(losses) == 12
    assert losses == pytest.approx(losses[:1] * 12, abs=1e-5)
    for name in DIVISIONS:
        one = make_trainer(**flags[name])
        first = one.log_probs(rollouts[0])
        expected = [one.train(i, samples) for i, samples in enumerate(rollouts)]
        one.export_weights(str(tmp_path / "one"), 1)
        if (gradient := results[0][name][1]) is not None:
            check_gradient(gradient, flags[name]["hf_checkpoint"], rollouts[0], gradients_of, near)
        for log_probs, _, metrics, checksum in (result[name] for result in results):
            assert checksum == results[0][name][3], name
            for values, single in zip(log_probs, first, strict=True):
                assert values == pytest.approx(single, abs=1e-5), name
            for mine, single in zip(metrics, expected, strict=True):
                assert mine.keys() == single.keys()
                for key in mine.keys() - {"train_seconds"}:
                    assert mine[key] == pytest.approx(single[key], abs=1e-4, rel=1e-3), (name, key)
            assert metrics[0]["grad_norm"] == pytest.approx(expected[0]["grad_norm"], rel=1e-5), name
        held = [result["numbers of " + name] for result in results]
        assert planned(flags[name]["hf_checkpoint"], DIVISIONS[name], held), name
        ours = load_file(tmp_path / f"{name}_weights" / "model.safetensors")
        for key, tensor in load_file(tmp_path / "one" / "model.safetensors").items():
            assert_close(ours[key], tensor, atol=1e-4, rtol=1e-3)
        resumed = make_trainer(**flags[name], save=str(tmp_path / name))
        assert resumed.load().rollout_id == 1
        assert resumed.export_weights(str(tmp_path / "joined"), 2) == results[0][name][3]
