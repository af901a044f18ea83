"""Tests training by distillation: it learns, resumes bit-exactly, and two ranks equal one."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from openclaw_combine.flags import CombineFlags
from openclaw_combine.loss import of_both
from slime.arguments import Arguments
from slime.losses import DenseDistribution, LossBatch, policy_component
from slime.types import Sample
from tests.fakes.fixtures import MakeArgs, MakeHinted, MakeTrainer
from tests.fakes.forks import Forks

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


LORA: dict[str, Any] = {"use_lora": True, "lora_rank": 4, "lora_alpha": 8.0, "lora_dropout": 0.0}
RANK = """
import pickle, sys
from slime.training.fsdp import FSDPTrainer
rank, folder = int(sys.argv[1]), sys.argv[2]
jobs, samples = pickle.load(open(folder + "/order", "rb"))
results = {}
for name, args in jobs.items():
    trainer = FSDPTrainer(args, rank, 2, init_method=f"file://{folder}/meet")
    metrics = [trainer.train(i, samples) for i in range(2)]
    results[name] = metrics, trainer.export_weights(f"{folder}/{name}", 1)
with open(f"{folder}/result{rank}", "wb") as file:
    pickle.dump(results, file)
trainer.close()
"""


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.full_tensor().clone() for name, tensor in trainer.model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("lora", [{}, {**LORA, "lr": 3e-2}])
@pytest.mark.parametrize(
    ("changes", "metric"),
    [
        ({"loss_spec_path": "openclaw_opd.loss:opd_topk", "distill_subset_mode": "student"}, "opd_loss"),
        ({"loss_spec_path": "openclaw_opd.loss:opd_topk", "distill_subset_mode": "teacher"}, "opd_loss"),
        (
            {"loss_spec_path": "openclaw_combine.loss:topk_select", "topk_w_rl": 0.0},
            "opd_teacher_student_logp_topk_abs_mean",
        ),
        (
            {"loss_spec_path": "openclaw_combine.loss:topk_select", "hint_selection": "sequence_optimal"},
            "opd_teacher_student_logp_topk_abs_mean",
        ),
    ],
)
def test_the_student_comes_nearer_to_its_teacher(
    make_trainer: MakeTrainer,
    make_samples: MakeHinted,
    other_folder: str,
    changes: dict[str, Any],
    lora: dict[str, Any],
    metric: str,
) -> None:
    trainer = make_trainer(**changes, teacher_model=other_folder, **lora)
    samples = make_samples((2, 1, 1), temperature=1.0)
    found = [trainer.train(i, samples)[metric] for i in range(12)]
    assert found[-1] < 0.8 * found[0]


def test_token_distillation_is_equal_with_the_teacher_in_trainer_or_samples(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    samples = make_samples((1, 1, 1))
    teacher = make_trainer(hf_checkpoint=other_folder)
    hinted = [
        Sample(
            tokens=s.teacher_tokens_candidates[0],
            response_length=s.response_length,
            temperature=s.temperature,
        )
        for s in samples
    ]
    for sample, values in zip(samples, teacher.log_probs(hinted), strict=True):
        sample.teacher_log_probs = values
    for loss in (
        {"advantage_estimator": "on_policy_distillation"},
        {"use_opd": True, "opd_kl_coef": 0.5},
        {"loss_spec_path": "openclaw_combine.loss:combine", "combine_w_opd": 0.5},
    ):
        here = make_trainer(**loss, teacher_source="trainer", teacher_model=other_folder)
        given = make_trainer(**loss, teacher_source="inference")
        left, right = here.train(0, samples), given.train(0, samples)
        for name in ("loss", "grad_norm"):
            assert left[name] == pytest.approx(right[name], rel=1e-4, abs=1e-6), (loss, name)


def test_top_k_distillation_is_equal_with_the_teacher_in_trainer_or_samples(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    samples = make_samples((1, 1, 1))
    here = make_trainer(loss_spec_path="openclaw_opd.loss:opd_topk", teacher_model=other_folder)
    read = [
        Sample(
            tokens=s.teacher_tokens_candidates[0],
            response_length=s.response_length,
            temperature=s.temperature,
        )
        for s in samples
    ]
    step = here._schedule(read).steps[0]
    for number, micro_batch in enumerate(step.ranks[0]):
        for sequences, packed, dist in here.teacher._passes(
            step.numbered(number), _with_hint(read), here.device
        ):
            values, ids = dist.topk(6)
            parts = zip(sequences, values.split(packed.counts), ids.split(packed.counts), strict=True)
            for one, log_probs, indices in parts:
                sample = samples[micro_batch[one.owner]]
                sample.teacher_topk_log_probs = log_probs.tolist()
                sample.teacher_topk_indices = indices.tolist()
    for mode in ("teacher", "overlap"):
        changes = {"loss_spec_path": "openclaw_opd.loss:opd_topk", "distill_subset_mode": mode}
        left = make_trainer(**changes, teacher_model=other_folder).train(0, samples)
        right = make_trainer(**changes, teacher_source="inference").train(0, samples)
        assert left["opd_loss"] == pytest.approx(right["opd_loss"], rel=1e-4)
        assert left["grad_norm"] == pytest.approx(right["grad_norm"], rel=1e-4)


def test_a_chunked_student_runs_its_head_only_for_ids_and_loss(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    trainer = make_trainer(
        loss_spec_path="openclaw_opd.loss:opd_topk",
        teacher_model=other_folder,
        log_probs_chunk_size=3,
        max_tokens_per_gpu=1000,
    )
    head, rows = trainer.model.deferred, list[int]()
    project = head.project
    head.project = lambda part: rows.append(len(part)) or project(part)
    samples = make_samples((1, 1, 1))
    trainer.train(0, samples)
    trained = sum(sample.effective_response_length for sample in samples)
    # the ids' log-probs before the update, those of the loss with the entropy, its gradients, and the sampled tokens
    assert sum(rows) == 4 * trained


def _with_hint(samples: list[Sample]) -> list[Sample]:
    for sample in samples:
        sample.teacher_tokens_candidates = [sample.tokens]
    return samples


def test_samples_without_a_hint_are_not_distilled_in_combine(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    """Neither with log-probs of 0, nor against the engine's own log-probs."""
    for none in ([], None):
        samples = make_samples((0, 0, 0), teacher_tokens_candidates=none)
        for sample in samples:
            sample.rollout_log_probs = [-3.0] * sample.response_length
        with_teacher = make_trainer(
            loss_spec_path="openclaw_combine.loss:combine", teacher_model=other_folder
        )
        without = make_trainer()
        left, right = with_teacher.train(0, samples), without.train(0, samples)
        assert same(weights_of(with_teacher), weights_of(without))
        assert left["opd_taught"] == left["opd_teacher_student_logprob_abs_mean"] == 0.0
        assert left["pg_loss"] == right["pg_loss"]


