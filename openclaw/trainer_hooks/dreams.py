"""Adds steps of dreams after a batch: rows whose teacher reads a person's wish, and anchors that preserve other
behaviour.

A dream (`openclaw.dreaming`) is trained after a prompt without the wish, toward the teacher that reads the wish (forward
KL). An anchor's teacher reads the anchor's own prompt. Neither has a reward.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from claw_base.run_folder.records import engine_urls
from openclaw.dreaming import contrasts
from openclaw.dreaming.asking import Engines
from openclaw.dreaming.batch import Demand, DreamBatch
from openclaw.dreaming.dreamer import Dreamer
from openclaw.dreaming.measures import LEARNED
from openclaw.dreaming.settings import DreamArguments
from openclaw.engine.live_adapter import live_adapter
from openclaw.errors import ConfigError
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.store import RolloutStore
from openclaw.store.dreams import Dream
from openclaw.store.memory import Statement
from openclaw.store.shares import Person
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.trainer_hooks.rows import Row
from openclaw.trainer_hooks.trust import Trust, without_untrusted
from openclaw.types import DEFAULT_TRAINER, SampleRecord, adapter_of

DREAM, ANCHOR = "dream", "anchor_bank"
"""The `case` of such a row."""
LOOKED_BACK = 6
"""Number of a person's newest wishes among which those of certain form are searched."""
MAINTENANCE = 2
"""Steps after a batch whose wishes are learned."""
HALF_LEARNED = 0.5
"""Share of held-out answers that show a wish up to which all of --dream-first-steps follow a batch."""
MOST_LOST = 0.25
"""Lost share of obeyed requests for the opposite from which all of --dream-first-steps follow a batch."""
ANCHOR_TOKENS = 14
"""Number of an anchor's tokens with the same total weight as a dream. An anchor's loss is over all its tokens:
stopping early costs little for each token, and the whole answer (lab/findings/dreaming.md)."""
HELD_TOKENS = 48
"""Longest part of an anchor's answer that is trained. Later tokens hardly differ, and take most of the time."""
MISMATCH = 4
"""Weight of a mismatch's token (`openclaw.dreaming.contrasts`), relative to other anchors' tokens."""
TEMPERATURE = 1.0
"""Temperature of the teacher's and the policy's distributions in the loss."""


def check(settings: HookSettings) -> None:
    """Raises ConfigError for settings with dreams but without a teacher that would read them."""
    if settings.dreams.is_on and not settings.teaches_in_trainer:
        raise ConfigError(
            "--dream-steps needs a method with hints and its teacher in the trainer: nothing else uses the wishes; "
            "drop it, or --teacher-source inference"
        )


def dreamer_of(settings: HookSettings, store: RolloutStore, prompts: HintedPrompts) -> Dreamer:
    """Returns a dreamer for the trained policy that uses the engines of this run and external ones."""
    trainer, run_dir = settings.buffer.trainer_id, Path(settings.trainer.run_dir)
    name = adapter_of(trainer)

    def urls() -> list[str]:
        return [*engine_urls(run_dir), *settings.served.rollout_external_engine_addrs]

    def engines(urls: Sequence[str], stop_ids: Sequence[int], **options: Any) -> Engines:
        adapter = None if name is None else live_adapter(run_dir, name)
        return Engines(urls, stop_ids, adapter=adapter, **options)

    return Dreamer(store, settings.dreams, trainer, prompts, urls, engines)


def demand_of(
    store: RolloutStore,
    records: Sequence[SampleRecord],
    rollout_id: int,
    trust: Trust | None,
    trainer: str = DEFAULT_TRAINER,
) -> Demand:
    """Returns the wishes of the people of a batch. People who are not trusted now are excluded."""
    turns = [record.turn for record in records]
    people = {turn.person for turn in turns}

    def ask(excluded: Collection[Person]) -> dict[Person, list[Statement]]:
        known = people.difference(excluded)
        return store.memory.asked_by([turn.id for turn in turns], LOOKED_BACK, known, trainer)

    asked = without_untrusted(trust, ask, lambda by_person: by_person)
    own = {turn.id for turn in turns}
    complained = {
        person for person, statements in asked.items() if own & {wish.turn_id for wish in statements}
    }
    newest = max(turns, key=lambda turn: turn.created_at)
    return Demand(rollout_id, asked, frozenset(complained), newest.sampling.get("enable_thinking", True))


