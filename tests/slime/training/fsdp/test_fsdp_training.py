from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from slime.errors import DataError, TrainError
from slime.types import Sample
from tests.fakes.fixtures import MakeSamples, MakeTrainer

if TYPE_CHECKING:
    from slime.arguments import Arguments
    from slime.training.trainer import Trainer


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.full_tensor().clone() for name, tensor in trainer.model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def reference_step(args: Arguments, samples: list[Sample]) -> tuple[float, dict[str, torch.Tensor]]:
    """Returns the same first step, written out: one sample at a time, plain attention, plain AdamW."""
    model = AutoModelForCausalLM.from_pretrained(
        args.hf_checkpoint, dtype=torch.float32, attn_implementation="eager"
    )
    betas = (args.adam_beta1, args.adam_beta2)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=betas, eps=args.adam_eps, weight_decay=args.weight_decay
    )
    total = torch.zeros(())
    for sample in samples:
        logits = model(torch.tensor([sample.tokens])).logits[0] / sample.temperature
        table = torch.log_softmax(logits, -1)
        first = sample.prompt_length
        chosen = [i for i, kept in enumerate(sample.mask) if kept]
        new = torch.stack([table[first + i - 1, sample.tokens[first + i]] for i in chosen])
        ratio = (new - new.detach()).exp()
        total = total - (ratio * sample.get_reward_value()).mean() / len(samples)
    total.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
    optimizer.step()
    return float(total.detach()), model.state_dict()


def test_one_step_equals_a_plain_unpacked_unsharded_step(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(6)
    trainer = make_trainer(max_tokens_per_gpu=30, weight_decay=0.1)
    metrics = trainer.train(0, samples)
    loss, expected = reference_step(trainer.args, samples)
    assert metrics["loss"] == pytest.approx(loss, abs=1e-5)
    for name, tensor in weights_of(trainer).items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-4)


def test_the_result_does_not_depend_on_how_samples_are_packed(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(6)
    changes: list[dict[str, Any]] = [{}, {"max_tokens_per_gpu": 1}, {"use_dynamic_batch_size": False}]
    trainers = [make_trainer(**change) for change in changes]
    losses = [trainer.train(0, samples)["loss"] for trainer in trainers]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-5)
    first, *others = [weights_of(trainer) for trainer in trainers]
    for other in others:
        for name, tensor in other.items():
            torch.testing.assert_close(tensor, first[name], atol=2e-5, rtol=1e-3)


def test_on_policy_the_ratio_is_exactly_one(make_trainer: MakeTrainer, make_samples: MakeSamples) -> None:
    metrics = make_trainer().train(0, make_samples(5))
    assert metrics["ppo_kl"] == 0.0
    assert metrics["pg_clipfrac"] == 0.0


