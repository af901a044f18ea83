"""Tests samples that only follow their teacher: exact losses, metrics next to those of the others, two ranks, and the
learned policy."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from slime.errors import DataError
from slime.losses import Candidates
from slime.training.core.kept_rows import KeptRows
from slime.types import Sample
from tests.fakes.fixtures import MakeArgs, MakeHinted, MakeTrainer
from tests.fakes.forks import Forks
from tests.slime.training.distillation.test_training import LORA, RANK

SELECT = {"loss_spec_path": "openclaw_combine.loss:topk_select"}
COMBINE = {"loss_spec_path": "openclaw_combine.loss:combine"}
OPD_TOPK = {"loss_spec_path": "openclaw_opd.loss:opd_topk"}
OPD = {"use_opd": True, "opd_kl_coef": 0.5, "teacher_source": "trainer"}
WITH_COSTS = {"use_kl_loss": True, "kl_loss_coef": 0.1, "entropy_coef": 0.05}
LOSSES = {"select": SELECT, "combine": COMBINE, "opd_topk": OPD_TOPK, "opd": OPD}


def rows_of(
    hints: tuple[int, ...], make_samples: MakeHinted, case: str = "dream", **changes: Any
) -> list[Sample]:
    """Returns rows that follow their teacher, without reward and log-probs; an anchor's teacher reads its own
    prompt."""
    found = make_samples(hints, seed=7, reward=None, divergence=None, **changes)
    for i, sample in enumerate(found):
        sample.index = sample.group_index = f"{case}-{i}"
        sample.metadata = {"case": case}
        if case == "anchor_bank":
            sample.teacher_tokens_candidates = [list(sample.tokens)]
        sample.divergence = "forward"
        sample.validate()
    return found


def bins(logits: torch.Tensor, sample: Sample, tokens: list[int], length: int) -> torch.Tensor:
    """Returns log-probs [T, V] of the trained tokens after a prompt, at the sample's temperature."""
    rows = torch.log_softmax(logits[len(tokens) - length - 1 : -1] / sample.temperature, -1)
    return rows[torch.tensor(sample.mask).bool()]


def slow_divergence(student: Any, teacher: Any, sample: Sample, k: int, guidance: float) -> torch.Tensor:
    """Returns the forward KL of each trained token over explicit bins, in float64."""
    length, (hinted,) = sample.response_length, sample.teacher_tokens_candidates or [[]]
    with torch.no_grad():
        told = bins(teacher(torch.tensor([hinted])).logits[0], sample, hinted, length)
        plain = bins(teacher(torch.tensor([sample.tokens])).logits[0], sample, sample.tokens, length)
        target = torch.log_softmax(guidance * told - (guidance - 1) * plain, -1).exp()
    own = bins(student(torch.tensor([sample.tokens])).logits[0], sample, sample.tokens, length).exp()
    ids = target.topk(k).indices
    rest = torch.ones_like(target).scatter(-1, ids, 0)
    p, q = target.gather(-1, ids), own.gather(-1, ids)
    if k < target.shape[-1]:
        p = torch.cat([p, (target * rest).sum(-1, keepdim=True)], -1)
        q = torch.cat([q, (own * rest).sum(-1, keepdim=True)], -1)
    return (p * (p / q).log()).sum(-1)


