"""Recorded trajectories of a run (--save-debug-rollout-data), as turns for display."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slime import replay
from slime.agents.conversation import continuation
from slime.agents.scores import json_lines
from slime.arguments.record import read_arguments
from slime.errors import ConfigError
from slime.rollout.tokenizer import ChatTokenizer, load_tokenizer
from slime.types import Sample, by_trajectory

TOKEN_RECORDS = "token_records"
_PLACE = "{rollout_id}"
_MARK = "what was shown"


@dataclass
class SeenTurn:
    """One answer of the model, and the observation after it.

    Attributes:
        ids, log_probs: ids and log-probs of the answer [R].
        prompt_ids: all ids before the answer.
        versions: versions of the weights that sampled it.
        text, shown: the answer without its end token; the observation after it, "" at the end.
        score, judge: score of the step, and the judge's verdict; None if there is none.
        advantage: mean over the answer's trained tokens; None if the trainer's records of the rollout are missing.
    """

    prompt_ids: list[int]
    ids: list[int]
    log_probs: list[float]
    versions: list[int]
    text: str
    shown: str = ""
    score: float | None = None
    judge: dict[str, Any] | None = None
    advantage: float | None = None


@dataclass
class SeenTrajectory:
    """A trajectory; `rollout`: the rollout's number, prefixed with `eval_` in evaluations."""

    rollout: str
    samples: list[Sample]
    prompt: str
    turns: list[SeenTurn] = field(default_factory=list)

    @property
    def first(self) -> Sample:
        return self.samples[0]

    @property
    def solved(self) -> bool | None:
        reward = self.first.reward
        return bool(reward["acc"]) if isinstance(reward, Mapping) and "acc" in reward else None


def read_run(run_dir: Path, rollout: str | None = None) -> Iterator[SeenTrajectory]:
    """Yields the trajectories of a run, oldest first; optionally only of one rollout.

    Raises:
        ConfigError: the run has no recorded trajectories, or none of that rollout, or its tokenizer is missing.
        DataError: a file has no samples.
    """
    arguments = read_arguments(run_dir)
    pattern = arguments.get("save_debug_rollout_data")
    if not pattern:
        where = f"{run_dir}/trajectories/{_PLACE}.json.gz"
        raise ConfigError(
            f"{run_dir} has no trajectories; start the run with --save-debug-rollout-data {where}"
        )
    files = _files(str(pattern))
    if rollout is not None:
        files = [numbered_file for numbered_file in files if numbered_file[0] == rollout]
    if not files:
        raise ConfigError(f"there is no file {pattern}" + (f" of rollout {rollout}" if rollout else ""))
    tokenizer = load_tokenizer(arguments["hf_checkpoint"])
    for name, path in files:
        advantages = _advantages(run_dir, name)
        for samples in by_trajectory(replay.load(str(path), 0)):
            yield seen(name, samples, tokenizer, advantages.get(str(samples[0].index), []))


def _files(pattern: str) -> list[tuple[str, Path]]:
    """Returns (rollout, file), evaluations before the rollouts that follow them."""
    path = Path(pattern)
    shape = re.compile(re.escape(path.name).replace(re.escape(_PLACE), r"((?:eval_)?\d+)") + "$")
    numbered_files = [
        (match.group(1), file) for file in path.parent.glob("*") if (match := shape.match(file.name))
    ]
    return sorted(
        numbered_files, key=lambda one: (int(one[0].removeprefix("eval_")), not one[0].startswith("eval_"))
    )


def _advantages(run_dir: Path, rollout: str) -> dict[str, list[list[float | None]]]:
    """Returns the advantages [R] of each sample, by sample index."""
    path = run_dir / TOKEN_RECORDS / f"rollout-{rollout:0>6}.jsonl"
    advantages: dict[str, list[list[float | None]]] = defaultdict(list)
    for row in json_lines(path) if path.is_file() else []:
        if "advantage" in row:
            advantages[str(row["sample"])].append(row["advantage"])
    return advantages


def seen(
    rollout: str,
    samples: Sequence[Sample],
    tokenizer: ChatTokenizer,
    advantages: Sequence[Sequence[float | None]],
) -> SeenTrajectory:
    """Returns the turns of a trajectory, whether stored as one sample or as one a turn."""
    first = samples[0]
    trajectory = SeenTrajectory(rollout, list(samples), tokenizer.decode(first.tokens[: first.prompt_length]))
    before: list[int] = []
    for place, sample in enumerate(samples):
        scores = (sample.metadata.get("step_wise") or {}).get("step_scores") or []
        verdicts = {step["step_index"]: step for step in (sample.metadata.get("prm") or {}).get("steps", [])}
        row = advantages[place] if place < len(advantages) else []
        if trajectory.turns:
            new = sample.tokens[_common(before, sample.tokens) : sample.prompt_length]
            trajectory.turns[-1].shown = _shown(tokenizer, new)
        response, ended = sample.tokens[sample.prompt_length :], 0
        for number, (begin, end) in enumerate(_model_spans(sample)):
            if number:
                trajectory.turns[-1].shown = _shown(tokenizer, response[ended:begin])
            turn, ended = _turn(sample, begin, end, tokenizer), end
            turn.score = scores[number] if number < len(scores) else None
            turn.judge = verdicts.get(len(trajectory.turns))
            known = [value for value in row[begin:end] if value is not None]
            turn.advantage = statistics.fmean(known) if known else None
            trajectory.turns.append(turn)
        before = sample.tokens
    return trajectory


def _model_spans(sample: Sample) -> list[tuple[int, int]]:
    """Returns [start, end) of the model's parts in the response; the environment's text is between them."""
    mask = sample.loss_mask or [1] * sample.response_length
    padded = [0, *mask, 0]
    edges = [place for place in range(len(padded) - 1) if padded[place] != padded[place + 1]]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _turn(sample: Sample, begin: int, end: int, tokenizer: ChatTokenizer) -> SeenTurn:
    start = sample.prompt_length
    ids = sample.tokens[start + begin : start + end]
    return SeenTurn(
        prompt_ids=sample.tokens[: start + begin],
        ids=ids,
        log_probs=(sample.rollout_log_probs or [])[begin:end],
        versions=sorted({v for v, first, last in sample.version_spans if first < end and begin < last}),
        text=tokenizer.decode(ids).removesuffix(tokenizer.eos_token),
    )


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns the length of the common prefix."""
    places = (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(places, min(len(one), len(other)))


def _shown(tokenizer: ChatTokenizer, ids: Sequence[int]) -> str:
    """Returns the environment's text, without template markup if it is a single message."""
    text = tokenizer.decode(ids)
    for role in ("tool", "user"):
        markup = tokenizer.decode(continuation(tokenizer, [{"role": role, "content": _MARK}]))
        head, _, tail = markup.partition(_MARK)
        if text.startswith(head) and text.endswith(tail):
            return text[len(head) : len(text) - len(tail)]
    return text
