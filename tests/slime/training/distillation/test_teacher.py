"""Tests the teacher in the trainer: its log-probs, its model, the number of passes."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import AutoModelForCausalLM

from slime.errors import ConfigError, DataError
from slime.training.core.teacher import Teacher
from slime.types import Sample
from tests.fakes.fixtures import MakeArgs, MakeHinted, MakeTrainer

MODES = ("student", "teacher", "overlap")
SELECTIONS = ("shortest", "token_optimal", "sequence_optimal")
SPECS = {
    "opd_topk": "openclaw_opd.loss:opd_topk",
    "combine": "openclaw_combine.loss:combine",
    "topk_select": "openclaw_combine.loss:topk_select",
}
LORA: dict[str, Any] = {"use_lora": True, "lora_rank": 4, "lora_alpha": 8.0, "lora_dropout": 0.0}


def table(folder: str, tokens: list[int], sample: Sample) -> Tensor:
    """Returns log-probs [T, V] at the trained response tokens, by plain transformers without packing."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0] / sample.temperature
    first = len(tokens) - sample.response_length
    return torch.log_softmax(logits, -1)[[first + t - 1 for t, kept in enumerate(sample.mask) if kept]]


def guided_table(folder: str, tokens: list[int], sample: Sample, strength: float) -> Tensor:
    """Returns those of a teacher under guidance: the change by the hint counts `strength` times."""
    hinted, plain = table(folder, tokens, sample), table(folder, sample.tokens, sample)
    return torch.log_softmax(plain + strength * (hinted - plain), -1)


def slow_select_loss(
    student: str, teacher: str, samples: list[Sample], mode: str, selection: str, strength: float = 1.0
) -> float:
    """Returns the distillation term of the first step, one token at a time; K = 4, no clip of the difference."""
    total = 0.0
    for sample in samples:
        old = table(student, sample.tokens, sample)
        hints = sample.teacher_tokens_candidates or [sample.tokens]
        teachers = [guided_table(teacher, tokens, sample, strength) for tokens in hints]
        own = [{*row.topk(4).indices.tolist()} for row in old]
        theirs = [[{*row.topk(4).indices.tolist()} for row in each] for each in teachers]
        shared = [[len(own[t] & each[t]) for t in range(len(own))] for each in theirs]
        of_tokens = 0.0
        for t in range(len(own)):
            scores = {"shortest": [0] * len(hints), "token_optimal": [each[t] for each in shared]}
            scores["sequence_optimal"] = [sum(each) for each in shared]
            k = max(range(len(hints)), key=lambda k: (scores[selection][k], -k))
            subset = {"student": own[t], "teacher": theirs[k][t], "overlap": own[t] & theirs[k][t]}[mode]
            mass = sum(float(old[t, v].exp()) for v in subset)
            for v in subset:
                of_tokens -= float((teachers[k][t, v] - old[t, v]) * old[t, v].exp()) / mass
        total += of_tokens / len(own)
    return total / len(samples)


@pytest.mark.parametrize(("mode", "selection"), itertools.product(MODES, SELECTIONS))
def test_each_of_the_nine_cells_trains_like_an_unpacked_loop(
    make_trainer: MakeTrainer,
    make_samples: MakeHinted,
    model_folder: str,
    other_folder: str,
    mode: str,
    selection: str,
) -> None:
    samples = make_samples()
    trainer = make_trainer(
        loss_spec_path="openclaw_combine.loss:topk_select",
        teacher_model=other_folder,
        distill_subset_mode=mode,
        hint_selection=selection,
        topk_adv_diff_clip=0.0,
        topk_w_rl=0.0,
        max_tokens_per_gpu=45,
    )
    metrics = trainer.train(0, samples)
    expected = slow_select_loss(model_folder, other_folder, samples, mode, selection)
    assert metrics["opd_loss"] == pytest.approx(expected, abs=2e-5)
    assert metrics["loss"] == metrics["opd_loss"]
    assert metrics["grad_norm"] > 0
    assert metrics["hint_selection_mode_id"] == SELECTIONS.index(selection)


@pytest.mark.parametrize(("plain", "share"), [(False, 0.1), (True, 1.0)])
def test_a_step_of_scores_alone_is_as_short_as_their_weight(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str, plain: bool, share: float
) -> None:
    trainer = make_trainer(
        loss_spec_path=SPECS["topk_select"],
        teacher_model=other_folder,
        topk_w_rl=0.1,
        topk_plain_teacher=plain,
    )
    hinted = make_samples()
    scored = [replace(one, teacher_tokens_candidates=None) for one in hinted]
    rates = [trainer.train(number, samples)["lr"] for number, samples in enumerate((hinted, scored))]
    assert rates[1] == pytest.approx(share * rates[0])


