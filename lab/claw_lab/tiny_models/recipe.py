"""Creates a checkpoint from demonstrations: a tokenizer, a small Qwen3 or Qwen3-VL, supervised training in plain
torch."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from claw_lab.tiny_models.dialogue import Dialogue, Document, encode
from claw_lab.tiny_models.sight import Vision
from claw_lab.tiny_models.tokenizer import (
    END_OF_TEXT,
    SEEING_TEMPLATE,
    TEMPLATE,
    TURN_END,
    system_text,
    train_tokenizer,
)
from claw_lab.tiny_models.vision import MARKS
from slime.agents.conversation import no_pictures
from slime.losses import DenseDistribution, sft_loss, weighted_sum
from slime.rollout.tokenizer import ChatTokenizer
from slime.vision.pictures import text_of

logger = logging.getLogger(__name__)
STATE = "training_state.pt"
SAVE_EVERY = 20  # steps
Draw = Callable[[random.Random], Dialogue]
Inputs = Callable[[Sequence[Document], int], dict[str, torch.Tensor]]
"""Returns a model's inputs in addition to the ids of documents that are cut to a length."""


@dataclass(frozen=True)
class Recipe:
    """Size and training of a model.

    Attributes:
        steps: updates, each of about `batch_tokens` tokens with padding.
        rate: learning rate of Muon and AdamW; constant for half of the steps, then linear to 2 % of it.
        background: loss weight of a token that the model only reads.
        corpus: number of dialogues that train the tokenizer.
        phrases: texts that are one token each, as the system message is.
        vision: of a model that reads the pictures in dialogues; None: text only.
    """

    vocabulary: int = 352
    hidden: int = 96
    layers: int = 3
    context: int = 2048
    steps: int = 1400
    batch_tokens: int = 3000
    rate: float = 6e-3
    background: float = 0.02
    corpus: int = 4000
    phrases: tuple[str, ...] = ()
    vision: Vision | None = None

    def rate_at(self, step: int) -> float:
        warm = min(1.0, (step + 1) / 50)
        return self.rate * warm * min(1.0, max(0.02, 2 * (1 - step / self.steps)))


@dataclass(frozen=True)
class Batch:
    """`ids`, `weights`: [B, T]; `inputs`: a model's inputs in addition to ids [B, T - 1]."""

    ids: torch.Tensor
    weights: torch.Tensor
    inputs: dict[str, torch.Tensor]


def make_checkpoint(out: Path, draw: Draw, recipe: Recipe | None = None, seed: int = 0) -> None:
    """Trains on dialogues of `draw`, and saves a Hugging Face folder; an interrupted run continues from its last
    saved state. The same seed gives a similar model, not the same bits: sums of floats depend on the machine."""
    recipe = recipe or Recipe()
    torch.manual_seed(seed)
    tokenizer = make_tokenizer(out, draw, recipe, random.Random(f"{seed} tokenizer"))
    model = new_model(tokenizer, recipe)
    optimizers = new_optimizers(model)
    first = _restored(out / STATE, model, optimizers)
    rng = random.Random(f"{seed} dialogues from {first}")
    sight = recipe.vision.sight(model, out) if recipe.vision else None
    placed, inputs = (sight.of_messages, sight.inputs) if sight else (no_pictures, _no_inputs)
    stream = batches(
        lambda: encode(tokenizer, draw(rng), recipe.background, placed), rng, recipe.batch_tokens, inputs
    )
    began, average = time.monotonic(), None
    for step in range(first, recipe.steps):
        if step > first and step % SAVE_EVERY == 0:
            parts = [one.state_dict() for one in (model, *optimizers)]
            torch.save({"step": step, "parts": parts}, out / STATE)
        loss = train_step(model, optimizers, next(stream), recipe.rate_at(step), recipe.batch_tokens)
        average = loss if average is None else 0.98 * average + 0.02 * loss
        if step % 100 == 99:
            logger.info("step %d  loss %.4f  %.0f s", step + 1, average, time.monotonic() - began)
    save(model, tokenizer, out)
    (out / STATE).unlink(missing_ok=True)


def _restored(file: Path, model: PreTrainedModel, optimizers: list[torch.optim.Optimizer]) -> int:
    """Restores the state in `file`; returns the number of its steps, 0 if there is none."""
    if not file.exists():
        return 0
    state = torch.load(file, weights_only=True)
    own, *others = state["parts"]
    model.load_state_dict(own)
    for optimizer, saved in zip(optimizers, others, strict=True):
        optimizer.load_state_dict(saved)
    return int(state["step"])


