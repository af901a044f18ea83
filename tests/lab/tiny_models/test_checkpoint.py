"""A tiny checkpoint is trained on exactly the ids of an episode."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import Qwen3ForCausalLM
from transformers.utils.chat_template_utils import render_jinja_template

from claw_lab.tiny_models.command import command
from claw_lab.tiny_models.dialogue import Answered, Dialogue, Document, encode
from claw_lab.tiny_models.recipe import Recipe, batches, make_checkpoint, make_tokenizer, new_model
from claw_lab.tiny_models.sight import Vision
from claw_lab.tiny_models.tokenizer import SEEING_TEMPLATE, TEMPLATE, system_text
from slime.agents.conversation import Conversation, continuation, opening
from slime.agents.protocol import Start, Tool
from slime.rollout.tokenizer import ChatTokenizer
from tests.fakes.tiny_vision_model import message, picture

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


def test_a_dialogue_has_an_episodes_ids_and_weights_the_models_text_more(
    tokenizer: ChatTokenizer,
) -> None:
    found = encode(tokenizer, draw(random.Random(0)), 0.02)
    first = tokenizer.encode(CALL + tokenizer.eos_token)
    begin = opening(tokenizer, START)
    shown = continuation(tokenizer, [{"role": "tool", "content": "17"}])
    assert found.ids[: len(begin) + len(first) + len(shown)] == begin + first + shown
    weights = found.weights[len(begin) :]
    assert weights[: len(first)] == [1.0] * len(first) and set(weights[len(first) :][: len(shown)]) == {0.02}


def test_the_common_start_of_prompts_is_one_token(tokenizer: ChatTokenizer) -> None:
    text = system_text(START)
    assert text.startswith("Be brief.\n\n# Tools") and '"name": "ask"' in text
    assert len(tokenizer.encode(text)) == 1 and len(opening(tokenizer, START)) < 25
    assert tokenizer.decode(opening(tokenizer, START)).startswith(f"<|im_start|>system\n{text}<|im_end|>")


def test_a_phrase_of_a_recipe_is_one_token_even_with_markup(tmp_path: Path) -> None:
    before, behind = CALL.split("12 + 5")
    recipe = replace(SMALL, phrases=(before, behind))
    tokenizer = make_tokenizer(tmp_path, draw, recipe, random.Random(0))
    ids = tokenizer.encode(CALL)
    assert [tokenizer.decode(part) for part in (ids[:1], ids[1:-1], ids[-1:])] == [before, "12 + 5", behind]
    assert len(tokenizer.encode("<tool_call>")) == 1


def test_digits_are_single_tokens_and_every_text_round_trips(tokenizer: ChatTokenizer) -> None:
    assert len(tokenizer.encode("1234")) == 4
    for text in ("a\tb  é\n\n", CALL, "\\boxed{-1}"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_checkpoint_is_a_folder_that_loads_and_is_small(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    make_checkpoint(tmp_path, draw, SMALL)
    model = Qwen3ForCausalLM.from_pretrained(tmp_path)
    assert model.config.vocab_size == len(ChatTokenizer(str(tmp_path)).fast) <= 320
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 5 << 20


def test_a_tracks_command_runs_its_recipe_and_accepts_shorter_settings(
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


def test_dialogues_with_images_match_rollouts_and_their_batches_match_transformers(
    tmp_path: Path,
) -> None:
    torch.set_num_threads(1)
    first = message(picture(64, 32, 1), "which?")
    dialogue = Dialogue(
        Start([*START.messages[:1], first]), [Answered("a", [message(picture(32, 64, 2))]), Answered("b")]
    )
    recipe = replace(SMALL, vision=Vision(hidden=32, depth=1), vocabulary=330)
    tokenizer = make_tokenizer(tmp_path, lambda rng: dialogue, recipe, random.Random(0))
    model = new_model(tokenizer, recipe).eval()
    sight = Vision().sight(model, tmp_path)
    found = encode(tokenizer, dialogue, 0.1, sight.of_messages)
    conversation = Conversation(tokenizer, dialogue.start, sight.of_messages)
    conversation.add(tokenizer.encode("a" + tokenizer.eos_token), dialogue.turns[0].shown)
    assert found.ids == [*conversation.ids(), *tokenizer.encode("b" + tokenizer.eos_token)]
    places = [(one.start, one.length, one.grid) for one in found.images]
    assert places == [(one.start, one.length, one.grid) for one in conversation.images()] and len(places) == 2
    inputs = sight.inputs([found], len(found.ids))
    kinds = torch.zeros(1, len(found.ids), dtype=torch.int)
    for image in found.images:
        kinds[0, image.start : image.end] = 1
    known = {name: inputs[name] for name in ("pixel_values", "image_grid_thw")}
    ids = torch.tensor([found.ids])
    with torch.no_grad():
        ours = model(input_ids=ids, **inputs).logits
        theirs = model(input_ids=ids, mm_token_type_ids=kinds, **known).logits
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_the_image_template_renders_texts_like_the_text_template() -> None:
    call = {"function": {"name": "ask", "arguments": {"what": "?"}}}
    messages = [
        *START.messages,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "17"},
        {"role": "assistant", "content": "It is <17> & more."},
        {"role": "user", "content": [{"type": "text", "text": "No"}, {"type": "text", "text": "."}]},
    ]
    plain = [*messages[:-1], {"role": "user", "content": "No."}]
    for tools in (None, [ASK.spec()]):
        rendered = [
            render_jinja_template([told], tools, chat_template=template, add_generation_prompt=True)[0]
            for template, told in ((SEEING_TEMPLATE, messages), (SEEING_TEMPLATE, plain), (TEMPLATE, plain))
        ]
        assert rendered[0] == rendered[1] == rendered[2]


def document(length: int) -> Document:
    return Document([1] * length, [1.0] * length)


def test_batches_respect_their_token_budget_and_the_learning_rate_decays() -> None:
    rng = random.Random(0)
    stream = batches(lambda: document(rng.randrange(5, 40)), rng, 200, pool=50)
    for batch in (next(stream) for _ in range(20)):
        assert batch.ids.numel() <= 200 and batch.ids.shape == batch.weights.shape
    rates = [Recipe().rate_at(step) for step in (0, 100, 700, 1399)]
    assert rates[1] == rates[2] == Recipe.rate and max(rates[0], rates[3]) < 0.03 * Recipe.rate
