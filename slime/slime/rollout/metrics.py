"""Metrics of samples and agent episodes, and the result rows of evaluations.

Lengths, truncated and failed samples, groups without advantages, age of the weights, failed rewards.
"""

from __future__ import annotations

import json
import logging
import math
import os
import statistics
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime.errors import ConfigError, RewardError
from slime.types import FAILURE, Sample, SampleStatus, by_trajectory, flatten, rewards_of
from slime.weights.versions import read_live

if TYPE_CHECKING:
    from slime.flags.engine import EngineArguments
    from slime.flags.run import RunArguments
    from slime.flags.sides import GenerationSide

logger = logging.getLogger(__name__)

REPETITIVE = 10.0  # compression ratio of an answer's end by zlib
END = 10_000  # characters at the end of an answer that are checked
SAME = 1e-12

SOLVED = 1.0  # an answer with at least this reward solves its prompt


def batch_metrics(args: GenerationSide, groups: Sequence[object]) -> dict[str, float]:
    """Returns the `rollout/*` metrics of a batch."""
    samples = [sample for sample in flatten(groups) if sample.counted]
    uncounted = sum(not sample.counted for sample in flatten(groups))
    metrics: dict[str, float] = {
        "rollout/batch_size": len(samples),
        "rollout/groups": len(groups) - uncounted,
    }
    if not samples:
        return metrics
    metrics |= reward_metrics(samples, args.reward_key)
    metrics |= length_metrics("rollout/response_len", samples)
    metrics["rollout/prompt_len/mean"] = sum(s.prompt_length for s in samples) / len(samples)
    metrics["rollout/truncated_ratio"] = ratio(s.status is SampleStatus.TRUNCATED for s in samples)
    metrics["rollout/removed_ratio"] = ratio(s.remove_sample for s in samples)
    metrics["rollout/repetition_frac"] = ratio(map(repetition, samples))
    return metrics | zero_std_metrics(samples, args.reward_key) | staleness_metrics(args, samples)


def reward_metrics(samples: Sequence[Sample], reward_key: str | None) -> dict[str, float]:
    """Returns mean, min and max of the trajectories' rewards.

    If trajectories have several samples, also their number and the mean over samples,
    `rollout/reward_mean_of_samples`.
    """
    of_samples, rewards = rewards_of(samples, reward_key), trajectory_rewards(samples, reward_key)
    if not rewards:
        return {}
    mean = sum(rewards) / len(rewards)
    metrics = {"rollout/reward_mean": mean, "rollout/raw_reward": mean}
    metrics |= {"rollout/reward_min": min(rewards), "rollout/reward_max": max(rewards)}
    if len(rewards) < len(of_samples):
        metrics["rollout/trajectories"] = len(rewards)
        metrics["rollout/reward_mean_of_samples"] = sum(of_samples) / len(of_samples)
    return metrics


def trajectory_rewards(samples: Sequence[Sample], reward_key: str | None) -> list[float]:
    """Returns the reward of each trajectory, the mean over its samples; omits non-finite ones."""
    known = [rewards_of(part, reward_key) for part in by_trajectory(samples)]
    return [statistics.fmean(values) for values in known if values]


def length_metrics(name: str, samples: Sequence[Sample]) -> dict[str, float]:
    """Returns mean, median, max and min of response tokens, including the environment's."""
    lengths = [sample.response_length for sample in samples]
    return {
        f"{name}/mean": sum(lengths) / len(lengths),
        f"{name}/median": float(statistics.median(lengths)),
        f"{name}/max": max(lengths),
        f"{name}/min": min(lengths),
    }


def zero_std_metrics(samples: Sequence[Sample], reward_key: str | None) -> dict[str, float]:
    """Returns the number of groups of several trajectories with equal rewards, in total and by reward."""
    several = [values for values in group_rewards(samples, reward_key) if len(values) > 1]
    equal = [values[0] for values in several if max(values) - min(values) <= SAME]
    metrics: dict[str, float] = {"rollout/zero_std/count": len(equal)} if several else {}
    return metrics | {
        f"rollout/zero_std/count_{key}": n for key, n in Counter(round(v, 1) for v in equal).items()
    }


def pass_rate_metrics(samples: Sequence[Sample], reward_key: str | None) -> dict[str, float]:
    """Returns `passrate/pass@k` over the largest groups of a batch."""
    groups = group_rewards(samples, reward_key)
    size = max(map(len, groups))
    full = [score for values in groups if len(values) == size for score in values]
    return {f"passrate/pass@{k}": value for k, value in pass_rates(full, size).items()} if size else {}


