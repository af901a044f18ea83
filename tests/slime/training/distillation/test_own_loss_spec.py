"""Tests a method outside slime, slime/examples/own_loss_spec: its formula, its flags, and training on both
backends."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from slime.arguments import parse_args
from slime.contracts import check
from slime.errors import ConfigError
from slime.losses import DenseDistribution, LossBatch, TopKTargets
from slime.plugins import load_attr
from tests import ROOT
from tests.fakes.fixtures import MakeHinted, MakeTrainer

FILE = str(ROOT / "slime/examples/own_loss_spec/loss.py")
BACKENDS = ["fsdp", "megatron"]


def slow_jsd(teacher: Tensor, student: Tensor, ids: list[int], beta: float) -> float:
    """Returns the divergence from probabilities [V] of one token, bin by bin."""
    bins = [[float(p[i]) for i in ids] for p in (teacher, student)]
    bins = [[*values, 1 - sum(values)] for values in bins]
    total = 0.0
    for p, q in zip(*bins, strict=True):
        m = beta * p + (1 - beta) * q
        total += beta * p * math.log(p / m) + (1 - beta) * q * math.log(q / m)
    return total


@pytest.mark.parametrize("beta", [0.1, 0.5, 0.9])
def test_the_divergence_matches_the_papers_over_likely_ids_and_the_rest(beta: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    teacher = DenseDistribution(torch.randn(2, 7, dtype=torch.float64))
    ids = torch.tensor([[3, 1], [0, 6]])
    nobody = torch.zeros(2, dtype=torch.long)
    valid = torch.tensor([[True, True], [False, False]])
    targets = TopKTargets(ids, valid, teacher.log_probs(ids), teacher.log_probs(ids), nobody, nobody)
    component = load_attr(f"{FILE}:jensen_shannon")
    output = component(beta, DenseDistribution(logits), LossBatch(ids[:, 0], targets=targets), torch.sum)
    tables = teacher.logits.softmax(-1)[0], logits.detach().softmax(-1)[0]
    assert float(output.loss) == pytest.approx(slow_jsd(*tables, [3, 1], beta))
    output.loss.backward()
    assert logits.grad is not None and bool(torch.isfinite(logits.grad).all())
    assert bool(logits.grad[0].any()) and not bool(logits.grad[1].any())  # the second token has no teacher


def test_a_whole_method_fits_in_a_hundred_lines_and_keeps_its_contract() -> None:
    assert len(Path(FILE).read_text().splitlines()) < 100
    assert "was called" in check("loss_spec_path", FILE)


def test_flags_of_a_custom_loss_are_listed_parsed_and_validated(
    model_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = tmp_path / "source.py"
    hook.write_text("def generate_rollout(args, rollout_id, data_source, evaluation=False): ...\n")
    words = [*f"--hf-checkpoint {model_folder} --rollout-function-path {hook} --run-dir {tmp_path}".split()]
    words += [*f"--disable-rollout-global-dataset --loss-spec-path {FILE} --distill-topk 4".split()]
    with pytest.raises(SystemExit):
        parse_args([*words, "--help-all"], env={})
    assert "[env: JSD_BETA]" in capsys.readouterr().out
    args: Any = parse_args(words, env={"JSD_BETA": "0.25"})
    assert (args.jsd_beta, args.jsd_w_rl, args.teacher_source) == (0.25, 0.0, "trainer")
    assert (args.loss_type, args.distill_subset_mode) == ("custom_loss", "student")
    with pytest.raises(ConfigError, match=r"--jsd-beta must be above 0 and below 1, got 1\.0"):
        parse_args([*words, "--jsd-beta", "1"], env={})
    with pytest.raises(ConfigError, match="needs --distill-topk from 1 to 48"):
        parse_args(words[:-2], env={})
    with pytest.raises(ConfigError, match="makes every advantage 0"):
        parse_args([*words, "--jsd-w-rl", "1"], env={})


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_custom_loss_trains_with_teacher_and_rewards_on_both_backends(
    make_trainer: MakeTrainer, make_samples: MakeHinted, other_folder: str, backend: str
) -> None:
    if backend == "megatron":
        pytest.importorskip(
            "megatron.core", reason="megatron-core is not installed: see requirements-dev.txt"
        )
    flags: dict[str, Any] = {"loss_spec_path": FILE, "distill_topk": 4, "hint_selection": "token_optimal"}
    flags |= {"teacher_model": other_folder, "max_tokens_per_gpu": 40, "train_backend": backend}
    trainer = make_trainer(**flags, lr=1e-2)
    found = [trainer.train(number, make_samples((1, 2, 0))) for number in range(6)]
    assert found[-1]["jsd"] < 0.7 * found[0]["jsd"] and found[0]["jsd_beta"] == 0.5
    assert "pg_loss" not in found[0] and "advantage" not in found[0]
    with_rewards = make_trainer(**flags, jsd_w_rl=2.0).train(0, make_samples((1, 2, 0)))
    assert with_rewards["loss"] == pytest.approx(with_rewards["jsd"] + 2 * with_rewards["pg_loss"], abs=1e-5)
