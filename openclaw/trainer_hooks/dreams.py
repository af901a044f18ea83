"""Steps of dreams after a batch: rows whose teacher reads a person's wish, and anchors that hold the policy elsewhere.

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
from openclaw.dreaming.dreamer import Demand, Dreamer, Night
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
"""Newest wishes of a person among which those are looked for of which it is sure what they ask for."""
MAINTENANCE = 2
"""Steps after a batch whose wishes are learned."""
HALF_LEARNED = 0.5
"""Share of held-out answers that show a wish, up to which a batch is followed by all of --dream-first-steps."""
MOST_LOST = 0.25
"""Share of obeyed requests for the contrary whose loss is followed by all of --dream-first-steps."""
ANCHOR_TOKENS = 14
"""Tokens of an anchor that weigh as much as a dream. An anchor counts by all of its tokens: to stop early costs little a
token, and the whole answer (lab/findings/dreaming.md)."""
HELD_TOKENS = 48
"""Longest part of an anchor's answer that is trained. Later tokens hardly differ, and take most of the time."""
MISMATCH = 4
"""Weight of a token of a mismatch (`openclaw.dreaming.contrasts`), relative to other anchors' tokens."""
TEMPERATURE = 1.0
"""At which the policy's distribution is drawn to the teacher's."""


def check(settings: HookSettings) -> None:
    """Raises ConfigError for dreams that no teacher would read."""
    if settings.dreams.is_on and not settings.teaches_in_trainer:
        raise ConfigError(
            "--dream-steps needs a method with hints and its teacher in the trainer: nothing else would read the wishes; "
            "drop it, or --teacher-source inference"
        )


def dreamer_of(settings: HookSettings, store: RolloutStore, prompts: HintedPrompts) -> Dreamer:
    """Returns a dreamer that asks the engines of this run and those that others run for it, for the policy that is
    trained."""
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
    """Returns the wishes of the people of a batch. People who are not trusted now are left out."""
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


def count_steps(arguments: DreamArguments, night: Night) -> int:
    """Returns how many steps of dreams follow a batch.

    If it is known which share of held-out answers shows the wishes: --dream-first-steps up to a half, then fewer in
    proportion, and two if the wishes are learned. The same for requests for the contrary that are not obeyed any more:
    all steps if a quarter is lost. After a complaint, or if it is not known, --dream-steps at least.
    """
    if not night.dreams:
        return 0
    if night.learned is None:
        return arguments.dream_first_steps if night.is_new else arguments.dream_steps
    least = arguments.dream_steps if night.is_asked else min(arguments.dream_steps, MAINTENANCE)
    missing = 0.0 if night.learned >= LEARNED else (1 - night.learned) / (1 - HALF_LEARNED)
    if night.kept is not None:
        missing = max(missing, (1 - night.kept) / MOST_LOST)
    return max(least, round(arguments.dream_first_steps * min(1.0, missing)))


def rows_of(
    arguments: DreamArguments, night: Night, record: SampleRecord, rollout_id: int, after: int
) -> list[Row]:
    """Returns the rows of all steps of dreams, the same for the same rollout and night.

    Args:
        record: a sample of the batch, for the names of its rewards.
        after: number of the last extra step before them.
    """
    rows: list[Row] = []
    for number in range(1, count_steps(arguments, night) + 1):
        seed = f"dreams of step {number} behind rollout {rollout_id}"
        dreams, held = night.step(seed, arguments.dream_rows, arguments.dream_anchors)
        for one in dreams:
            rows.append(_row(one, DREAM, night.weight(one), record, rollout_id, after + number, len(rows)))
        for whole in held:
            one = replace(whole, completion_ids=whole.completion_ids[:HELD_TOKENS])
            weight = arguments.dream_anchor_weight * len(one.completion_ids) / ANCHOR_TOKENS
            if contrasts.is_mismatch(one.theme):
                weight *= MISMATCH
            rows.append(_row(one, ANCHOR, weight, record, rollout_id, after + number, len(rows)))
    return rows


def metrics_of(rows: Sequence[Row], night: Night) -> dict[str, float]:
    """Numbers for the trainer's log."""
    looked = {"rollout/dream_learned": night.learned, "rollout/dream_kept": night.kept}
    return {name: share for name, share in looked.items() if share is not None} | {
        "rollout/dream_steps": float(len({row["companion"] for row in rows})),
        "rollout/dream_rows": float(len(rows)),
        "rollout/dream_sampled": float(night.sampled),
        "rollout/dream_seconds": night.seconds,
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