def group_rewards(samples: Sequence[Sample], reward_key: str | None) -> list[list[float]]:
    """Returns the rewards of the trajectories of each group."""
    groups: dict[int | str | None, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.group_index].append(sample)
    return [trajectory_rewards(members, reward_key) for members in groups.values()]


def staleness_metrics(args: RunArguments, samples: Sequence[Sample]) -> dict[str, float]:
    """Returns `rollout/staleness/*`: age in versions of a sample's oldest token, compared with the live weights."""
    known = [sample.versions for sample in samples if sample.versions]
    if not known:
        return {}
    live = read_live(Path(args.run_dir))
    newest = max(max(versions) for versions in known)
    newest = newest if live is None else max(newest, live.version)
    ages = [newest - min(versions) for versions in known]
    return {
        "rollout/staleness/mean": sum(ages) / len(ages),
        "rollout/staleness/max": max(ages),
        "rollout/spanning_ratio": ratio(len(versions) > 1 for versions in known),
    }


def speed_metrics(args: EngineArguments, samples: Sequence[Sample], seconds: float) -> dict[str, float]:
    """Returns the `perf/*` metrics of a rollout that took `seconds`."""
    engines = max(1, args.engine_count)
    tokens = sum(sample.response_length for sample in samples)
    trained = sum(sample.effective_response_length for sample in samples)
    seconds = max(seconds, 1e-9)
    return {
        "perf/rollout_time": seconds,
        "perf/tokens_per_gpu_per_sec": tokens / seconds / engines,
        "perf/effective_tokens_per_gpu_per_sec": trained / seconds / engines,
        "perf/longest_sample_tokens_per_sec": max(sample.response_length for sample in samples) / seconds,
    }


def error_counts(name: str, samples: Iterable[Sample]) -> dict[str, float]:
    """Returns the number of failed samples by error."""
    reasons = Counter(sample.metadata[FAILURE]["reason"] for sample in samples if FAILURE in sample.metadata)
    return {f"{name}/{reason}": count for reason, count in reasons.items()}


def repetition(sample: Sample) -> bool:
    """Returns whether the end of the answer is repetitive."""
    text = sample.response[-END:].encode()
    return len(text) > 100 and len(text) / len(zlib.compress(text)) > REPETITIVE


def ratio(values: Iterable[bool]) -> float:
    """Returns the share of true values; 0 if empty."""
    known = list(values)
    return sum(known) / len(known) if known else 0.0


class RewardFailures:
    """Numbers of failed rewards by kind (timeout, error, value) since the last report, and of consecutive
    ones."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.in_a_row = 0

    def good(self) -> None:
        self.in_a_row = 0

    def bad(self, kind: str, error: RewardError, limit: int) -> None:
        """Counts and logs a failure.

        Raises:
            ConfigError: it is the `limit`-th consecutive failure.
        """
        self.counts[kind] += 1
        self.in_a_row += 1
        logger.warning("reward failed: %s", error)
        if limit and self.in_a_row >= limit:
            self.in_a_row = 0
            raise ConfigError(f"{limit} consecutive rewards failed; last error: {error}") from error

    def take_metrics(self) -> dict[str, float]:
        """Returns `rollout/reward_failed/{kind}` since the last call."""
        taken = {f"rollout/reward_failed/{kind}": float(count) for kind, count in self.counts.items()}
        self.counts.clear()
        return taken


reward_failures = RewardFailures()


def pass_rates(scores: Sequence[float], group_size: int) -> dict[int, float]:
    """Returns pass@k for k = 1, 2, 4, ... and the group size: the mean over groups of `pass_at_k`.

    Args:
        scores: [groups * group_size], group after group; a score of 1 or more solves the prompt.
    """
    solved = [
        sum(score >= SOLVED for score in scores[start : start + group_size])
        for start in range(0, len(scores), group_size)
    ]
    ks = sorted(
        {2**power for power in range(group_size.bit_length()) if 2**power <= group_size} | {group_size}
    )
    return {k: sum(pass_at_k(group_size, count, k) for count in solved) / len(solved) for k in ks}


def pass_at_k(n: int, solved: int, k: int) -> float:
    """Returns the unbiased estimate of the probability that one of k answers is correct, if `solved` of n
    are.

    1 - C(n - solved, k) / C(n, k), of Chen et al., "Evaluating Large Language Models Trained on Code" (2021).
    """
    return 1.0 - math.comb(n - solved, k) / math.comb(n, k)


EVALUATIONS = "evaluations.jsonl"
"""File in the run folder with one row per attempt, see `attempt_rows`."""
EPISODE = "episode"
AWAY = "environments_away"
INFRASTRUCTURE = ("environment", "engine")
"""Failures that do not depend on the model."""
_NAMES = ("task_id", "task_name", "name", "id")


def episode_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Returns the `rollout/episode/*` metrics of a batch; empty if no sample is an episode.

    Means of turns, tool calls and parse errors, share of episodes that called a tool, number of replaced
    environments; number of judged steps, of those without any vote (`prm_failed`), and mean score.
    """
    first = [part[0].metadata for part in by_trajectory(samples)]
    episodes = [metadata[EPISODE] for metadata in first if isinstance(metadata.get(EPISODE), Mapping)]
    if not episodes:
        return {}
    metrics = {
        f"rollout/episode/{name}": statistics.fmean(float(about.get(name, 0)) for about in episodes)
        for name in ("turns", "tool_calls", "parse_errors")
    }
    metrics["rollout/episode/tool_use"] = ratio(about.get("tool_calls", 0) > 0 for about in episodes)
    metrics[f"rollout/episode/{AWAY}"] = float(sum(metadata.get(AWAY, 0) for metadata in first))
    return metrics | _judged(samples)


