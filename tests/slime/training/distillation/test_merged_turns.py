"""Tests that samples with common prefixes run together: all losses, adapters and two ranks have the gradients of
separate runs."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import pytest
import torch
from torch.distributed.tensor import DTensor

from slime.training.core.packing import common_starts, pack
from slime.types import Sample
from tests.fakes.fixtures import MakeArgs, MakeTrainer
from tests.fakes.forks import Forks

if TYPE_CHECKING:
    from slime.training.trainer import Trainer

VOCABULARY = 48
CPU = torch.device("cpu")
SELECT = {"loss_spec_path": "openclaw_combine.loss:topk_select"}
COMBINE = {"loss_spec_path": "openclaw_combine.loss:combine"}
OPD = {"use_opd": True, "opd_kl_coef": 0.5, "teacher_source": "trainer"}
LORA = {"use_lora": True, "lora_rank": 4, "lora_alpha": 8.0, "lora_dropout": 0.0}
REFERENCE = {"use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "k3"}
CASES: dict[str, dict[str, Any]] = {
    "policy": {},
    "per token, with reference, in chunks": {
        **REFERENCE,
        "calculate_per_token_loss": True,
        "log_probs_chunk_size": 3,
    },
    "tis": {"use_tis": True, "entropy_coef": 0.01},
    "ages": {"max_staleness": 4, "staleness_decay": 0.5},
    "echo": {"echo_coef": 0.3},
    "sft": {"loss_type": "sft_loss"},
    "top-k": SELECT,
    "top-k of the teacher": {**SELECT, "distill_subset_mode": "teacher"},
    "combined": COMBINE,
    "teacher's log-probs": OPD,
    "LoRA": LORA,
    "LoRA, top-k, recomputed": {**LORA, **SELECT, "gradient_checkpointing": True},
    "micro-batches": {"max_tokens_per_gpu": 60},
}


def session(rng: random.Random, turns: int, rendered_again: bool, name: str) -> list[Sample]:
    """Returns turns whose prompts contain all earlier ones; `rendered_again`: with other tokens than the sampled
    ones."""

    def words(count: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(count)]

    history, found = words(9), list[Sample]()
    for turn in range(turns):
        prompt, response, said = [*history, *words(2)], words(rng.randint(2, 5)), words(3)
        mask = [rng.choice((0, 1, 1)) for _ in response[1:]] + [1]
        found.append(
            Sample(
                index=f"{name}{turn}",
                group_index=f"{name}{turn}",
                session_id=name,
                tokens=prompt + response,
                response_length=len(response),
                loss_mask=mask,
                observed=[0] * len(response) + [1] * len(said),
                next_tokens=said,
                rollout_log_probs=[-3.0 - rng.random() for _ in response],
                version_spans=[(rng.randint(0, 1), 0, len(response))],
                temperature=rng.choice((0.6, 1.0, 1.3)),
                reward=rng.choice((1.0, -1.0, 0.5)),
                teacher_tokens_candidates=[[*prompt, *words(2), *response]] if turn % 2 == 0 else [],
            )
        )
        history = [*prompt, *(response[1:] if rendered_again else response), *said]
    return found


def samples() -> list[Sample]:
    """Returns two sessions, three answers to one prompt, one sample twice and one alone, in mixed order."""
    rng = random.Random(0)
    group = session(rng, 1, False, "group")
    first = group[0]
    for number in (1, 2):
        tokens = [*first.tokens[:-2], number, *first.tokens[-1:]]
        group.append(replace(first, index=f"group{number}", tokens=tokens, teacher_tokens_candidates=[]))
    again = replace(first, index="again", reward=-0.25)
    exact, other = session(rng, 4, False, "exact"), session(rng, 4, True, "again")
    found = [*exact, *other, *group, again, *session(rng, 1, False, "alone")]
    rng.shuffle(found)
    return found


def gradients(trainer: Trainer, given: list[Sample]) -> dict[str, torch.Tensor]:
    """Returns the gradients of the step, and its loss."""
    found: dict[str, torch.Tensor] = {}
    clip, model = trainer.learner.clip, cast(torch.nn.Module, trainer.learner.model)

    def watching(*how: Any) -> float:
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                assert isinstance(parameter.grad, DTensor)
                found[name] = parameter.grad.full_tensor().clone()
        return clip(*how)

    with patch.object(trainer.learner, "clip", watching):
        found["loss"] = torch.tensor(trainer.train(0, given)["loss"])
    return found


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Compares with a tolerance of 1e-5 of the largest number of each tensor."""
    assert found.keys() == expected.keys() and len(found) > 5
    for name, tensor in expected.items():
        gap = float((found[name] - tensor).abs().max())
        assert gap <= 1e-5 * float(tensor.abs().max()) + 1e-9, name