def test_later_steps_of_a_rollout_use_log_probs_from_before_the_first(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(6)
    trainer = make_trainer(global_batch_size=2)
    metrics = trainer.train(0, samples)
    assert metrics["num_steps"] == 3
    assert trainer.global_step == 3
    assert metrics["ppo_kl"] != 0.0


def test_rewarded_answers_become_likelier_and_punished_ones_less_likely(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    good, bad = make_samples(2, loss_mask=None, temperature=1.0)
    good.reward, bad.reward = 1.0, -1.0
    trainer = make_trainer(lr=3e-3)
    before = [sum(values) for values in trainer.log_probs([good, bad])]
    for rollout_id in range(5):
        trainer.train(rollout_id, [good, bad])
    after = [sum(values) for values in trainer.log_probs([good, bad])]
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_repeated_training_moves_a_token_no_further_than_the_clip_from_its_sampling_weights(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    (first,) = make_samples(1, loss_mask=None, temperature=1.0)
    first.reward, moved, clipped = 1.0, {}, {}
    for known in (True, False):
        trainer = make_trainer(lr=3e-4, adam_beta1=0.0)
        [wrote] = trainer.log_probs([first])
        written = wrote if known else None
        again = [
            replace(first, index=f"again-{n}", companion=n, rollout_log_probs=written) for n in range(1, 41)
        ]
        metrics = trainer.train(0, [replace(first, rollout_log_probs=wrote), *again])
        [now] = trainer.log_probs([first])
        moved[known] = max(b - a for a, b in zip(wrote, now, strict=True))
        clipped[known] = metrics["companion_pg_clipfrac"]
        assert metrics.get("train_rollout_logprob_abs_diff", 0.0) < 1e-3, "companions are no mismatch"
    assert moved[True] < 1.0 < moved[False]
    assert clipped[True] > 0.5 and clipped[False] == 0.0


def test_only_masked_in_tokens_are_trained(make_trainer: MakeTrainer, make_samples: MakeSamples) -> None:
    (sample,) = make_samples(
        1, tokens=list(range(1, 12)), response_length=8, loss_mask=[1, 1, 0, 0, 1, 0, 0, 1]
    )
    assert make_trainer().train(0, [sample])["num_tokens"] == 4


def test_sft_ignores_rewards_and_lowers_the_loss(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(4, reward=None)
    trainer = make_trainer(loss_type="sft_loss", disable_rewards_normalization=False)
    losses = [trainer.train(i, samples)["sft_loss"] for i in range(4)]
    assert losses[-1] < losses[0]


def test_per_token_loss_divides_by_tokens(make_trainer: MakeTrainer) -> None:
    """Its denominator is the number of trained tokens, not the number of samples."""
    long = Sample(tokens=list(range(10)), response_length=9, reward=1.0)
    short = Sample(tokens=[1, 2], response_length=1, reward=-1.0)
    by_token = make_trainer(calculate_per_token_loss=True).train(0, [long, short])
    by_sample = make_trainer().train(0, [long, short])
    assert by_token["pg_loss"] == pytest.approx(-(9 - 1) / 10, abs=1e-5)
    assert by_sample["pg_loss"] == pytest.approx(0.0, abs=1e-5)


def test_kl_to_the_reference_is_zero_at_the_start_and_grows(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(4)
    trainer = make_trainer(use_kl_loss=True, kl_loss_coef=0.1, kl_loss_type="low_var_kl")
    assert trainer.train(0, samples)["kl_loss"] == pytest.approx(0.0, abs=1e-6)
    assert trainer.train(1, samples)["kl_loss"] > 1e-5


def test_a_reference_model_is_loaded_only_for_a_kl_weight(make_trainer: MakeTrainer) -> None:
    assert make_trainer(use_kl_loss=True, kl_loss_coef=0.0).reference is None
    assert make_trainer(use_kl_loss=True, kl_loss_coef=0.1).reference is not None


@pytest.mark.parametrize(("broken", "reward"), [("loss", 3e38), ("gradient", 1e25)])
def test_a_step_that_is_not_finite_is_rejected_and_changes_nothing(
    make_trainer: MakeTrainer, make_samples: MakeSamples, broken: str, reward: float
) -> None:
    samples = make_samples(4)
    trainer = make_trainer()
    trainer.train(0, samples)
    before, position = weights_of(trainer), trainer.global_step
    moments = trainer.learner.optimizer.state_dict()["state"][0]["exp_avg"].full_tensor().clone()
    for sample in samples:
        sample.reward = reward
    with pytest.raises(TrainError, match=f"rollout 1, step 0: the {broken}"):
        trainer.train(1, samples)
    assert same(before, weights_of(trainer))
    assert trainer.global_step == position
    assert torch.equal(moments, trainer.learner.optimizer.state_dict()["state"][0]["exp_avg"].full_tensor())


def test_a_reward_that_is_not_a_number_is_refused_before_anything_happens(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(2)
    samples[1].reward = float("nan")
    with pytest.raises(DataError, match="finite"):
        make_trainer().train(0, samples)


def test_a_rollout_without_a_trained_token_changes_nothing(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(2, remove_sample=True)
    trainer = make_trainer()
    before = weights_of(trainer)
    metrics = trainer.train(0, samples)
    assert metrics["num_steps"] == 0
    assert metrics["num_dropped"] == 2
    assert same(before, weights_of(trainer))


def test_difference_to_the_engines_log_probs_is_reported_by_kind_of_turn(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(4, loss_mask=None)
    trainer = make_trainer()
    engine = trainer.log_probs(samples)
    for sample, values, shift in zip(samples, engine, (0.0, 0.5, 0.25, 0.0), strict=True):
        sample.rollout_log_probs = [value + shift for value in values]
    spans = [[(0, 0, 2)], [(0, 0, 1), (1, 1, 2)], [(7, 0, 2)], []]
    for sample, versions in zip(samples, spans, strict=True):
        sample.version_spans = versions
    metrics = trainer.train(0, samples)
    assert metrics["train_rollout_logprob_abs_diff_max"] < 1e-4
    assert metrics["train_rollout_logprob_abs_diff_spanning"] == pytest.approx(0.5, abs=1e-4)
    assert metrics["train_rollout_logprob_abs_diff_max_stale"] == pytest.approx(0.25, abs=1e-4)


def test_samples_with_and_without_engine_log_probs_may_be_mixed(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(3, loss_mask=None)
    samples[2].rollout_log_probs = [-1.0] * samples[2].response_length
    metrics = make_trainer().train(0, samples)
    assert metrics["train_rollout_logprob_abs_diff"] > 0


def test_gradient_checkpointing_gives_the_same_step(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(4)
    plain, saving = make_trainer(), make_trainer(gradient_checkpointing=True)
    assert plain.train(0, samples)["loss"] == saving.train(0, samples)["loss"]
    assert saving.model.is_activation_checkpointing
    assert same(weights_of(plain), weights_of(saving))


FLAGS: list[dict[str, Any]] = [
    {"eps_clip": 1e-4},
    {"eps_clip_high": 1e-4},
    {"eps_clip_c": 1.0001},
    {"entropy_coef": 0.1},
    {"use_kl_loss": True, "kl_loss_coef": 0.5},
    {"use_kl_loss": True, "kl_loss_coef": 0.5, "kl_loss_type": "k2"},
    {"use_kl_loss": True, "kl_loss_coef": 0.5, "kl_loss_type": "k3"},
    {"use_kl_loss": True, "kl_loss_coef": 0.5, "kl_loss_type": "k2", "use_unbiased_kl": True},
    {"calculate_per_token_loss": True},
    {"disable_rewards_normalization": False},
    {"disable_rewards_normalization": False, "disable_grpo_std_normalization": True},
    {"loss_type": "sft_loss"},
    {"advantage_estimator": "gspo", "eps_clip": 0.01},
    {"advantage_estimator": "cispo", "eps_clip": 0.01},
    {"advantage_estimator": "step_wise"},
    {"advantage_estimator": "on_policy_distillation"},
    {"normalize_advantages": True},
    {"normalize_advantages": True, "advantage_estimator": "reinforce_plus_plus", "gamma": 0.9},
    {"normalize_advantages": True, "advantage_estimator": "reinforce_plus_plus", "kl_coef": 1.0},
    {"normalize_advantages": True, "advantage_estimator": "reinforce_plus_plus_baseline", "kl_coef": 2.0},
    {"use_opd": True},
    {"use_opd": True, "opd_kl_coef": 0.5},
    {"use_opsm": True, "opsm_delta": 0.0},
    {"use_tis": True},
    {"use_tis": True, "tis_clip": 1.5},
    {"use_tis": True, "tis_clip_low": 0.5},
    {"use_tis": True, "tis_clip": 1.5, "tis_mode": "icepop"},
    {"global_batch_size": 4},
    {"global_batch_size": 4, "trim_to_global_batch": True},
    {"lr": 2e-2},
    {"lr_warmup_iters": 2},
    {"lr_decay_style": "linear", "lr_decay_iters": 5},
    {"lr_decay_style": "cosine", "lr_decay_iters": 5},
    {"lr_decay_style": "cosine", "lr_decay_iters": 5, "min_lr": 5e-3},
    {"weight_decay": 0.5},
    {"adam_beta1": 0.5},
    {"adam_beta2": 0.5},
    {"adam_eps": 1e-2},
    {"clip_grad": 1e-9},
]


def test_every_training_flag_changes_the_result(make_trainer: MakeTrainer, make_samples: MakeSamples) -> None:
    """No flag is parsed and then ignored: each set of flags gives different weights."""
    rollout = make_samples(6)
    for position, sample in enumerate(rollout):
        sample.group_index, sample.reward = position % 2, position - 2.5
        sample.rollout_log_probs = [-1.0 - 0.5 * (t % 9) for t in range(sample.response_length)]
        sample.teacher_log_probs = [-0.3 * (t % 5) for t in range(sample.response_length)]
        spans = {"step_scores": [1.0 + position], "step_token_spans": [[0, 1]]}
        sample.metadata["step_wise"] = spans
    results: dict[str, dict[str, Any]] = {}
    for changes in [{}, *FLAGS]:
        trainer = make_trainer(**({"global_batch_size": 2} | changes))
        for rollout_id in range(2):
            trainer.train(rollout_id, rollout)
        weights = weights_of(trainer)
        for name, other in results.items():
            assert not same(weights, other), f"{changes} and {name} give the same weights"
        results[str(changes)] = weights


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"use_tis": True}, "rollout_log_probs, which --use-tis"),
        ({"advantage_estimator": "on_policy_distillation"}, "teacher_log_probs"),
    ],
)
def test_samples_without_values_for_the_loss_are_rejected_before_training(
    make_trainer: MakeTrainer, make_samples: MakeSamples, changes: dict[str, Any], complaint: str
) -> None:
    samples = make_samples(3)
    for sample in samples[:2]:
        sample.rollout_log_probs = sample.teacher_log_probs = [-1.0] * sample.response_length
    with pytest.raises(DataError, match=f"sample 2 .*{complaint}"):
        make_trainer(**changes).train(0, samples)


def test_distillation_pulls_towards_the_teacher_and_counts_its_samples(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(3, reward=0.0, temperature=1.0, loss_mask=None)
    for sample in samples[:2]:
        sample.teacher_log_probs = [-0.01] * sample.response_length
    trainer = make_trainer(use_opd=True, lr=3e-3)
    before = trainer.log_probs(samples)
    metrics = [trainer.train(i, samples) for i in range(3)]
    after = trainer.log_probs(samples)
    assert metrics[0]["opd_samples"] == 2
    assert metrics[2]["opd_reverse_kl"] > metrics[0]["opd_reverse_kl"]
    assert all(sum(after[i]) > sum(before[i]) for i in range(2))


def test_masking_of_drifted_samples_depends_on_its_limit(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(6, reward=-1.0)
    dropped = [
        make_trainer(global_batch_size=2, use_opsm=True, opsm_delta=limit).train(0, samples)["opsm_clipfrac"]
        for limit in (0.0, 1e9)
    ]
    assert dropped[0] > dropped[1] == 0.0


def test_several_passes_over_a_batch_keep_the_log_probs_from_before_the_first(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(4)
    trainer = make_trainer(train_epochs=3, global_batch_size=2, lr=1e-3)
    before = trainer.log_probs(samples)
    metrics = trainer.train(0, samples)
    assert trainer.global_step == 6 and metrics["num_steps"] == 2
    assert metrics["ppo_kl"] != 0.0, "old log-probs are those of before"
    once = make_trainer(global_batch_size=2, lr=1e-3)
    once.train(0, samples)
    assert trainer.log_probs(samples) != once.log_probs(samples) != before