@pytest.mark.parametrize(
    "how",
    [
        {"max_tokens_per_gpu": 45},
        {"max_tokens_per_gpu": 1, "log_probs_chunk_size": 3},
        {"log_probs_chunk_size": 2},
        {"teacher_model": "self"},
    ],
)
def test_guidance_multiplies_the_effect_of_a_hint(
    make_trainer: MakeTrainer,
    make_samples: MakeHinted,
    model_folder: str,
    other_folder: str,
    how: dict[str, Any],
) -> None:
    samples = make_samples()
    values = {"teacher_model": other_folder, "teacher_guidance": 2.5, "hint_selection": "token_optimal"} | how
    trainer = make_trainer(
        loss_spec_path=SPECS["topk_select"],
        topk_adv_diff_clip=0.0,
        topk_w_rl=0.0,
        distill_subset_mode="student",
        **values,
    )
    metrics = trainer.train(0, samples)
    teacher = model_folder if values["teacher_model"] == "self" else other_folder
    expected = slow_select_loss(model_folder, teacher, samples, "student", "token_optimal", 2.5)
    assert metrics["opd_loss"] == pytest.approx(expected, abs=2e-5)
    plain = slow_select_loss(model_folder, teacher, samples, "student", "token_optimal")
    assert abs(expected - plain) > 1e-3