@pytest.mark.parametrize("case", CASES)
def test_merged_turns_have_the_gradients_of_separate_ones(make_trainer: MakeTrainer, case: str) -> None:
    merged, apart = (
        gradients(make_trainer(**CASES[case], merge_prefixes=merge), samples()) for merge in (True, False)
    )
    assert_equal(merged, apart)


def test_merged_turns_have_the_log_probs_of_separate_ones(make_trainer: MakeTrainer) -> None:
    found, expected = (make_trainer(merge_prefixes=merge).log_probs(samples()) for merge in (True, False))
    for ours, apart in zip(found, expected, strict=True):
        assert ours == pytest.approx(apart, abs=2e-5)


RANK = """
import pickle, sys
from slime.training.fsdp import FSDPTrainer
from tests.slime.training.distillation.test_merged_turns import gradients
rank, folder = int(sys.argv[1]), sys.argv[2]
jobs, samples = pickle.load(open(folder + "/order", "rb"))
results = []
for args in jobs:
    trainer = FSDPTrainer(args, rank, 2, init_method=f"file://{folder}/meet")
    results.append(gradients(trainer, samples))
pickle.dump(results, open(f"{folder}/result{rank}", "wb"))
trainer.close()
"""


def test_merged_turns_are_equal_on_two_ranks(
    make_args: MakeArgs, make_trainer: MakeTrainer, fsdp_forks: Forks, tmp_path: Path
) -> None:
    how: dict[str, Any] = {**SELECT, "max_tokens_per_gpu": 60}
    jobs = [make_args(**how, merge_prefixes=merge) for merge in (True, False)]
    (tmp_path / "order").write_bytes(pickle.dumps((jobs, samples())))
    fsdp_forks.run(RANK, tmp_path, *([rank, tmp_path] for rank in range(2)))
    expected = gradients(make_trainer(**how, merge_prefixes=False), samples())
    for rank in range(2):
        merged, apart = pickle.loads((tmp_path / f"result{rank}").read_bytes())
        assert_equal(merged, apart)
        assert_equal(merged, expected)


def test_consecutive_turns_are_one_sequence() -> None:
    turns = session(random.Random(1), 5, False, "exact")
    packed = pack(turns, CPU)
    assert packed.input_ids.tolist() == [turns[-1].tokens]
    assert packed.layout == ((len(turns[-1].tokens),),)
    assert packed.position_ids.tolist() == [list(range(len(turns[-1].tokens)))]
    assert packed.counts == tuple(turn.effective_response_length for turn in turns)


def test_a_changed_rendering_branches_at_the_first_difference() -> None:
    one = Sample(tokens=[1, 2, 3, 4, 5], response_length=2)
    two = Sample(tokens=[1, 2, 3, 5, 6, 7, 8], response_length=1)
    three = Sample(tokens=[1, 2, 3, 5, 6, 7, 9, 9], response_length=2)
    packed = pack([one, two, three], CPU)
    assert packed.input_ids.tolist() == [[1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 9]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 3, 4, 3, 4, 5, 6, 6, 7]]
    assert packed.layout == ((3, 2, (3, 1, 2)),)
    assert packed.targets.tolist() == [4, 5, 8, 9, 9]
    assert packed.logit_positions.tolist() == [2, 3, 7, 7, 9]


def test_a_short_common_prefix_of_long_samples_is_not_shared() -> None:
    one, two = (Sample(tokens=[1, *[word] * 40], response_length=3) for word in (2, 3))
    assert pack([one, two], CPU).layout == ((41,), (41,))


def test_a_conversation_of_2000_turns_nests_without_recursion() -> None:
    history, turns = [7] * 40, list[Sample]()
    for turn in range(2000):
        turns.append(Sample(tokens=[*history, 1, 2], response_length=2))
        history = [*history, 3 + turn % 40]
    roots = common_starts(turns).trees(range(2000))
    assert sum(len(root.preorder()) for root in roots) >= 2000
    packed = pack(turns, CPU)
    assert len(packed.logit_positions) == 4000 and hash(packed.layout)
