import random
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from claw_lab.tiny_models.tiny_claw import recipe
from claw_lab.tiny_models.tiny_claw.encoding import batches, mixed_document
from claw_lab.tiny_models.tiny_claw.tokenizer import load_tokenizer
from tests import MODEL

TOKENIZER = load_tokenizer(MODEL)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def small_run() -> recipe.Run:
    return recipe.new_run(recipe.new_model(len(TOKENIZER), end_id=2, pad_id=0))


def test_the_loss_decreases_within_a_few_steps() -> None:
    run, rng = small_run(), random.Random(0)
    batch = next(batches(partial(mixed_document, TOKENIZER, rng), rng, budget=500))
    losses = [recipe.train_step(run, batch, rate=6e-3) for _ in range(10)]
    assert losses[-1] < 0.6 * losses[0]


def test_batches_respect_their_token_budget_and_contain_every_document_once() -> None:
    rng = random.Random(1)
    drawn: list[int] = []

    def draw() -> object:
        document = mixed_document(TOKENIZER, rng)
        drawn.append(len(document.ids))
        return document

    stream = batches(draw, rng, budget=1000, pool=4)  # type: ignore[arg-type]
    seen = 0
    while seen < 4000:
        batch = next(stream)
        assert batch.ids.numel() <= 1000
        seen += batch.tokens
    assert seen == sum(drawn)


def test_the_learning_rate_is_constant_then_decays_to_its_minimum() -> None:
    first, second, _ = recipe.CYCLES
    assert first.rate(0.0) == first.rate(first.hold) == first.peak
    assert first.rate(1.0) == pytest.approx(first.peak * first.floor)
    assert second.rate(0.5) == pytest.approx(second.peak / 2)
    assert second.rate(1.0) == 0.0
    assert sum(cycle.share for cycle in recipe.CYCLES) == pytest.approx(1.0)


def test_an_interrupted_run_resumes_at_the_same_step(tmp_path: Path) -> None:
    run = small_run()
    cycle = recipe.Cycle(
        share=1.0, equations=0.4, long_share=0.2, lengths=0.3, written=0.3, peak=1e-3, hold=0.5, floor=0.0
    )
    state = tmp_path / "state.pt"
    for _ in recipe.train_cycle(run, TOKENIZER, cycle, 3000, 0, None):
        pass
    recipe._save_state(run, state)
    resumed = small_run()
    resumed.restore(torch.load(state, weights_only=True))
    assert (resumed.step, resumed.tokens) == (run.step, run.tokens)
    for mine, theirs in zip(resumed.model.parameters(), run.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_an_existing_model_is_trained_only_on_the_last_cycle(tmp_path: Path) -> None:
    recipe.make(tmp_path / "first", total_tokens=3000)
    before = load_file(tmp_path / "first" / "model.safetensors")
    read = recipe.make(tmp_path / "more", total_tokens=3000, further=tmp_path / "first")
    after = load_file(tmp_path / "more" / "model.safetensors")
    assert not all(torch.equal(before[name], after[name]) for name in before)
    assert 3000 <= read < 3000 + recipe.BATCH_TOKENS


def test_the_recipe_saves_a_loadable_folder(tmp_path: Path) -> None:
    recipe.make(tmp_path, total_tokens=6000)
    assert not (tmp_path / "training_state.pt").exists()
    names = {file.name for file in tmp_path.iterdir()}
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
    } <= names