def count_steps(arguments: DreamArguments, dream_batch: DreamBatch) -> int:
    """Returns the number of dream steps after a batch. With a measured share of held-out answers that show the wishes:
    --dream-first-steps up to a half, then proportionally fewer, and two if the wishes are learned. The same applies to
    lost requests for the opposite: all steps if a quarter is lost. After a complaint, or without a measurement, it is at
    least --dream-steps; two if the complaint is about answers of a version that an update may have replaced since."""
    if not dream_batch.dreams:
        return 0
    if dream_batch.follows and not dream_batch.is_new:
        return min(arguments.dream_steps, MAINTENANCE)
    if dream_batch.learned is None:
        return arguments.dream_first_steps if dream_batch.is_new else arguments.dream_steps
    least = arguments.dream_steps if dream_batch.is_asked else min(arguments.dream_steps, MAINTENANCE)
    missing = 0.0 if dream_batch.learned >= LEARNED else (1 - dream_batch.learned) / (1 - HALF_LEARNED)
    if dream_batch.kept is not None:
        missing = max(missing, (1 - dream_batch.kept) / MOST_LOST)
    return max(least, round(arguments.dream_first_steps * min(1.0, missing)))


def rows_of(
    arguments: DreamArguments, dream_batch: DreamBatch, record: SampleRecord, rollout_id: int, after: int,
    stop_ids: Collection[int],
) -> list[Row]:  # fmt: skip
    """Returns the rows of all steps of dreams, the same for the same rollout and dream_batch.

    Args:
        record: a sample of the batch, for the names of its rewards.
        after: number of the last extra step before them.
        stop_ids: tokens that end an answer.
    """

    def end_weight(dream: Dream, weight: float) -> float:
        return weight if dream.completion_ids[-1] in stop_ids else 0.0

    rows: list[Row] = []
    for number in range(1, count_steps(arguments, dream_batch) + 1):
        seed = f"dreams of step {number} behind rollout {rollout_id}"
        dreams, held = dream_batch.step(seed, arguments.dream_rows, arguments.dream_anchors)
        for one in dreams:
            row = _row(one, DREAM, dream_batch.weight(one), record, rollout_id, after + number, len(rows))
            rows.append({**row, "end_weight": end_weight(one, arguments.dream_end_weight)})
        for whole in held:
            one = replace(whole, completion_ids=whole.completion_ids[:HELD_TOKENS])
            weight = arguments.dream_anchor_weight * dream_batch.anchor_factor
            weight *= len(one.completion_ids) / ANCHOR_TOKENS
            end = 0.0
            if contrasts.is_mismatch(one.theme):
                weight *= MISMATCH
                # a short answer ends where a requested long one must not
                end = -arguments.dream_end_weight if contrasts.asks_for_long(one.theme) else 0.0
            row = _row(one, ANCHOR, weight, record, rollout_id, after + number, len(rows))
            rows.append({**row, "end_weight": end_weight(one, end)})
    return rows


def metrics_of(rows: Sequence[Row], dream_batch: DreamBatch) -> dict[str, float]:
    """Returns numbers for the trainer's log."""
    looked = {"rollout/dream_learned": dream_batch.learned, "rollout/dream_kept": dream_batch.kept}
    return {name: share for name, share in looked.items() if share is not None} | {
        "rollout/dream_steps": float(len({row["companion"] for row in rows})),
        "rollout/dream_rows": float(len(rows)),
        "rollout/dream_anchor_factor": dream_batch.anchor_factor,
        "rollout/dream_sampled": float(dream_batch.sampled),
        "rollout/dream_seconds": dream_batch.seconds,
    }


def _row(
    dream: Dream, case: str, weight: float, record: SampleRecord, rollout_id: int, step: int, number: int
) -> Row:
    index = f"{case}-{rollout_id}-{number}"
    answer = dream.completion_ids
    return {
        "index": index,
        "group_index": index,
        "rollout_id": rollout_id,
        "session_id": case,
        "prompt": dream.item,
        "response": "",
        "tokens": dream.prompt_ids + answer,
        "response_length": len(answer),
        "loss_mask": [1] * len(answer),
        "temperature": TEMPERATURE,
        "status": "completed",
        "reward": dict.fromkeys(record.reward, 0.0) if isinstance(record.reward, dict) else 0.0,
        "teacher_tokens_candidates": [dream.taught_ids + answer],
        "companion": step,
        "divergence": "forward",
        "loss_weight": weight,
        "metadata": {"case": case},
    }