def test_distillation_of_repeated_samples_is_unclipped_and_rewards_are_clipped() -> None:
    torch.manual_seed(3)
    logits = torch.randn(6, 9, dtype=torch.float64, requires_grad=True)
    ids, rewards = (
        torch.tensor([1, 2, 3, 4, 5, 6]),
        torch.tensor([1.0, 1, 1, -1, -1, -1], dtype=torch.float64),
    )
    now = torch.log_softmax(logits, -1).gather(-1, ids.unsqueeze(-1)).squeeze(-1).detach()
    moved = torch.tensor([0.0, 0.5, math.nan, -0.5, 0.1, math.nan], dtype=torch.float64)
    teacher, taught = now + torch.linspace(-1, 1, 6), torch.tensor([True, True, False, True, True, True])
    args: Any = Arguments(advantage_estimator="grpo", eps_clip=0.2, eps_clip_high=0.28)
    policy, flags = policy_component(args), CombineFlags(combine_w_rl=2.0, combine_w_opd=0.5)
    batch = LossBatch(ids, rewards, teacher_log_probs=teacher, taught=taught, behaviour_log_probs=now - moved)
    loss = of_both(policy, flags, DenseDistribution(logits), batch, torch.sum).loss
    (found,) = torch.autograd.grad(loss, logits)
    # 0.5 was far enough up, -0.5 far enough down
    still_moves = torch.tensor([True, False, True, False, True, True])
    ratio = torch.where(moved.isnan(), 0.0, moved).exp()
    weights = 2.0 * rewards * ratio * still_moves + 0.5 * (teacher - now) * taught
    (expected,) = torch.autograd.grad(-(weights * DenseDistribution(logits).log_probs(ids)).sum(), logits)
    assert_close(found, expected)