def _judged(samples: Sequence[Sample]) -> dict[str, float]:
    steps = [step for sample in samples for step in (sample.metadata.get("prm") or {}).get("steps", [])]
    scores = [step["mean_score"] for step in steps if step["mean_score"] is not None]
    if not steps:
        return {}
    counts = {"prm_steps": float(len(steps)), "prm_failed": float(len(steps) - len(scores))}
    means = {"prm_score": statistics.fmean(scores)} if scores else {}
    return {f"rollout/episode/{name}": value for name, value in {**counts, **means}.items()}


def solves(sample: Sample, score: float) -> bool:
    """Returns whether an answer solves its task, by the reward's `acc` if present, else by its score."""
    accuracy = sample.reward.get("acc") if isinstance(sample.reward, Mapping) else None
    return float(accuracy if isinstance(accuracy, int | float) else score) >= SOLVED


def attempt_rows(
    rollout_id: int, dataset: str, attempts: int, samples: Sequence[Sample], scores: Sequence[float]
) -> list[dict[str, Any]]:
    """Returns the result rows of an evaluation, one for each attempt at a task.

    `success` is None if infrastructure failed, because the model's result is unknown. `task_id` is taken from
    the prompt's metadata, else it is its position in the file; `row` is that position.

    Args:
        samples, scores: [tasks * attempts], task after task.
    """
    pairs = enumerate(zip(samples, scores, strict=True))
    return [
        {"rollout_id": rollout_id, "dataset": dataset, **_row(sample, score, *divmod(number, attempts))}
        for number, (sample, score) in pairs
    ]


def _row(sample: Sample, score: float, row: int, attempt: int) -> dict[str, Any]:
    failure = sample.metadata.get(FAILURE, {}).get("reason")
    about = sample.metadata.get(EPISODE) or {}
    named = (sample.metadata[name] for name in _NAMES if sample.metadata.get(name) is not None)
    fields: dict[str, Any] = {
        "task_id": str(next(named, row)),
        "row": row,
        "attempt_id": attempt,
        "status": sample.status.value,
        "success": None if failure in INFRASTRUCTURE else solves(sample, score),
        "reward": score,
        "steps": about.get("turns", 1),
        "tool_calls": about.get("tool_calls", 0),
        "parse_errors": about.get("parse_errors", 0),
        "response_len": sample.response_length,
        AWAY: sample.metadata.get(AWAY, 0),
    }
    return fields if failure is None else {**fields, "failure": failure}


def write_attempts(run_dir: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Appends rows to the run's file; starts a new line after an incomplete one of a killed process."""
    path = Path(run_dir) / EVALUATIONS
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(-1 if file.seek(0, os.SEEK_END) else 0, os.SEEK_END)
        torn = file.read(1) not in (b"", b"\n")
        file.write(("\n" * torn + "".join(json.dumps(row) + "\n" for row in rows)).encode())
