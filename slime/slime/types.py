"""The vocabulary of the trainer: a sample, samples that belong together, and what rollout functions return.

* A group is the samples of one prompt.
* A trajectory is the samples that answer one of them: a generate function may answer with several (a list), such as one a
  turn. They share the group and the index of the sample that was asked for. Comparisons, counts and averages are over
  trajectories, however many samples one has.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypeAlias, get_args

from slime.errors import DataError
from slime.vision.place import ImagePlace, problem

Divergence = Literal["forward"]


class SampleStatus(Enum):
    """The end of a generation."""

    PENDING = "pending"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass
class Sample:
    """One prompt with one response; everything a training step needs to know of it.

    `tokens` = prompt ids + response ids, the training data; `response` is only its text. Lists "per
    response token" have length R = `response_length`; a None means that the value does not exist, and never
    that it is zero. R may include tokens that the model did not write (tool output): their `loss_mask` is 0.

    Attributes:
        loss_mask: [R] of 0 or 1, any number of segments; None means all ones.
        rollout_log_probs: [R], the engine's log-probs at `temperature`; 0.0 on tokens with mask 0.
        version_spans: (weight version, start, end) in response coordinates.
        temperature: at which the response was sampled; training divides the logits by it.
        reward: a number, or several by name (`--reward-key` chooses).
        teacher_log_probs: [R]; teacher_topk_log_probs and teacher_topk_indices: [R][K], likeliest first; all of
            them at `temperature`.
        teacher_tokens_candidates: for each hint, the shortest first, ids of the prompt with that hint + the
            ids of the response, for a teacher in the trainer; an empty list: the turn has no hint.
        next_tokens: [N] ids of the message right after the response; never part of it.
        observed: [R + N] of 0 or 1: which tokens with loss mask 0, and which of next_tokens, the environment or a person
            wrote: --echo-coef learns to predict them. None: none.
        images: those among the tokens, in their order; a prompt's stand before its end, others where loss_mask is 0.
        remove_sample: the sample counts in its group's normalisation and is not trained.
        companion: 0, or the sample accompanies those before it: number n is trained in the n-th optimizer step after
            theirs, together with their other companions of that number, and counts in no metric of the batch.
        loss_weight: factor of this sample's tokens in the loss, 0 or more; denominators stay as they are.
        divergence: None: the sample is trained by the loss of the method. "forward": by the forward KL from its teacher
            alone, which reads the one entry of `teacher_tokens_candidates`; it needs no reward, and rewards, clips and
            KL terms leave it alone.
        end_weight: with a divergence, w >= 0 adds w * -log p of the last token, which teaches to end there; w < 0 adds
            |w| * -log(1 - p), which teaches not to.
        generate_function_path, custom_rm_path: hooks of this sample alone, in place of those of the flags.
    """

    group_index: int | str | None = None
    index: int | str | None = None
    rollout_id: int | None = None
    session_id: str | None = None
    prompt: str | list[dict[str, Any]] = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: Any = None
    reward: float | dict[str, Any] | None = None
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    version_spans: list[tuple[int, int, int]] = field(default_factory=list)
    temperature: float = 1.0
    teacher_log_probs: list[float] | None = None
    teacher_topk_log_probs: list[list[float]] | None = None
    teacher_topk_indices: list[list[int]] | None = None
    teacher_tokens_candidates: list[list[int]] | None = None
    observed: list[int] | None = None
    next_tokens: list[int] = field(default_factory=list)
    images: list[ImagePlace] = field(default_factory=list)
    remove_sample: bool = False
    companion: int = 0
    loss_weight: float = 1.0
    divergence: Divergence | None = None
    end_weight: float = 0.0
    status: SampleStatus = SampleStatus.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)
    generate_function_path: str | None = None
    custom_rm_path: str | None = None

    Status = SampleStatus

    def __post_init__(self) -> None:
        self.status = SampleStatus(self.status)
        self.version_spans = [(int(v), int(s), int(e)) for v, s, e in self.version_spans]
        try:
            self.images = [ImagePlace.of(image) for image in self.images]
        except (ValueError, TypeError, KeyError) as error:
            raise self._error(f"images: {error}") from error
        self.validate()

    def validate(self) -> None:
        """Raises DataError if parts of the sample contradict each other."""
        if not 0 <= self.response_length <= len(self.tokens):
            raise self._error(
                f"response_length {self.response_length} does not fit {len(self.tokens)} tokens"
            )
        for name in ("loss_mask", "rollout_log_probs", "teacher_log_probs"):
            self._check_length(name)
        self._check_teacher()
        self._check_divergence()
        if self.loss_mask is not None and not set(self.loss_mask) <= {0, 1}:
            raise self._error("loss_mask may hold only 0 and 1")
        self._check_observed()
        if self.images and (wrong := problem(self.images, len(self.tokens), self.prompt_length, self.mask)):
            raise self._error(wrong)
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise self._error(f"temperature must be above 0 to be trained on, got {self.temperature}")
        self._check_spans()

    def _check_divergence(self) -> None:
        if not (self.loss_weight >= 0 and math.isfinite(self.loss_weight)):
            raise self._error(f"loss_weight must be a finite number of 0 or more, got {self.loss_weight}")
        if not math.isfinite(self.end_weight):
            raise self._error(f"end_weight must be a finite number, got {self.end_weight}")
        if self.divergence is None:
            if self.end_weight:
                raise self._error(f"end_weight {self.end_weight} needs a divergence")
            return
        if self.divergence not in get_args(Divergence):
            known = ", ".join(get_args(Divergence))
            raise self._error(f"unknown divergence {self.divergence!r}; choose {known}, or leave it out")
        if len(self.teacher_tokens_candidates or ()) != 1:
            raise self._error(
                f"divergence {self.divergence!r} needs exactly one entry in teacher_tokens_candidates, "
                f"got {len(self.teacher_tokens_candidates or ())}"
            )

    def _check_observed(self) -> None:
        if self.observed is None:
            return
        own = [1] * self.response_length if self.loss_mask is None else self.loss_mask
        written = own + [0] * len(self.next_tokens)
        if len(self.observed) != len(written):
            raise self._error(
                f"observed has {len(self.observed)} entries for {len(written)} tokens of response and next_tokens"
            )
        if any(seen not in (0, 1 - is_own) for seen, is_own in zip(self.observed, written, strict=True)):
            raise self._error("observed may hold 1 only where loss_mask is 0")

    def _check_length(self, name: str) -> None:
        values: Sequence[Any] | None = getattr(self, name)
        if values is not None and len(values) != self.response_length:
            raise self._error(f"{name} has {len(values)} entries for {self.response_length} response tokens")

    def _check_teacher(self) -> None:
        log_probs, ids = self.teacher_topk_log_probs, self.teacher_topk_indices
        for name in ("teacher_topk_log_probs", "teacher_topk_indices"):
            self._check_length(name)
        if (log_probs is None) != (ids is None):
            raise self._error("teacher_topk_log_probs and teacher_topk_indices must be given together")
        widths = {len(row) for row in [*(log_probs or ()), *(ids or ())]}
        if len(widths) > 1:
            raise self._error(
                f"teacher_topk_* have rows of {sorted(widths)} entries; all need the same number"
            )
        if any(len(set(row)) != len(row) for row in ids or ()):
            raise self._error("teacher_topk_indices names an id twice at one position")
        for values in (self.teacher_log_probs or (), *(log_probs or ())):
            if not all(math.isfinite(value) for value in values):
                raise self._error("the teacher's log-probs must be finite numbers")
        if self.images and self.teacher_tokens_candidates:
            raise self._error("a teacher in the trainer reads no images")
        answer = self.tokens[self.prompt_length :]
        for candidate in self.teacher_tokens_candidates or ():
            length = len(candidate) - len(answer)
            if length < 1 or candidate[length:] != answer:
                raise self._error(
                    "each of teacher_tokens_candidates must be a prompt and the response's own ids"
                )

    def _check_spans(self) -> None:
        end_before = 0
        for version, start, end in self.version_spans:
            if not end_before <= start <= end <= self.response_length:
                raise self._error(
                    f"version span ({version}, {start}, {end}) overlaps another span or exceeds the response"
                )
            end_before = end

    def _error(self, message: str) -> DataError:
        return DataError(f"sample {self.index!r}: {message}")

    @property
    def prompt_length(self) -> int:
        """Tokens before the response."""
        return len(self.tokens) - self.response_length

    @property
    def mask(self) -> list[int]:
        """The loss mask, written out, [R]; all zeros for a removed sample."""
        if self.remove_sample:
            return [0] * self.response_length
        return [1] * self.response_length if self.loss_mask is None else self.loss_mask

    @property
    def effective_response_length(self) -> int:
        """Number of tokens that are trained on."""
        return sum(self.mask)

    @property
    def is_hinted(self) -> bool:
        """Returns whether a teacher reads a hint for the sample, or has read one."""
        return bool(self.teacher_tokens_candidates or self.teacher_topk_indices)

    @property
    def counted(self) -> bool:
        """Returns whether the sample counts in the metrics of its batch."""
        return not self.companion and self.divergence is None

    @property
    def versions(self) -> set[int]:
        """Weight versions that wrote at least one token."""
        return {version for version, start, end in self.version_spans if end > start}

    def get_reward_value(self, key: str | None = None) -> float:
        """Returns the reward as one finite number; 0 for a sample that follows its teacher alone and has none.

        Raises:
            DataError: no reward, a missing key, a key missing although there are several rewards, not a
                finite number.
        """
        value: Any = self.reward
        if value is None and self.divergence is not None:
            return 0.0
        if isinstance(value, Mapping):
            if key is None or key not in value:
                raise self._error(
                    f"has rewards {sorted(value)}; choose one of them with --reward-key (now {key!r})"
                )
            value = value[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._error(f"reward must be a finite number, got {value!r}")
        return float(value)

    def append_response_tokens(
        self,
        tokens: Sequence[int],
        log_probs: Sequence[float] | None = None,
        trainable: bool = True,
        version: int | None = None,
        text: str = "",
    ) -> None:
        """The one safe way to make a response longer.

        Tokens that the model wrote (`trainable`) need their log-probs; others get mask 0 and log-prob 0.0.

        Raises:
            DataError: log-probs missing, given for tokens that are not trainable, or of another length.
        """
        if trainable and (log_probs is None or len(log_probs) != len(tokens)):
            raise self._error(f"{len(tokens)} trainable tokens need as many log-probs")
        if not trainable and log_probs is not None:
            raise self._error("tokens that the model did not write have no log-probs")
        if self.next_tokens:
            raise self._error("next_tokens stand behind the response; it cannot grow any more")
        if self.response_length and (self.loss_mask is None or self.rollout_log_probs is None):
            raise self._error("cannot append to a response without loss_mask and rollout_log_probs")
        start = self.response_length
        end = start + len(tokens)
        if not trainable or self.observed is not None:
            before = [0] * self.response_length if self.observed is None else self.observed
            self.observed = before + [int(not trainable)] * len(tokens)
        self.loss_mask = (self.loss_mask or []) + [int(trainable)] * len(tokens)
        added = [float(value) for value in log_probs] if log_probs is not None else [0.0] * len(tokens)
        self.rollout_log_probs = (self.rollout_log_probs or []) + added
        self.tokens = [*self.tokens, *tokens]
        self.response += text
        self.response_length = end
        if version is not None and end > start:
            self._extend_spans(version, start, end)

    def _extend_spans(self, version: int, start: int, end: int) -> None:
        if self.version_spans and self.version_spans[-1][0] == version and self.version_spans[-1][2] == start:
            start = self.version_spans.pop()[1]
        self.version_spans.append((version, start, end))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for transport and storage."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        images = [dataclasses.asdict(image) for image in self.images]
        return {**fields, "images": images, "status": self.status.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Sample:
        """The inverse of `to_dict`; fields may be missing.

        Raises:
            DataError: an unknown field, or parts that contradict each other.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise DataError(f"sample {data.get('index')!r}: unknown fields {unknown}; put them into metadata")
        return cls(**data)


