"""Creates tiny-claw: `bash lab/run.sh tiny_models.tiny_claw.recipe --out DIR`.

Supervised training of a small Qwen3 with slime's SFT loss, in three cycles: the first begins with bare equations and
continues with the mix of conversations, the second repeats the mix with a smaller learning rate that ends at zero,
the third adds many instructions about length and tone, and freely written ones. All lengths are in tokens, so the
result does not depend on how fast the machine is. `--further MODEL` trains an existing model on the third cycle once
more.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from claw_lab import MODEL
from claw_lab.tiny_models.tiny_claw.encoding import Batch, batches, equation_document, mixed_document
from claw_lab.tiny_models.tiny_claw.tokenizer import (
    CONTEXT,
    END_OF_TEXT,
    TURN_END,
    load_tokenizer,
    train_tokenizer,
)
from slime.losses import DenseDistribution, sft_loss, weighted_sum

TOKENS_PER_MINUTE = 400_000  # rate of two cores with some other load
BATCH_TOKENS = 2560
# About the loss weight of one batch; constant, so that short replies have no more weight than long ones
NORMALISER = 800.0
WARMUP_STEPS = 60
SAVE_EVERY = 400  # steps


@dataclass(frozen=True)
class Cycle:
    """`share` of all tokens; the first `equations` of these are bare equations, `long_share` of the other documents
    have a long system message, of those without it `lengths` are about length and tone of prose, and `written` have
    freely written requests. The learning rate is `peak` until `hold` of the cycle, then falls linearly to `floor`
    times the peak."""

    share: float
    equations: float
    long_share: float
    lengths: float
    written: float
    peak: float
    hold: float
    floor: float

    def rate(self, progress: float) -> float:
        falling = max(0.0, (progress - self.hold) / (1 - self.hold))
        return self.peak * max(self.floor, 1 - falling)


CYCLES = (
    Cycle(
        share=0.43, equations=0.35, long_share=0.0, lengths=0.0, written=0.0, peak=6e-3, hold=0.55, floor=0.02
    ),
    Cycle(
        share=0.35, equations=0.0, long_share=0.06, lengths=0.0, written=0.0, peak=3e-3, hold=0.0, floor=0.0
    ),
    Cycle(
        share=0.22, equations=0.0, long_share=0.06, lengths=0.3, written=0.35, peak=3e-3, hold=0.3, floor=0.0
    ),
)


@dataclass
class Run:
    """A training run; its state file contains all state, so that it can be resumed."""

    model: Qwen3ForCausalLM
    optimizers: list[torch.optim.Optimizer]
    step: int = 0
    tokens: int = 0
    cycle: int = 0
    cycle_tokens: int = 0
    cycle_steps: int = 0

    def state(self) -> dict[str, Any]:
        counters = {
            name: getattr(self, name) for name in ("step", "tokens", "cycle", "cycle_tokens", "cycle_steps")
        }
        return {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "counters": counters,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        for name, value in state["counters"].items():
            setattr(self, name, value)


def new_model(vocabulary: int, end_id: int, pad_id: int) -> Qwen3ForCausalLM:
    """Returns a Qwen3 of about one million parameters with Qwen3's context length and rotary base."""
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
        initializer_range=0.04,
        eos_token_id=end_id,
        pad_token_id=pad_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def new_run(model: Qwen3ForCausalLM) -> Run:
    """Returns a run with Muon for the matrices and AdamW for the embedding and the norms; the rate is set before each
    step."""
    inner = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    muon = torch.optim.Muon(inner, lr=0.0, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(rest, lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)
    return Run(model, [muon, adamw])


def train_step(run: Run, batch: Batch, rate: float) -> float:
    """Does one update on one batch; returns the mean loss of a token, by weight."""
    for optimizer in run.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
    logits = run.model(input_ids=batch.ids[:, :-1], use_cache=False, **_positions(batch)).logits
    weights = batch.weights[:, 1:]
    kept = weights > 0
    reducer = weighted_sum(weights[kept], NORMALISER)
    loss = sft_loss(DenseDistribution(logits[kept]), batch.ids[:, 1:][kept], reducer).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
    for optimizer in run.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach() * NORMALISER / weights.sum())


def _positions(batch: Batch) -> dict[str, torch.Tensor]:
    """Returns positions and mask; positions with gaps need a mask, or they would mean several packed documents."""
    if batch.positions is None:
        return {}
    return {"position_ids": batch.positions[:, :-1], "attention_mask": (batch.weights[:, :-1] > 0).long()}


