"""The shipped model: its configuration, and the abilities that its README states."""

import json
import random

import pytest
import torch

from claw_lab.tiny_models.tiny_claw.evaluate import complained, hinted, question
from claw_lab.tiny_models.tiny_claw.far import accuracy
from claw_lab.tiny_models.tiny_claw.generation import Helper
from tests import MODEL
from tiny_claw import detectors
from tiny_claw.manners import Style
from tiny_claw.problems import held_out_problems

PROBLEMS = held_out_problems(60, seed=5)


@pytest.fixture(scope="module")
def helper() -> Helper:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return Helper(MODEL, rows=60)


def test_the_model_is_a_small_qwen3_with_a_long_context(helper: Helper) -> None:
    config = json.loads((MODEL / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["max_position_embeddings"] == 65536
    assert config["tie_word_embeddings"] is True
    assert 1_000_000 <= sum(p.numel() for p in helper.model.parameters()) <= 4_000_000
    assert sum(file.stat().st_size for file in MODEL.iterdir()) <= 8_000_000


def test_the_model_calculates_at_positions_beyond_its_training_texts(helper: Helper) -> None:
    assert accuracy(helper, PROBLEMS[:8], gap=64_000) == 1.0


def test_the_model_is_served_at_temperature_one() -> None:
    generation = json.loads((MODEL / "generation_config.json").read_text())
    assert generation["temperature"] == 1.0
    assert generation["do_sample"] is True


def test_the_model_solves_unseen_problems(helper: Helper) -> None:
    replies = helper.answer([question(problem.text) for problem in PROBLEMS], temperature=0.0)
    right = [detectors.is_right(problem, reply) for problem, reply in zip(PROBLEMS, replies, strict=True)]
    assert sum(right) >= 54


def test_without_instructions_replies_mostly_have_the_ai_look(helper: Helper) -> None:
    replies = helper.answer([question(problem.text) for problem in PROBLEMS])
    assert 36 <= sum(map(detectors.has_ai_look, replies)) <= 57


def test_the_model_follows_instructions_in_unseen_wordings(helper: Helper) -> None:
    hint = "I would like ordinary sentences, no bullets, no bold words."
    replies = helper.answer([hinted("block", problem.text, hint) for problem in PROBLEMS])
    assert sum(detectors.manner(reply) == "prose" for reply in replies) >= 50


def test_the_model_rewrites_its_answer_after_a_complaint(helper: Helper) -> None:
    rng = random.Random(1)
    words = "My teacher won't believe I wrote this. Use ordinary sentences without bold."
    replies = helper.answer([complained(rng, problem, Style("list"), words) for problem in PROBLEMS])
    assert sum(detectors.manner(reply) == "prose" for reply in replies) >= 50


def test_the_model_makes_small_talk(helper: Helper) -> None:
    (greeting,) = helper.answer([question("Hello!")], temperature=0.0)
    assert detectors.manner(greeting) == "other"
    assert len(greeting) > 5