@dataclass(frozen=True)
class RolloutFnTrainOutput:
    """The result of a rollout function for training: groups of samples, and its own metrics.

    `policy`: name of the adapter that is trained on them; None: there is one policy.
    """

    samples: list[list[Sample]]
    metrics: dict[str, float] | None = None
    policy: str | None = None


@dataclass(frozen=True)
class RolloutFnEvalOutput:
    """The result of a rollout function for evaluation: per dataset "rewards", "truncated" and "samples"."""

    data: dict[str, dict[str, Any]]
    metrics: dict[str, float] | None = None


def trajectories_of(samples: Iterable[Sample]) -> list[Hashable]:
    """Returns the trajectory of each sample: samples of the same group and index share one, and one
    without an index is alone."""
    return [
        ("alone", position) if sample.index is None else (sample.group_index, sample.index)
        for position, sample in enumerate(samples)
    ]


def by_trajectory(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Returns the samples of each trajectory, in the order of the first of each."""
    trajectories: dict[Hashable, list[Sample]] = defaultdict(list)
    for sample, trajectory in zip(samples, trajectories_of(samples), strict=True):
        trajectories[trajectory].append(sample)
    return list(trajectories.values())


Group: TypeAlias = Sequence[Any]
"""n_samples_per_prompt entries, each a Sample or a list of Samples."""

DONE = (SampleStatus.COMPLETED, SampleStatus.TRUNCATED)
FAILURE = "failure"
ATTEMPTS = "rollout_attempts"


def flatten(groups: Any) -> Iterator[Sample]:
    """Yields the samples in lists of any depth, in order."""
    if isinstance(groups, Sample):
        yield groups
        return
    for group in groups:
        yield from flatten(group)


def group_id(group: Group) -> int | str:
    """Returns the group index of its samples. Raises DataError if it has none or several."""
    ids = {sample.group_index for sample in flatten(group)}
    if len(ids) != 1 or None in ids:
        raise DataError(
            f"the samples of a group must share one group_index, these have {sorted(map(str, ids))}"
        )
    (index,) = ids
    assert index is not None
    return index


def is_done(sample: Sample) -> bool:
    return sample.status in DONE


def fresh(sample: Sample) -> Sample:
    """Returns the sample as it was before anything was generated."""
    metadata = {
        name: value for name, value in sample.metadata.items() if name not in (FAILURE, "start_rollout_id")
    }
    return Sample(
        group_index=sample.group_index,
        index=sample.index,
        session_id=sample.session_id,
        prompt=copy.deepcopy(sample.prompt),
        label=copy.deepcopy(sample.label),
        metadata=copy.deepcopy(metadata),
        generate_function_path=sample.generate_function_path,
        custom_rm_path=sample.custom_rm_path,
    )


def to_retry(group: Group, keep_partial: bool) -> list[Any]:
    """Returns the group with finished samples unchanged, and the others to be generated again.

    Args:
        keep_partial: an interrupted answer is continued; otherwise it starts again.
    """
    return [_entry_to_retry(entry, keep_partial) for entry in group]


def _entry_to_retry(entry: object, keep_partial: bool) -> Any:
    samples = list(flatten(entry))
    if all(map(is_done, samples)):
        return entry
    if isinstance(entry, Sample) and entry.status is SampleStatus.ABORTED and keep_partial:
        return entry
    return fresh(samples[0])


def statuses(group: Group) -> set[SampleStatus]:
    return {sample.status for sample in flatten(group)}


def has_bad_reward(group: Group, reward_key: str | None) -> bool:
    """Returns whether a reward of the group is there and is not a finite number."""
    return any(
        not _is_finite(sample.reward, reward_key) for sample in flatten(group) if sample.reward is not None
    )


def _is_finite(reward: object, key: str | None) -> bool:
    value = reward.get(key) if isinstance(reward, dict) and key is not None else reward
    return not isinstance(value, float) or math.isfinite(value)


def rewards_of(samples: Iterable[Sample], reward_key: str | None) -> list[float]:
    """Returns the rewards that are finite numbers; the trainer decides whether a missing one matters."""
    rewards = []
    for sample in samples:
        try:
            rewards.append(sample.get_reward_value(reward_key))
        except DataError:
            continue
    return rewards