def end_loss(student: Any, sample: Sample) -> torch.Tensor:
    """Returns the loss of a sample's last trained token, in float64 at its position; 0 at the others."""
    own = bins(
        student(torch.tensor([sample.tokens])).logits[0], sample, sample.tokens, sample.response_length
    )
    answer = torch.tensor(sample.tokens[-sample.response_length :])[torch.tensor(sample.mask).bool()]
    log_prob = own[-1, answer[-1]]
    end = -log_prob if sample.end_weight > 0 else -torch.log1p(-log_prob.exp())
    return torch.cat([torch.zeros(len(own) - 1, dtype=torch.float64), abs(sample.end_weight) * end[None]])


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize(("loss", "k"), [("select", 4), ("select", 48), ("combine", 48), ("opd", 4)])
def test_loss_and_gradient_are_those_of_float64_models_whatever_the_loss_of_the_method(
    monkeypatch: pytest.MonkeyPatch,
    make_trainer: MakeTrainer,
    make_samples: MakeHinted,
    model_folder: str,
    other_folder: str,
    loss: str,
    k: int,
    per_token: bool,
) -> None:
    samples = rows_of((1, 1, 1), make_samples)
    for sample, weight, end in zip(samples, (1.0, 0.25, 3.0), (0.0, 2.0, -1.5), strict=True):
        sample.loss_weight, sample.end_weight = weight, end
    if k < 48:  # by default all 48 ids are compared, also if the method compares 4
        monkeypatch.setattr("slime.training.core.teacher.LIKELY_IDS", k)
    trainer = make_trainer(
        **LOSSES[loss],
        teacher_model=other_folder,
        teacher_guidance=1.5,
        calculate_per_token_loss=per_token,
        clip_grad=0.0,
        log_probs_chunk_size=3,
    )
    metrics = trainer.train(0, samples)
    how: dict[str, Any] = {"dtype": torch.float64, "attn_implementation": "eager"}
    student = AutoModelForCausalLM.from_pretrained(model_folder, **how)
    teacher = AutoModelForCausalLM.from_pretrained(other_folder, **how)
    values = [slow_divergence(student, teacher, sample, k, 1.5) for sample in samples]
    tokens = sum(len(value) for value in values)
    losses = [value + end_loss(student, sample) for value, sample in zip(values, samples, strict=True)]
    parts = [value.sum() / tokens if per_token else value.mean() / 3 for value in losses]
    wanted = torch.stack([part * s.loss_weight for part, s in zip(parts, samples, strict=True)]).sum()
    wanted.backward()  # type: ignore[no-untyped-call]
    norm = torch.stack([p.grad.norm() for p in student.parameters() if p.grad is not None]).norm()
    assert metrics["forward_loss"] == pytest.approx(wanted.item(), rel=1e-4)
    assert metrics["dream_kl"] == pytest.approx(torch.cat(values).mean().item(), rel=1e-4)
    assert metrics["forward_grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert not {"loss", "grad_norm", "anchor_kl", "advantage"} & metrics.keys()


@pytest.mark.parametrize("loss", [SELECT, COMBINE, OPD_TOPK, OPD])
@pytest.mark.parametrize("companion", [0, 1])
def test_metrics_of_other_samples_are_unchanged(
    make_trainer: MakeTrainer,
    make_samples: MakeHinted,
    other_folder: str,
    loss: dict[str, Any],
    companion: int,
) -> None:
    """In a step with both, from the batch or added to it."""
    hints = (1, 2, 1, 1) if loss is OPD_TOPK else (1, 3, 0, 2)
    own = make_samples(hints)
    again = [
        replace(sample, index=f"again-{i}", group_index=f"again-{i}", companion=1)
        for i, sample in enumerate(own)
    ]
    plain = [*own, *again] if companion else own
    followers = [
        *rows_of((1, 1), make_samples, companion=companion),
        *rows_of((1,), make_samples, "anchor_bank", companion=companion),
    ]
    for sample in followers[:1]:
        sample.metadata = {}
    costs = {} if loss is OPD_TOPK else WITH_COSTS
    how = {**loss, **costs, "teacher_model": other_folder, "lr": 0.0, "lr_warmup_iters": 0}
    alone = make_trainer(**how).train(0, plain)
    both = make_trainer(**how).train(0, [*plain, *followers])
    prefix = "companion_" if companion else ""
    added = {"forward_loss", "forward_kl", "dream_kl", "anchor_kl", "taught_length"}
    dreams = [one for one in followers if one.teacher_tokens_candidates != [one.tokens]]
    lengths = [one.effective_response_length for one in dreams]
    assert len(dreams) == 2 and both["taught_length"] == sum(lengths) / 2
    assert both.keys() - alone.keys() == added
    assert not alone.keys() - both.keys()
    known = {"train_seconds", f"{prefix}grad_norm", "num_tokens"}
    for name in alone.keys() - known:
        assert both[name] == pytest.approx(alone[name], rel=1e-5, abs=1e-7), name
    assert both[f"{prefix}grad_norm"] != alone[f"{prefix}grad_norm"]


def test_a_weight_scales_a_samples_contribution_but_not_the_denominators(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    other = {"teacher_model": other_folder}
    for loss in ({**SELECT, **other}, {**COMBINE, **other}, {**OPD_TOPK, **other}, {"loss_type": "sft_loss"}):
        norms = {}
        for weights in ((1.0, 1.0), (1.0, 0.0), (0.5, 0.0), (3.0, 3.0)):
            samples = make_samples((1, 1))
            for sample, weight in zip(samples, weights, strict=True):
                sample.loss_weight = weight
            trainer = make_trainer(**loss, clip_grad=0.0)
            norms[weights] = trainer.train(0, samples)["grad_norm"]
        assert norms[1.0, 0.0] == pytest.approx(2 * norms[0.5, 0.0], rel=1e-5)
        assert norms[3.0, 3.0] == pytest.approx(3 * norms[1.0, 1.0], rel=1e-5)


@pytest.mark.parametrize("how", [{**SELECT, **LORA, "lr": 3e-2}, {**COMBINE, **LORA, "lr": 3e-2}, SELECT])
def test_a_dream_moves_the_policy_to_its_hinted_teacher_and_an_anchor_preserves_the_rest(
    make_trainer: MakeTrainer, make_samples: MakeHinted, how: dict[str, Any]
) -> None:
    """The teacher is the first model: an anchor's divergence is zero before the first step."""
    found = {}
    for weight in (0.0, 3.0):
        trainer = make_trainer(**how, teacher_guidance=1.5)
        rows = [
            *rows_of((1, 1), make_samples, temperature=1.0),
            *rows_of((1, 1, 1), make_samples, "anchor_bank", temperature=1.0, loss_weight=weight),
        ]
        found[weight] = [trainer.train(i, rows) for i in range(15)]
    for weight, metrics in found.items():
        assert metrics[0]["anchor_kl"] == pytest.approx(0, abs=1e-6)
        assert metrics[-1]["dream_kl"] < 0.6 * metrics[0]["dream_kl"], weight
    assert found[0.0][-1]["anchor_kl"] > 1e-3
    assert found[3.0][-1]["anchor_kl"] < 0.5 * found[0.0][-1]["anchor_kl"]


def test_two_ranks_have_the_losses_and_weights_of_one(
    make_args: MakeArgs,
    make_trainer: MakeTrainer,
    make_samples: MakeHinted,
    other_folder: str,
    fsdp_forks: Forks,
    tmp_path: Path,
) -> None:
    """With steps of both kinds, steps of one kind, and a rank without a row of a kind."""
    samples = [
        *make_samples((3, 1, 1, 2, 2), rollout_log_probs=None),
        *rows_of((1, 1, 1), make_samples, companion=1),
        *rows_of((1, 1), make_samples, "anchor_bank", companion=2),
        *rows_of((1,), make_samples, "other"),
    ]
    samples[3].companion = samples[4].companion = 1
    guided = {"teacher_guidance": 1.5, "max_tokens_per_gpu": 30}
    jobs = {
        "select": {**SELECT, **guided, "teacher_model": other_folder, "hint_selection": "token_optimal"},
        "select_lora": {
            **SELECT,
            **guided,
            **LORA,
            "global_batch_size": 2,
            "use_kl_loss": True,
            "kl_loss_coef": 0.1,
        },
        "combine_lora": {**COMBINE, **guided, **LORA},
        "opd_topk": {**OPD_TOPK, **guided, "log_probs_chunk_size": 3, "calculate_per_token_loss": True},
        "opd": {**OPD, "micro_batch_size": 2, "use_dynamic_batch_size": False},
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
            assert {"dream_kl", "anchor_kl", "forward_kl", "companion_loss"} <= mine.keys()
            for key in mine.keys() - {"train_seconds"}:
                assert mine[key] == other[key], key
                assert mine[key] == pytest.approx(single[key], abs=1e-4, rel=1e-3), (name, key)
        ours = load_file(tmp_path / name / "model.safetensors")
        for key, tensor in load_file(tmp_path / "one" / "model.safetensors").items():
            assert_close(ours[key], tensor, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"loss_type": "sft_loss"},
        {**COMBINE, "combine_w_opd": 0.0},
        {**SELECT, "topk_w_opd": 0.0},
        {**COMBINE, "teacher_source": "inference"},
    ],
)
def test_samples_that_follow_a_teacher_are_rejected_without_one(
    make_trainer: MakeTrainer, make_samples: MakeHinted, how: dict[str, Any]
) -> None:
    with pytest.raises(
        DataError, match="'dream-0' has divergence 'forward', which needs --teacher-source trainer"
    ):
        make_trainer(**how).train(0, [*make_samples((0,)), *rows_of((1,), make_samples)])


def test_the_hybrid_learns_from_hints_with_the_selected_divergence(
    monkeypatch: pytest.MonkeyPatch, make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    """Forward: as samples that follow their teacher, over as many ids; reverse: as top-K distillation."""
    monkeypatch.setattr("slime.training.core.teacher.LIKELY_IDS", 4)
    samples = make_samples((1, 1, 1))
    followers = [replace(sample, divergence="forward") for sample in samples]
    how = {"teacher_model": other_folder, "teacher_guidance": 1.5, "clip_grad": 0.0}
    select = {**SELECT, "topk_w_rl": 0.0, **how}
    forward = make_trainer(**select, topk_divergence="forward").train(0, samples)
    alone = make_trainer(**select).train(0, followers)
    assert forward["opd_loss"] == pytest.approx(alone["forward_loss"], rel=1e-5)
    assert forward["grad_norm"] == pytest.approx(alone["forward_grad_norm"], rel=1e-4)
    reverse = make_trainer(**select, topk_divergence="reverse", distill_subset_mode="teacher").train(
        0, samples
    )
    distilled = make_trainer(**OPD_TOPK, **how).train(0, samples)
    for name in ("opd_loss", "grad_norm", "opd_teacher_topk_mass"):
        assert reverse[name] == pytest.approx(distilled[name], rel=1e-6)


@pytest.mark.parametrize("divergence", ["clipped", "reverse", "forward"])
def test_every_divergence_moves_the_hybrid_closer_to_its_teacher(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str, divergence: str
) -> None:
    trainer = make_trainer(**SELECT, topk_divergence=divergence, topk_w_rl=0.0, teacher_model=other_folder)
    samples = make_samples((1, 1, 1), temperature=1.0)
    watched = [replace(sample, divergence="forward", loss_weight=0.0) for sample in samples]
    found = [trainer.train(i, [*samples, *watched])["forward_kl"] for i in range(12)]
    assert found[-1] < 0.8 * found[0]


def test_a_centred_teacher_is_centred_in_the_trainer_too(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    """A response of one token has no differences within it."""
    (sample,) = make_samples((1,), reward=0.0)
    sample.loss_mask = [0] * (sample.response_length - 1) + [1]
    how = {**COMBINE, "teacher_model": other_folder}
    assert make_trainer(**how).train(0, [sample])["grad_norm"] > 0
    assert make_trainer(**how, combine_center_teacher=True).train(0, [sample])["grad_norm"] == 0


@pytest.mark.parametrize("adapters", [{}, {**LORA, "teacher_model": "base"}])
def test_outputs_of_a_fixed_teacher_are_cached_for_repeated_samples(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str, adapters: dict[str, Any]
) -> None:
    def train(most_tokens: int | None) -> tuple[list[dict[str, float]], int]:
        trainer = make_trainer(
            **SELECT, **({"teacher_model": other_folder} | adapters), teacher_guidance=1.5, lr=1e-3
        )
        teacher = trainer.teacher
        assert teacher is not None and teacher.model is not None and teacher.kept is not None
        if most_tokens is None:
            teacher.kept = None
        else:
            teacher.kept = KeptRows(0, most_tokens)
        dreams, held = rows_of((1, 1, 1), make_samples), rows_of((1, 1), make_samples, "anchor_bank")
        with patch.object(teacher, "_ask", wraps=teacher._ask) as ask:
            metrics = [trainer.train(0, [*dreams[:2], held[0]]), trainer.train(1, [*dreams, *held])]
            metrics.append(trainer.train(2, [dreams[2], held[1], dreams[0]]))
        return metrics, ask.call_count

    (kept, few), (asked, many), (short, more) = train(10_000), train(None), train(1)
    for mine, fresh, limited in zip(kept, asked, short, strict=True):
        for name in ("dream_kl", "anchor_kl", "forward_loss"):
            assert mine[name] == pytest.approx(fresh[name], rel=1e-4, abs=1e-7)
            assert limited[name] == pytest.approx(fresh[name], rel=1e-4, abs=1e-7)
    # Dreams and anchors of each rollout are separate packs; in the last one none is new.
    assert (few, many) == (4, 6) and few < more <= many


def test_with_guidance_a_teacher_reads_an_own_prompt_once(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str
) -> None:
    trainer = make_trainer(**SELECT, teacher_model=other_folder, teacher_guidance=1.5)
    assert trainer.teacher is not None and trainer.teacher.model is not None
    model = trainer.teacher.model
    with patch.object(model, "distribution", wraps=model.distribution) as distribution:
        trainer.train(0, [*rows_of((1, 1), make_samples), *rows_of((1, 1), make_samples, "anchor_bank")])
    assert distribution.call_count == 3


def test_ranks_run_equally_many_teacher_passes_with_cached_samples(make_samples: MakeHinted) -> None:
    samples = rows_of((1, 1, 1, 1), make_samples)
    ranks = [KeptRows(rank) for rank in range(2)]
    asked: list[list[tuple[tuple[int, ...], ...]]] = [[], []]
    for micro_batches in ([(0,), (1, 2)], [(1,), (2,)], [(0, 1), ()], [(2, 1), (3,)]):
        for rank, kept in enumerate(ranks):

            def ask(missing: Any, rank: int = rank) -> Candidates:
                asked[rank].append(tuple(missing))
                count = sum(samples[i].effective_response_length for i in missing[rank]) or 1
                ids = torch.full((1, count, 2), len(asked[rank]))
                return Candidates(torch.ones(1, count).bool(), torch.zeros(1, count, 2), ids)

            found = kept.read(micro_batches, samples, ask, torch.device("cpu"))
            length = sum(samples[i].effective_response_length for i in micro_batches[rank])
            assert (found.own_ids is not None and found.own_ids.shape[1] == length) or not micro_batches[rank]
    assert asked[0] == asked[1] == [((0,), (1, 2)), ((1,), ()), ((2,), (3,))]