def test_guidance_also_applies_to_a_teacher_of_sampled_tokens(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    samples = make_samples((1, 0, 2))
    trainer = make_trainer(loss_spec_path=SPECS["combine"], teacher_model=other_folder, teacher_guidance=2.0)
    asked: list[dict[int, list[float]]] = []
    real = trainer.teacher.sampled
    trainer.teacher.sampled = lambda *given: asked.append(real(*given)) or asked[-1]
    trainer.train(0, samples)
    for at, found in asked[0].items():
        sample = samples[at]
        of_all = guided_table(other_folder, sample.teacher_tokens_candidates[0], sample, 2.0)
        ids = [
            one
            for one, kept in zip(sample.tokens[-sample.response_length :], sample.mask, strict=True)
            if kept
        ]
        assert found == pytest.approx([float(of_all[t, v]) for t, v in enumerate(ids)], abs=2e-5)
    assert sorted(asked[0]) == [0, 2]


def test_guidance_without_a_teacher_in_the_trainer_is_rejected(make_args: MakeArgs) -> None:
    with pytest.raises(ConfigError, match="--teacher-guidance has no effect with --teacher-source inference"):
        make_args(loss_spec_path=SPECS["combine"], teacher_guidance=2.0, teacher_source="inference")


@pytest.mark.parametrize("limits", [{"max_tokens_per_gpu": 1}, {"use_dynamic_batch_size": False}])
def test_the_result_does_not_depend_on_how_hints_are_packed(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str, limits: dict[str, Any]
) -> None:
    how = {
        "loss_spec_path": "openclaw_combine.loss:topk_select",
        "teacher_model": other_folder,
        "hint_selection": "token_optimal",
    }
    metrics = [make_trainer(**how, **more).train(0, make_samples()) for more in ({}, limits)]
    for name in ("loss", "grad_norm", "sel_k_star_mean", "sel_overlap_at_k_star"):
        assert metrics[0][name] == pytest.approx(metrics[1][name], abs=1e-5, rel=1e-4), name


def test_every_hint_is_read_once_and_only_on_request(
    make_trainer: MakeTrainer, make_samples: MakeHinted, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real = Teacher._rounds

    def counted(self: Teacher, *given: Any) -> Any:
        rounds = real(self, *given)
        read.extend(one.hint for sequences in rounds for one in sequences)
        return rounds

    monkeypatch.setattr(Teacher, "_rounds", counted)
    samples = make_samples((1, 3, 0, 2))
    wanted = {
        ("topk_select", "sequence_optimal", None): [
            0,
            0,
            0,
            0,
            1,
            1,
            2,
        ],  # the plain prompt if there is no hint
        ("topk_select", "sequence_optimal", 2): [0, 0, 0, 0, 1, 1],
        ("topk_select", "shortest", None): [0, 0, 0, 0],
        ("combine", "shortest", None): [0, 0, 0],
    }
    for (loss, selection, most), expected in wanted.items():
        read.clear()
        trainer = make_trainer(
            loss_spec_path=SPECS[loss], hint_selection=selection, hint_m=most, teacher_model="self"
        )
        trainer.train(0, samples)
        assert sorted(read) == expected, (loss, selection)
    read.clear()
    for weights in (
        {"loss_spec_path": "openclaw_combine.loss:combine", "combine_w_opd": 0.0},
        {"loss_spec_path": "openclaw_combine.loss:topk_select", "topk_w_opd": 0.0},
    ):
        trainer = make_trainer(**weights)
        trainer.train(0, samples)
        assert trainer.teacher is None
    assert read == []


def test_the_policy_needs_an_additional_pass_only_for_later_steps(
    make_trainer: MakeTrainer, make_samples: MakeHinted, monkeypatch: pytest.MonkeyPatch, other_folder: str
) -> None:
    trainer = make_trainer(
        loss_spec_path="openclaw_combine.loss:topk_select", teacher_model=other_folder, global_batch_size=2
    )
    runs: list[bool] = []
    trainer.model.register_forward_hook(lambda *_: runs.append(torch.is_grad_enabled()))
    trainer.train(0, make_samples((1, 1, 1, 1)))
    assert runs == [False, True, True]


def test_the_live_policy_teaching_plain_prompts_has_no_effect(
    make_trainer: MakeTrainer, make_samples: MakeHinted
) -> None:
    """`self` is the policy before the update, also for the second step: its log-probs are the old ones."""
    trainer = make_trainer(
        loss_spec_path="openclaw_combine.loss:topk_select",
        teacher_model="self",
        global_batch_size=2,
        distill_subset_mode="teacher",
        lr=1e-2,
    )
    metrics = trainer.train(0, make_samples((0, 0, 0, 0)))
    assert metrics["opd_teacher_student_logp_topk_abs_mean"] == pytest.approx(0.0, abs=1e-5)
    assert metrics["opd_subset_size"] == pytest.approx(4.0)


def test_without_hints_the_frozen_base_pulls_a_changed_policy_back(
    make_trainer: MakeTrainer, make_samples: MakeHinted
) -> None:
    trainer = make_trainer(loss_spec_path="openclaw_combine.loss:topk_select", lr=1e-2)
    samples = make_samples((0, 0, 0))
    gaps = [trainer.train(i, samples)["opd_teacher_student_logp_topk_abs_mean"] for i in range(3)]
    assert gaps[0] == pytest.approx(0.0, abs=1e-5)
    assert gaps[2] > 1e-2


def test_without_the_plain_teacher_only_turns_with_a_hint_are_distilled(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    flags = {
        "loss_spec_path": "openclaw_combine.loss:topk_select",
        "teacher_model": other_folder,
        "topk_plain_teacher": False,
    }
    assert make_trainer(**flags).train(0, make_samples((0, 0, 0)))["opd_loss"] == 0.0
    some, plain = (make_trainer(**flags).train(0, make_samples(hints)) for hints in ((2, 0), (2, 2)))
    assert some["opd_loss"] != 0.0
    assert some["opd_subset_size"] < plain["opd_subset_size"]


@pytest.mark.parametrize("loss", ["topk_select", "opd_topk", "combine"])
def test_the_base_of_adapters_teaches_like_a_separately_loaded_copy(
    make_trainer: MakeTrainer, make_samples: MakeHinted, model_folder: str, tmp_path: Path, loss: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model_folder, copy)
    samples = make_samples((2, 1, 3))
    shared = make_trainer(loss_spec_path=SPECS[loss], **LORA, gradient_checkpointing=True)
    apart = make_trainer(loss_spec_path=SPECS[loss], **LORA, teacher_model=str(copy))
    assert shared.teacher.model is shared.model
    assert apart.teacher.model is not apart.model
    for i in range(2):
        left, right = shared.train(i, samples), apart.train(i, samples)
        for name in ("loss", "grad_norm"):
            assert left[name] == pytest.approx(right[name], rel=1e-4, abs=1e-6)


def test_a_reference_model_that_is_the_base_teaches_too(make_trainer: MakeTrainer, other_folder: str) -> None:
    kl = {"use_kl_loss": True, "kl_loss_coef": 0.1}
    trainer = make_trainer(loss_spec_path="openclaw_combine.loss:topk_select", **kl)
    assert trainer.teacher.model is trainer.reference.model
    following = make_trainer(loss_spec_path="openclaw_combine.loss:topk_select", **kl, ref_update_interval=2)
    assert following.teacher.model is not following.reference.model
    other = make_trainer(loss_spec_path="openclaw_combine.loss:topk_select", **kl, teacher_model=other_folder)
    assert other.teacher.model is not other.reference.model


def test_a_teacher_with_another_vocabulary_is_refused_at_start(
    make_args: MakeArgs, make_trainer: MakeTrainer, small_folder: str, model_folder: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="has 40 tokens, but the student has 48"):
        make_args(loss_spec_path="openclaw_combine.loss:combine", teacher_model=small_folder)
    folders = [tmp_path / name for name in ("student", "teacher", "twin")]
    for folder, words in zip(folders, ("abc", "acb", "abc"), strict=True):
        shutil.copytree(model_folder, folder)
        vocabulary = {word: i for i, word in enumerate(words)}
        Tokenizer(WordLevel(vocabulary, unk_token="a")).save(str(folder / "tokenizer.json"))
        described = {"tokenizer_class": "PreTrainedTokenizerFast"}
        (folder / "tokenizer_config.json").write_text(json.dumps(described))
    with pytest.raises(ConfigError, match=r"id 1 .* differs"):
        make_trainer(
            loss_spec_path="openclaw_combine.loss:combine",
            hf_checkpoint=str(folders[0]),
            teacher_model=str(folders[1]),
        )
    make_trainer(
        loss_spec_path="openclaw_combine.loss:combine",
        hf_checkpoint=str(folders[0]),
        teacher_model=str(folders[2]),
    )


def test_each_step_of_an_agent_gets_a_hint(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    def mean_hint(spans: list[list[int]] | None) -> float:
        samples = make_samples((3,) * 8, loss_mask=None)
        for sample in samples:
            cut = [[0, 1], [1, sample.response_length]] if spans is None else spans
            sample.metadata = (
                {"step_wise": {"step_token_spans": cut, "step_scores": [1.0] * len(cut)}} if cut else {}
            )
        how = {
            "loss_spec_path": "openclaw_combine.loss:topk_select",
            "hint_selection": "sequence_optimal",
            "teacher_model": other_folder,
        }
        return float(make_trainer(**how).train(0, samples)["sel_k_star_mean"])

    assert len({mean_hint([]), mean_hint(None), mean_hint([[0, 1]])}) == 3


def test_samples_unusable_by_a_loss_without_rewards_are_rejected_before_training(
    make_trainer: MakeTrainer, make_samples: MakeHinted
) -> None:
    samples = make_samples((1, 0))
    with pytest.raises(DataError, match="sample 1 has no hint"):
        make_trainer(loss_spec_path="openclaw_opd.loss:opd_topk").train(0, samples)
    distils = {"advantage_estimator": "on_policy_distillation", "teacher_source": "trainer"}
    with pytest.raises(DataError, match="sample 1 has no hint"):
        make_trainer(**distils).train(0, samples)
    trainer = make_trainer(loss_spec_path="openclaw_opd.loss:opd_topk", teacher_source="inference")
    with pytest.raises(DataError, match="sample 0 has no teacher_topk_indices"):
        trainer.train(0, samples)
    narrow = make_samples((1,))[0]
    narrow.teacher_topk_indices = [[1, 2]] * narrow.response_length
    narrow.teacher_topk_log_probs = [[-1.0, -2.0]] * narrow.response_length
    with pytest.raises(DataError, match="has 2 teacher ids per token"):
        trainer.train(0, [narrow])
    foreign = make_samples((1,))[0]
    foreign.teacher_tokens_candidates = [[99, *foreign.tokens]]
    with pytest.raises(DataError, match="token id 99, but the model has only 48"):
        trainer.train(0, [foreign])


def test_an_empty_answer_is_dropped_and_counted(make_trainer: MakeTrainer, make_samples: MakeHinted) -> None:
    empty = Sample(index="empty", tokens=[1, 2, 3], reward=1.0, teacher_tokens_candidates=[[1, 2]])
    for loss in ("topk_select", "opd_topk", "combine"):
        metrics = make_trainer(loss_spec_path=SPECS[loss]).train(0, [*make_samples((1, 2)), empty])
        assert (metrics["num_samples"], metrics["num_dropped"]) == (2.0, 1.0)
