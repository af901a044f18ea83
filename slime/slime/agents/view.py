"""Shows trajectories of a run in the terminal (turns, tools, observations, rewards, advantages), or exports them as
ATIF, Harbor's format.

python -m slime.agents.view RUN [--rollout 3 | --rollout eval_8] [--sample INDEX] [--list] [--atif FOLDER]
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_base.files import write_text
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.agents.recorded import SeenTrajectory, SeenTurn, read_run
from slime.agents.tool_calls import loose_calls
from slime.arguments.record import read_arguments
from slime.errors import ClawError


def heading(trajectory: SeenTrajectory) -> str:
    """Returns one line: source, end, and reward of a trajectory."""
    first, last = trajectory.first, trajectory.samples[-1]
    about = first.metadata.get("episode") or {}
    named = first.metadata.get("task_name") or first.metadata.get("task_id")
    reward = first.reward if isinstance(first.reward, dict) else {"reward": first.reward}
    earned = ", ".join(f"{name} {_number(value)}" for name, value in reward.items())
    parts = [f"rollout {trajectory.rollout}", f"group {first.group_index}", f"sample {first.index}"]
    parts += [f"task {named}"] if named else []
    parts += [last.status.value, earned, f"{len(trajectory.turns)} turns"]
    parts += [f"{about[name]} {words}" for name, words in _COUNTS.items() if about.get(name)]
    return " · ".join(parts)


_COUNTS = {"tool_calls": "tool calls", "parse_errors": "parse errors"}


def shown(trajectory: SeenTrajectory) -> str:
    """Returns the whole trajectory as text."""
    prompt = trajectory.first.prompt_length
    lines = [heading(trajectory), "", f"--- prompt, {prompt} tokens", trajectory.prompt.strip()]
    for number, turn in enumerate(trajectory.turns, 1):
        lines += ["", f"--- turn {number}, {_about(turn)}", turn.text.strip()]
        lines += ["", f"--- observation {number}", turn.shown.strip()] if turn.shown else []
    return "\n".join(lines) + "\n"


def _about(turn: SeenTurn) -> str:
    parts = [f"{len(turn.ids)} tokens"]
    parts += [f"version {'+'.join(map(str, turn.versions))}"] if turn.versions else []
    parts += [f"log-prob {statistics.fmean(turn.log_probs):.3f}"] if turn.log_probs else []
    parts += [f"step score {_number(turn.score)}"] if turn.score is not None else []
    if turn.judge is not None:
        votes = "/".join("-" if score is None else str(score) for score in turn.judge["scores"])
        parts.append(f"votes {votes}")
    parts += [f"advantage {turn.advantage:+.3f}"] if turn.advantage is not None else []
    return ", ".join(parts)


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)


@dataclass(frozen=True, kw_only=True)
class View:
    """The trajectories to show, and their form."""

    run: Path = flag(REQUIRED, "folder of a run with --save-debug-rollout-data", positional=True)
    rollout: str | None = flag(None, "number of the rollout; of an evaluation, eval_ and its number")
    sample: str | None = flag(None, "index of one sample")
    solved: bool | None = flag(None, "only solved, or only unsolved tasks")
    list: bool = flag(False, "print one line per trajectory")
    most: int = flag(10, "maximum number of trajectories shown in full")
    atif: Path | None = flag(
        None, "write trajectories in Harbor's format to this folder instead", unit="path"
    )


def chosen(args: View) -> Iterator[SeenTrajectory]:
    """Yields the trajectories selected by the command line."""
    for trajectory in read_run(args.run, args.rollout):
        is_sample = args.sample is None or str(trajectory.first.index) == args.sample
        if is_sample and (args.solved is None or trajectory.solved is args.solved):
            yield trajectory


def export(args: View, folder: Path) -> int:
    """Writes each selected trajectory as an ATIF file; returns their number."""
    model = Path(read_arguments(args.run)["hf_checkpoint"]).name
    folder.mkdir(parents=True, exist_ok=True)
    names = set()
    for trajectory in chosen(args):
        name = f"rollout-{trajectory.rollout}-sample-{trajectory.first.index}".replace("/", "_")
        write_text(folder / f"{name}.json", atif_text(trajectory, model))
        names.add(name)
    return len(names)


def main() -> int:
    args = parse(View, None, "python -m slime.agents.view", __doc__)
    try:
        if args.atif is not None:
            print(f"{export(args, args.atif)} trajectories in {args.atif}")
        elif args.list:
            for trajectory in chosen(args):
                print(heading(trajectory))
        else:
            print("\n".join(map(shown, itertools.islice(chosen(args), args.most))), end="")
    except BrokenPipeError:
        sys.stderr.close()
    except ClawError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


VERSION = "ATIF-v1.7"
Json = dict[str, Any]


def atif(trajectory: SeenTrajectory, model: str) -> Json:
    """Returns one document: steps of user and agent, with token ids, log-probs, rewards and tool results.

    Args:
        model: name of the model.
    """
    first = trajectory.first
    turns = trajectory.turns
    steps = [*_opening(trajectory), *(step for turn in turns for step in _steps(turn))]
    return {
        "schema_version": VERSION,
        "session_id": f"rollout-{trajectory.rollout}-sample-{first.index}",
        "agent": {"name": "slime", "version": "1", "model_name": model},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {
            "total_prompt_tokens": sum(len(turn.prompt_ids) for turn in turns),
            "total_completion_tokens": sum(len(turn.ids) for turn in turns),
            "total_steps": len(steps),
        },
        "extra": {
            "group": first.group_index,
            "status": trajectory.samples[-1].status.value,
            "reward": first.reward,
            "episode": first.metadata.get("episode"),
        },
    }


def _opening(trajectory: SeenTrajectory) -> list[Json]:
    prompt = trajectory.first.prompt
    if isinstance(prompt, str):
        return [{"source": "user", "message": prompt or trajectory.prompt}]
    roles = {"system": "system", "developer": "system", "assistant": "agent"}
    return [
        {"source": roles.get(str(message.get("role")), "user"), "message": str(message.get("content") or "")}
        for message in prompt
    ]


def _steps(turn: SeenTurn) -> list[Json]:
    """Returns the agent's step. The observation is attached to its calls; if there are none, it is a user step."""
    metrics: Json = {
        "prompt_tokens": len(turn.prompt_ids),
        "completion_tokens": len(turn.ids),
        "prompt_token_ids": turn.prompt_ids,
        "completion_token_ids": turn.ids,
        "logprobs": turn.log_probs,
        "extra": {"weight_versions": turn.versions},
    }
    judged = None if turn.judge is None else turn.judge["mean_score"]
    known = {"step_score": turn.score, "judge_score": judged, "advantage": turn.advantage}
    extra = {name: value for name, value in known.items() if value is not None}
    step: Json = {
        "source": "agent",
        "message": turn.text,
        "metrics": metrics,
        **({"extra": extra} if extra else {}),
    }
    calls = [
        {"tool_call_id": f"call-{number}", "function_name": name, "arguments": arguments}
        for number, (name, arguments) in enumerate(loose_calls(turn.text), 1)
    ]
    if not calls:
        return [step, {"source": "user", "message": turn.shown}] if turn.shown else [step]
    step["tool_calls"] = calls
    if turn.shown:
        step["observation"] = {
            "results": [{"source_call_id": calls[-1]["tool_call_id"], "content": turn.shown}]
        }
    return [step]


def atif_text(trajectory: SeenTrajectory, model: str) -> str:
    """Returns the document as JSON with a line end."""
    return json.dumps(atif(trajectory, model), ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    sys.exit(main())
