"""A tiny checkpoint is taught in exactly the ids that an episode has."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import Qwen3ForCausalLM

from slime.agents.conversation import continuation, opening
from slime.agents.protocol import Start, Tool
from slime.agents.tiny import Answered, Dialogue, Recipe, command, make_checkpoint
from slime.agents.tiny.dialogue import Document, encode
from slime.agents.tiny.recipe import batches, make_tokenizer
from slime.agents.tiny.tokenizer import system_text
from slime.rollout.tokenizer import ChatTokenizer

ASK = Tool("ask", "Asks.", {"type": "object", "properties": {"what": {"type": "string"}}})
START = Start([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "12 + 5?"}], (ASK,))
CALL = '<tool_call>\n{"name": "ask", "arguments": {"what": "12 + 5"}}\n</tool_call>'
SMALL = Recipe(vocabulary=320, hidden=32, layers=1, steps=8, batch_tokens=300, corpus=20)


def draw(rng: random.Random) -> Dialogue:
    return Dialogue(
        START, [Answered(CALL, [{"role": "tool", "content": "17"}]), Answered(str(rng.randrange(99)))]
    )


@pytest.fixture
def tokenizer(tmp_path: Path) -> ChatTokenizer:
    return make_tokenizer(tmp_path, draw, SMALL, random.Random(0))


def test_a_dialogue_has_the_ids_of_an_episode_and_the_models_words_weigh_more(
    tokenizer: ChatTokenizer,
) -> None:
    found = encode(tokenizer, draw(random.Random(0)), 0.02)
    first = tokenizer.encode(CALL + tokenizer.eos_token)
    begin = opening(tokenizer, START)
    shown = continuation(tokenizer, [{"role": "tool", "content": "17"}])
    assert found.ids[: len(begin) + len(first) + len(shown)] == begin + first + shown
    weights = found.weights[len(begin) :]
    assert weights[: len(first)] == [1.0] * len(first) and set(weights[len(first) :][: len(shown)]) == {0.02}


def test_what_every_prompt_begins_with_is_one_token(tokenizer: ChatTokenizer) -> None:
    text = system_text(START)
    assert text.startswith("Be brief.\n\n# Tools") and '"name": "ask"' in text
    assert len(tokenizer.encode(text)) == 1 and len(opening(tokenizer, START)) < 25
    assert tokenizer.decode(opening(tokenizer, START)).startswith(f"<|im_start|>system\n{text}<|im_end|>")


def test_a_phrase_of_a_recipe_is_one_token_also_where_it_holds_markup(tmp_path: Path) -> None:
    before, behind = CALL.split("12 + 5")
    recipe = replace(SMALL, phrases=(before, behind))
    tokenizer = make_tokenizer(tmp_path, draw, recipe, random.Random(0))
    ids = tokenizer.encode(CALL)
    assert [tokenizer.decode(part) for part in (ids[:1], ids[1:-1], ids[-1:])] == [before, "12 + 5", behind]
    assert len(tokenizer.encode("<tool_call>")) == 1


def test_digits_are_tokens_of_their_own_and_every_text_comes_back(tokenizer: ChatTokenizer) -> None:
    assert len(tokenizer.encode("1234")) == 4
    for text in ("a\tb  é\n\n", CALL, "\\boxed{-1}"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_checkpoint_is_a_folder_that_loads_and_is_small(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    make_checkpoint(tmp_path, draw, SMALL)
    model = Qwen3ForCausalLM.from_pretrained(tmp_path)
    assert model.config.vocab_size == len(ChatTokenizer(str(tmp_path)).fast) <= 320
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 5 << 20


def test_a_tracks_command_makes_its_recipe_and_the_command_line_may_shorten_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("my_track.make_model", "Makes it.", draw, SMALL, [str(tmp_path), "--steps", "1"])
    model = Qwen3ForCausalLM.from_pretrained(tmp_path)
    assert model.config.hidden_size == SMALL.hidden and not (tmp_path / "training_state.pt").exists()
    with pytest.raises(SystemExit):
        command("my_track.make_model", "Makes it.", draw, SMALL, ["--help"], threads=2)
    shown = " ".join(capsys.readouterr().out.split())
    assert "usage: python -m my_track.make_model" in shown and "Makes it." in shown
    assert "updates (default: 8)" in shown and "of torch (default: 2)" in shown


def document(length: int) -> Document:
    return Document([1] * length, [1.0] * length)


def test_batches_keep_to_their_budget_and_the_rate_ends_low() -> None:
    rng = random.Random(0)
    stream = batches(lambda: document(rng.randrange(5, 40)), rng, 200, pool=50)
    for ids, weights in (next(stream) for _ in range(20)):
        assert ids.numel() <= 200 and ids.shape == weights.shape
    rates = [Recipe().rate_at(step) for step in (0, 100, 700, 1399)]
    assert rates[1] == rates[2] == Recipe.rate and max(rates[0], rates[3]) < 0.03 * Recipe.rate