def make_tokenizer(out: Path, draw: Draw, recipe: Recipe, rng: random.Random) -> ChatTokenizer:
    """Trains the tokenizer on the texts of dialogues, and saves it."""
    dialogues = [draw(rng) for _ in range(recipe.corpus)]
    systems = sorted({text for one in dialogues if (text := system_text(one.start))})
    marks, template = (MARKS.values(), SEEING_TEMPLATE) if recipe.vision else ((), TEMPLATE)
    phrases = [*systems, *recipe.phrases, *marks]
    made = train_tokenizer(map(_words, dialogues), recipe.vocabulary, phrases, recipe.context, template)
    made.save_pretrained(out)
    return ChatTokenizer(str(out))


def _words(dialogue: Dialogue) -> str:
    spoken = [message for message in dialogue.start.messages if message["role"] != "system"]
    spoken += [message for turn in dialogue.turns for message in turn.shown]
    texts = [f"{message['role']}\n{text_of(message['content'])}" for message in spoken]
    return "\n".join(["system", *texts, *(f"assistant\n{turn.text}" for turn in dialogue.turns)])


def new_model(tokenizer: ChatTokenizer, recipe: Recipe) -> PreTrainedModel:
    """Returns an untrained Qwen3, with the default recipe of 0.39 million parameters; or a Qwen3-VL."""
    end, pad = tokenizer.fast.convert_tokens_to_ids([TURN_END, END_OF_TEXT])
    sizes = {
        "vocab_size": len(tokenizer.fast),
        "hidden_size": recipe.hidden,
        "intermediate_size": 3 * recipe.hidden,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": recipe.context,
        "initializer_range": 0.04,
        "eos_token_id": end,
        "pad_token_id": pad,
        "bos_token_id": None,
    }
    if recipe.vision:
        return recipe.vision.model(tokenizer, end, sizes)
    return Qwen3ForCausalLM(Qwen3Config(**sizes, tie_word_embeddings=True))


def new_optimizers(model: PreTrainedModel) -> list[torch.optim.Optimizer]:
    """Returns Muon for the matrices and AdamW for the embedding and the norms; the rate is set before each step."""
    inner = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    muon = torch.optim.Muon(inner, lr=0.0, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(rest, lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)]


def train_step(
    model: PreTrainedModel,
    optimizers: list[torch.optim.Optimizer],
    batch: Batch,
    rate: float,
    normaliser: float,
) -> float:
    """Does one update; returns the mean loss of a token by weight. The sum is divided by a constant, so that short
    dialogues have no more weight than long ones."""
    ids, weights = batch.ids, batch.weights[:, 1:]
    kept = weights > 0
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False, **batch.inputs).last_hidden_state
    dist = DenseDistribution(model.lm_head(hidden[kept]))
    loss = sft_loss(dist, ids[:, 1:][kept], weighted_sum(weights[kept], 0.35 * normaliser)).loss
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach() * 0.35 * normaliser / weights.sum())


def _no_inputs(documents: Sequence[Document], length: int) -> dict[str, torch.Tensor]:
    return {}


def batches(
    draw: Callable[[], Document],
    rng: random.Random,
    budget: int,
    inputs: Inputs = _no_inputs,
    pool: int = 600,
) -> Iterator[Batch]:
    """Yields batches of at most `budget` tokens with padding, without end; of `pool` documents at a time, those of
    similar length share a batch."""
    while True:
        groups: list[list[Document]] = [[]]
        for document in sorted((draw() for _ in range(pool)), key=lambda one: len(one.ids)):
            if len(document.ids) * (len(groups[-1]) + 1) > budget:
                groups.append([])
            groups[-1].append(document)
        rng.shuffle(groups)
        yield from (_padded(group, inputs) for group in groups if group)


def _padded(documents: list[Document], inputs: Inputs) -> Batch:
    shape = len(documents), max(len(document.ids) for document in documents)
    ids, weights = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
    for row, document in enumerate(documents):
        ids[row, : len(document.ids)] = torch.tensor(document.ids)
        weights[row, : len(document.ids)] = torch.tensor(document.weights)
    return Batch(ids, weights, inputs(documents, shape[1] - 1))


def save(model: PreTrainedModel, tokenizer: ChatTokenizer, out: Path) -> None:
    """Saves a Hugging Face folder; the serving temperature is 1."""
    ends: list[Any] = tokenizer.fast.convert_tokens_to_ids([TURN_END, END_OF_TEXT])
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=1.0, eos_token_id=ends, pad_token_id=ends[1]
    )
    model.save_pretrained(out)