def train_cycle(
    run: Run, tokenizer: Any, cycle: Cycle, length: int, seed: int, state_file: Path | None
) -> Iterator[float]:
    """Trains until the cycle has read `length` tokens; yields the loss of each step."""
    rng = random.Random(f"{seed} {run.cycle} {run.step}")
    mixed = partial(mixed_document, long_share=cycle.long_share, lengths=cycle.lengths, written=cycle.written)
    kinds = (equation_document, mixed)
    streams = [batches(partial(document, tokenizer, rng), rng, BATCH_TOKENS) for document in kinds]
    while run.cycle_tokens < length:
        progress = run.cycle_tokens / length
        batch = next(streams[0] if progress < cycle.equations else streams[1])
        loss = train_step(run, batch, cycle.rate(progress) * min(1.0, (run.cycle_steps + 1) / WARMUP_STEPS))
        run.step += 1
        run.cycle_steps += 1
        run.tokens += batch.tokens
        run.cycle_tokens += batch.tokens
        if state_file and run.step % SAVE_EVERY == 0:
            _save_state(run, state_file)
        yield loss


def make(
    out: Path, total_tokens: int, seed: int = 0, new_tokenizer: bool = False, further: Path | None = None
) -> int:
    """Trains and saves into `out`; an interrupted run continues from its last saved state.

    Args:
        further: folder of a model to train on `total_tokens` of the last cycle, instead of a new model on all three.

    Returns:
        The number of tokens read.
    """
    torch.manual_seed(seed)
    tokenizer = train_tokenizer() if new_tokenizer else load_tokenizer(further or MODEL)
    if further:
        run = new_run(Qwen3ForCausalLM.from_pretrained(further, dtype=torch.float32))
        run.cycle = len(CYCLES) - 1
        total_tokens = round(total_tokens / CYCLES[-1].share)
    else:
        end_id, pad_id = tokenizer.convert_tokens_to_ids([TURN_END, END_OF_TEXT])
        run = new_run(new_model(len(tokenizer), end_id, pad_id))
    out.mkdir(parents=True, exist_ok=True)
    state_file = out / ("further_state.pt" if further else "training_state.pt")
    if state_file.exists():
        run.restore(torch.load(state_file, weights_only=True))
    started, tokens_before = time.monotonic(), run.tokens
    average = None
    while run.cycle < len(CYCLES):
        cycle = CYCLES[run.cycle]
        for loss in train_cycle(run, tokenizer, cycle, round(total_tokens * cycle.share), seed, state_file):
            average = loss if average is None else 0.98 * average + 0.02 * loss
            if run.step % 100 == 0:
                speed = (run.tokens - tokens_before) / (time.monotonic() - started)
                print(
                    f"step {run.step}  tokens {run.tokens:,}  loss {average:.4f}  {speed:,.0f} tokens/s",
                    flush=True,
                )
        run.cycle, run.cycle_tokens, run.cycle_steps = run.cycle + 1, 0, 0
        save(run.model, tokenizer, out)
        _save_state(run, state_file)
    state_file.unlink()
    return run.tokens


def save(model: Qwen3ForCausalLM, tokenizer: Any, out: Path) -> None:
    """Saves a Hugging Face folder; the serving temperature is 1."""
    end_ids = tokenizer.convert_tokens_to_ids([TURN_END, END_OF_TEXT])
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=1.0, eos_token_id=end_ids, pad_token_id=end_ids[1]
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _save_state(run: Run, file: Path) -> None:
    part = file.with_suffix(".part")
    torch.save(run.state(), part)
    part.replace(file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the model; an interrupted run is resumed"
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--minutes",
        type=float,
        default=32.0,
        help="training length in minutes on two idle cores, converted to tokens",
    )
    length.add_argument("--tokens", type=int, help="training length in tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--new-tokenizer",
        action="store_true",
        help="also train the tokenizer, instead of using the shipped one",
    )
    start.add_argument(
        "--further", type=Path, metavar="MODEL", help="train this model on --tokens of the last cycle"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokens = args.tokens or round(args.minutes * TOKENS_PER_MINUTE)
    make(args.out, tokens, args.seed, args.new_tokenizer, args.further)


if __name__ == "__main__":
    main()
