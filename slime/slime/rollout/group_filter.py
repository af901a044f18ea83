"""Decides whether a finished group is accepted, retried, or dropped for a counted reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from slime.errors import DataError
from slime.hooks import load_hook
from slime.rollout.filters import as_output
from slime.rollout.metrics import reward_failures
from slime.types import ATTEMPTS, FAILURE, Group, SampleStatus, flatten, has_bad_reward, statuses

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide


class Verdict(Enum):
    ACCEPT = auto()
    RETRY = auto()
    DROP = auto()


@dataclass
class GroupFilter:
    """Judges and counts the groups of one rollout (or of a producer).

    Attributes:
        drops: dropped groups by reason.
        retries: retried groups by reason.
        reserve: dropped groups that may be used if a batch cannot be filled otherwise.
        seen: every accepted or dropped group, if a hook needs them.
    """

    args: GenerationSide
    drops: Counter[str] = field(default_factory=Counter)
    filtered: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    reserve: list[Group] = field(default_factory=list)
    seen: list[Group] = field(default_factory=list)
    in_a_row: Counter[str] = field(default_factory=Counter)
    last_failure: str = ""

    def __post_init__(self) -> None:
        self.filter = load_hook(self.args, "dynamic_sampling_filter_path")
        self.keeps_all = bool(self.args.rollout_all_samples_process_path)

    def judge(self, group: Group) -> Verdict:
        """Returns the decision about a group.

        Raises:
            DataError: too many consecutive groups were dropped; the message lists the reasons.
        """
        if statuses(group) & {SampleStatus.FAILED, SampleStatus.ABORTED, SampleStatus.PENDING}:
            return self._unfinished(group)
        if self.keeps_all:
            self.seen.append(group)
        if has_bad_reward(group, self.args.reward_key):
            return self._drop("nonfinite_reward")
        if self.filter is not None:
            output = as_output(self.filter(self.args, list(flatten(group))))
            if not output.keep:
                self.filtered[output.reason or "filter"] += 1
                if output.keep_when_insufficient:
                    self.reserve.append(group)
                return self._drop("dynamic_filter", output.reason)
        self.in_a_row.clear()
        return Verdict.ACCEPT

    def _unfinished(self, group: Group) -> Verdict:
        notes = [s.metadata[FAILURE] for s in flatten(group) if FAILURE in s.metadata]
        for note in notes:
            self.failures[note["reason"]] += 1
            self.last_failure = note["message"]
        reason = notes[0]["reason"] if notes else "aborted"
        first = next(flatten(group))
        tried = first.metadata.get(ATTEMPTS, 0) + 1
        if tried >= self.args.rollout_max_attempts or reason == "refused":
            return self._drop(reason)
        for sample in flatten(group):
            sample.metadata[ATTEMPTS] = tried
        self.retries[reason] += 1
        return Verdict.RETRY

    def _drop(self, reason: str, detail: str | None = None) -> Verdict:
        self.drops[reason] += 1
        self.in_a_row[detail or reason] += 1
        return Verdict.DROP

    @property
    def exhausted(self) -> bool:
        """Returns whether more consecutive groups were dropped than --rollout-drop-limit."""
        assert self.args.rollout_drop_limit is not None
        return self.in_a_row.total() >= self.args.rollout_drop_limit

    def error(self) -> DataError:
        """Returns the error for an exhausted filter with an empty reserve."""
        reasons = ", ".join(f"{reason}: {count}" for reason, count in self.in_a_row.most_common())
        last = f"; the last failure was {self.last_failure}" if self.last_failure else ""
        return DataError(
            f"{self.in_a_row.total()} consecutive groups were dropped ({reasons}){last}; check "
            "prompts, reward and filter, or raise --rollout-drop-limit"
        )

    def metrics(self) -> dict[str, float]:
        """Returns counts since the last call, and resets them."""
        metrics: dict[str, float] = {
            "rollout/dropped_groups": self.drops.total(),
            **reward_failures.take_metrics(),
        }
        for name, counts in (
            ("rollout/drop", self.drops),
            ("rollout/dynamic_filter/drop", self.filtered),
            ("rollout/retry", self.retries),
            ("rollout/error_cat", self.failures),
        ):
            joint = "_" if name.endswith("filter/drop") else "/"
            metrics |= {f"{name}{joint}{key}": count for key, count in counts.items()}
            counts.clear()
        return metrics
