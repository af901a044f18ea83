"""The steps from the rollout buffer to a training batch, with store, settings and state."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from openclaw.dreaming.batch import DreamBatch
from openclaw.dreaming.dreamer import Dreamer
from openclaw.errors import StoreError
from openclaw.methods.hinted_prompt import HintedPrompts, prompts_of
from openclaw.methods.rewards import TRUST
from openclaw.store import RolloutStore
from openclaw.store.shares import Person
from openclaw.trainer_hooks import anchors, dreams, observation, replay
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.trainer_hooks.next_batch import NextBatch
from openclaw.trainer_hooks.probation import Probation
from openclaw.trainer_hooks.replay import ExtraStep
from openclaw.trainer_hooks.rows import Row, batch_metrics, sample_dict
from openclaw.trainer_hooks.standing_preferences import Teachers
from openclaw.trainer_hooks.trust import Exclusion, Trust, without_untrusted
from openclaw.types import SampleRecord


@dataclass
class Batch:
    """One rollout, filled in by the steps of the pipeline.

    Attributes:
        records: the leased samples.
        trust: how far each person is trusted; None without --trust.
        teachers: the teachers' prompts; None without --standing-wishes.
        earlier: samples of earlier rollouts that may be trained again.
        steps: samples trained after the batch, one list an optimizer step.
        own: rows of the leased samples.
        extra: rows of the extra steps.
        dream_batch: dreams of the batch; None without --dream-steps.
        dreams: rows of the steps of dreams, which come last.
    """

    rollout_id: int
    records: list[SampleRecord]
    trust: Trust | None = None
    teachers: Teachers | None = None
    earlier: list[SampleRecord] = field(default_factory=list)
    steps: list[ExtraStep] = field(default_factory=list)
    own: list[Row] = field(default_factory=list)
    extra: list[Row] = field(default_factory=list)
    dream_batch: DreamBatch | None = None
    dreams: list[Row] = field(default_factory=list)
    _made: dict[int, Row] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        """Returns all rows, those of extra steps last."""
        return [*self.own, *self.extra, *self.dreams]

    def row(self, record: SampleRecord) -> Row:
        """Returns the row of a sample, cached, because several steps may use the same turn."""
        if record.id not in self._made:
            row = sample_dict(record, self.rollout_id)
            if self.trust is not None:
                row["metadata"][TRUST] = self.trust.of(record.turn.person)
            self._made[record.id] = row if self.teachers is None else self.teachers.taught(record, row)
        return self._made[record.id]


class BatchPipeline:
    """One trainer's batches from one rollout buffer.

    Attributes:
        exclusion: whose samples wait because of --trust; None without it.
        next: which samples are the next batch.
    """

    def __init__(self, store: RolloutStore, settings: HookSettings) -> None:
        self.store, self.settings = store, settings
        self.exclusion = Exclusion(store, settings.trust) if settings.trust.is_on else None
        self.probation = Probation(store, settings, self.exclusion)
        self.next = NextBatch(store, settings, self.exclusion, self.probation, self.idle)

    def prepare(self, records: Sequence[SampleRecord], rollout_id: int) -> Batch:
        """Returns the batch of these leased samples; the same samples and samples of earlier rollouts give the same
        rows."""
        batch = Batch(rollout_id, list(records))
        self.exclude(batch)
        self.standing_preferences(batch)
        self.replay(batch)
        self.anchor(batch)
        self.dream(batch)
        self.observe(batch)
        return batch

    def lease(self, rollout_id: int) -> list[SampleRecord]:
        """Blocks until a batch is due; samples of excluded people stay in the buffer. See `NextBatch.wait`."""
        return self.next.wait(rollout_id)

    def idle(self, rollout_id: int) -> None:
        """Called while a batch is awaited: samples anchors for dreams, a few at a time in the background."""
        if self.settings.dreams.is_on:
            self.dreamer.idle(rollout_id)

    def exclude(self, batch: Batch) -> None:
        """Computes the trust in each person of the batch, which also excludes people from other data used for it."""
        if self.exclusion is not None:
            batch.trust = self.exclusion.trust_at(batch.records)

    def standing_preferences(self, batch: Batch) -> None:
        """Creates the rows, whose teachers get standing preferences with --standing-wishes."""
        if self.settings.standing_preferences.is_on:
            trainer = self.settings.buffer.trainer_id
            batch.teachers = Teachers.of(
                self.settings.standing_preferences,
                self.store,
                self.prompts,
                batch.records,
                batch.trust,
                trainer,
            )
        batch.own = [batch.row(record) for record in batch.records]

    def replay(self, batch: Batch) -> None:
        """Draws turns from this and earlier batches for the extra steps."""
        if not self.settings.trains_more:
            return
        arguments = self.settings.replay
        if not arguments.replay_steps:
            batch.steps = replay.own_steps(batch.records, batch.row)
            return
        batch.earlier = self._learned_before(batch)
        known = [*batch.records, *batch.earlier]
        batch.steps = replay.drawn_steps(arguments, batch.rollout_id, known, batch.row)

    def anchor(self, batch: Batch) -> None:
        """Adds anchors and distilled memories to the extra steps, and creates their rows."""
        if not batch.steps:
            return
        if self.settings.distils_memory:
            anchors.add_plain_prompts(batch.steps, self.prompts)
        if self.settings.anchors.anchor_share:
            anchors.add_anchors(batch.steps, self.settings, self.prompts, batch.rollout_id)
        batch.extra = anchors.rows_of(batch.steps)

    def dream(self, batch: Batch) -> None:
        """Adds steps of dreams about the preferences of the batch's people, with --dream-steps."""
        if not self.settings.dreams.is_on:
            return
        trainer = self.settings.buffer.trainer_id
        demand = dreams.demand_of(self.store, batch.records, batch.rollout_id, batch.trust, trainer)
        batch.dream_batch = self.dreamer.dreams_for(demand)
        last = max((row["companion"] for row in batch.extra), default=0)
        batch.dreams = dreams.rows_of(
            self.settings.dreams, batch.dream_batch, batch.records[0], batch.rollout_id, last,
            self.prompts.stop_ids,
        )  # fmt: skip

    def observe(self, batch: Batch) -> None:
        """Adds the next messages to the rows of whole turns, as targets of --echo-coef."""
        if self.settings.trainer.echo_coef:
            records, rows = [*batch.records, *batch.earlier], [*batch.own, *batch.extra]
            observation.add_targets(self.settings.observation, self.prompts, records, rows)

    def metrics(self, batch: Batch) -> dict[str, float]:
        """Returns metrics of a batch and of waiting data, by their names in the trainer's log."""
        dreamt = {} if batch.dream_batch is None else dreams.metrics_of(batch.dreams, batch.dream_batch)
        held_back = {} if self.exclusion is None else self.exclusion.metrics()
        return batch_metrics(batch.rows) | held_back | dreamt

    @functools.cached_property
    def prompts(self) -> HintedPrompts:
        """Returns prompts of the policy's model. Raises ConfigError."""
        return prompts_of(self.settings.trainer.hf_checkpoint)

    @functools.cached_property
    def dreamer(self) -> Dreamer:
        """Returns the sampler of dreams from the serving engines. Raises ConfigError."""
        return dreams.dreamer_of(self.settings, self.store, self.prompts)

    def _learned_before(self, batch: Batch) -> list[SampleRecord]:
        """Returns samples of earlier rollouts that may be trained again, without those of people who have lost
        trust."""
        window, trainer = self.settings.replay.replay_window, self.settings.buffer.trainer_id

        def ask(excluded: Collection[Person]) -> list[SampleRecord]:
            return self.store.samples.learned_before(batch.rollout_id, window, trainer, excluded)

        return without_untrusted(batch.trust, ask, lambda drawn: {record.turn.person for record in drawn})


_made: dict[tuple[str, str], BatchPipeline] = {}


def pipeline_of(args: object) -> BatchPipeline:
    """Returns this process's pipeline for the rollout buffer and trainer in `args`; its store is opened once.

    Raises:
        StoreError: no buffer is named, or it cannot be used.
    """
    settings = HookSettings.of(args)
    location = settings.buffer.location
    if not location:
        raise StoreError("no rollout buffer: give --rl-buffer-dir or --rl-buffer-url")
    key = location, settings.buffer.trainer_id
    known = _made.get(key)
    if known is None or known.settings != settings:
        _made[key] = BatchPipeline(_store_at(location), settings)
    return _made[key]


def _store_at(location: str) -> RolloutStore:
    """Returns the store at a location, shared by all trainers of this process."""
    opened = (one.store for (place, _), one in _made.items() if place == location)
    return next(opened, None) or RolloutStore(location)
