"""The CPU part of the verifiers example: tasks held out by word, and a tiny model that has learned only the rules."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from claw_lab.tiny_models import verifiers_game
from claw_lab.tiny_models.recipe import Recipe, make_tokenizer

RULES = "\n[GAME] You are playing Hangman. Guess the word.\n\n[GAME] Current board:\n\n"
LIVES = "\nYou have 6 tries left.\nGuessed letters: "


@pytest.fixture(scope="module")
def game() -> ModuleType:
    return verifiers_game


def row_of(game: ModuleType, seed: int) -> dict[str, Any]:
    """Returns a task in verifiers' format."""
    word = random.Random(seed).choice(game.WORDS)
    prompt = RULES + game.board("_" * len(word)) + LIVES
    task = {"system_prompt": "Play.", "prompt": prompt, "info": {"seed": seed}}
    return {"prompt": prompt, "metadata": {"task_id": f"Hangman-v0#{seed}", "verifiers_task": task}}


def test_training_and_held_out_words_are_disjoint_without_duplicates(
    game: ModuleType, tmp_path: Path
) -> None:
    game.split([row_of(game, seed) for seed in range(600)], tmp_path)
    train, held_out = (
        [game.word_of(json.loads(line)) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "heldout")
    )
    assert len(train) > len(held_out) > 20 and not set(train) & set(held_out)
    assert len(set(held_out)) == len(held_out)


def test_a_task_with_a_word_of_another_list_is_rejected(game: ModuleType) -> None:
    row = row_of(game, 3)
    row["prompt"] = RULES + game.board("_" * 20) + LIVES
    with pytest.raises(ValueError, match="other words are installed"):
        game.word_of(row)


def test_demonstrations_follow_the_rules_and_favour_no_letter(game: ModuleType) -> None:
    rng, rows = random.Random(0), [row_of(game, seed) for seed in range(20)]
    first: dict[str, int] = dict.fromkeys(string.ascii_uppercase, 0)
    for _ in range(2000):
        dialogue = game.demonstration(rng, rows)
        named: list[str] = []
        for turn in dialogue.turns:
            letter = turn.text.strip("[]")
            complained = any("already been guessed" in message["content"] for message in turn.shown)
            assert complained == (letter in named)
            named.append(letter)
        first[named[0]] += 1
    assert max(first.values()) < 2 * min(first.values()), "2000 games, 77 a letter"


def test_a_move_is_one_token_and_the_rules_are_one_token(game: ModuleType, tmp_path: Path) -> None:
    rows = [row_of(game, seed) for seed in range(40)]
    recipe = Recipe(vocabulary=360, corpus=30, phrases=game.phrases(rows))
    tokenizer = make_tokenizer(tmp_path, lambda rng: game.demonstration(rng, rows), recipe, random.Random(0))
    for text in (*(f"[{letter}]" for letter in string.ascii_uppercase), RULES, LIVES):
        assert len(tokenizer.encode(text)) == 1, text
    board = game.board("_A_A")
    assert len(tokenizer.encode(board)) < len(board) / 2


def test_the_final_line_gives_intervals_over_words_and_skips_infrastructure_failures(
    game: ModuleType, tmp_path: Path
) -> None:
    def attempt(rollout: int, word: int, reward: float | None) -> str:
        row = {"rollout_id": rollout, "task_id": f"w{word}", "reward": reward}
        return json.dumps({**row, "success": None if reward is None else reward >= 1})

    before = [attempt(0, word, reward) for word in range(4) for reward in (0.0, 0.5)]
    after = [attempt(9, word, reward) for word in range(4) for reward in (1.0, word / 4)]
    (tmp_path / "evaluations.jsonl").write_text("\n".join([*before, *after, attempt(9, 0, None)]))
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"rollout/reward_mean": 0.254}) + "\n")
    found = json.loads(game.result(tmp_path, 12.4))
    assert found["reward_before"] == [0.25, 0.25, 0.25]
    middle, low, high = found["reward_after"]
    assert middle == 0.688 and low < middle < high and (found["found_before"], found["found_after"]) == (0, 4)
    assert (found["held_out_words"], found["games"], found["training_rewards"]) == (4, 8, [0.25])