def test_combine_trains_each_of_its_four_cases(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    """Both, teacher only, rewards only and neither, by whether a sample has a hint and a reward."""
    gradients = {}
    for case, (hints, reward) in {
        "both": (1, 1.0),
        "opd": (1, 0.0),
        "rl": (0, 1.0),
        "none": (0, 0.0),
    }.items():
        trainer = make_trainer(
            loss_spec_path="openclaw_combine.loss:combine", teacher_model=other_folder, clip_grad=0.0
        )
        metrics = trainer.train(0, make_samples((hints,), reward=reward, seed=3))
        gradients[case] = metrics["grad_norm"], metrics["opd_taught"], metrics["loss"]
    assert gradients["none"][0] == 0.0
    assert [gradients[case][1] for case in ("both", "opd", "rl")] == [1.0, 1.0, 0.0]
    assert min(gradients[case][0] for case in ("both", "opd", "rl")) > 0
    assert gradients["both"][2] == pytest.approx(gradients["opd"][2] + gradients["rl"][2], abs=1e-5)


@pytest.mark.parametrize("changes", [{}, LORA])
def test_a_resumed_run_is_bit_exact(
    make_trainer: MakeTrainer, make_samples: MakeHinted, changes: dict[str, Any], tmp_path: Path
) -> None:
    how = {
        "loss_spec_path": "openclaw_combine.loss:topk_select",
        "hint_selection": "sequence_optimal",
        "global_batch_size": 2,
    } | changes
    rollouts = [make_samples(seed=seed) for seed in range(3)]
    straight = make_trainer(**how, save=str(tmp_path / "straight"))
    for i, samples in enumerate(rollouts):
        straight.train(i, samples)
    first = make_trainer(**how, save=str(tmp_path / "cut"))
    for i, samples in enumerate(rollouts[:2]):
        first.train(i, samples)
    first.save(1, 1, 0)
    resumed = make_trainer(**how, save=str(tmp_path / "cut"))
    assert resumed.load().rollout_id == 1
    resumed.train(2, rollouts[2])
    assert same(weights_of(straight), weights_of(resumed))


def test_two_ranks_have_the_losses_and_weights_of_one(
    make_args: MakeArgs,
    make_trainer: MakeTrainer,
    make_samples: MakeHinted,
    other_folder: str,
    fsdp_forks: Forks,
    tmp_path: Path,
) -> None:
    """Ranks with unequal numbers of hints run the same number of passes; fillers count nothing."""
    samples = make_samples((3, 0, 1, 0, 2), rollout_log_probs=None)
    selects = {
        "loss_spec_path": "openclaw_combine.loss:topk_select",
        "hint_selection": "token_optimal",
        "max_tokens_per_gpu": 30,
    }
    jobs = {
        "other": {**selects, "teacher_model": other_folder},
        "base_lora": {**selects, **LORA, "global_batch_size": 3},
        "self": {**selects, "teacher_model": "self", "global_batch_size": 3},
        "combine_lora": {"loss_spec_path": "openclaw_combine.loss:combine", **LORA, "max_tokens_per_gpu": 30},
    }
    orders = {
        name: make_args(**changes, save=str(tmp_path / f"save_{name}")) for name, changes in jobs.items()
    }
    (tmp_path / "order").write_bytes(pickle.dumps((orders, samples)))
    fsdp_forks.run(RANK, tmp_path, *([rank, tmp_path] for rank in range(2)))
    results = [pickle.loads((tmp_path / f"result{rank}").read_bytes()) for rank in range(2)]
    for name, changes in jobs.items():
        one = make_trainer(**changes)
        expected = [one.train(i, samples) for i in range(2)]
        one.export_weights(str(tmp_path / "one"), 1)
        (metrics, checksum), (others, other_checksum) = (result[name] for result in results)
        assert checksum == other_checksum
        for mine, other, single in zip(metrics, others, expected, strict=True):
            assert mine.keys() == other.keys() == single.keys()
            for key in mine.keys() - {"train_seconds"}:
                assert mine[key] == other[key], key
                assert mine[key] == pytest.approx(single[key], abs=1e-4, rel=1e-3), (name, key)
        ours = load_file(tmp_path / name / "model.safetensors")
        for key, tensor in load_file(tmp_path / "one" / "model.safetensors").items():
            assert_close(ours[key], tensor, atol=1e-4, rtol=1e-3)
