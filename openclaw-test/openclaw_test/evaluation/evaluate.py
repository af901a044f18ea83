"""Evaluates a model folder on conversation, explicit wishes, coding and tool use; `run_eval.sh` sets up and calls it.

    python openclaw-test/openclaw_test/evaluation/evaluate.py --model-path FOLDER --eval-tasks \
        conversation,wishes,coding,tool-use [--compare FOLDER]

Each model is served by its own gateway on a free port, which records nothing. Conversation: the three people's first
messages about own problems, at the serving temperature; the shares of first replies with each one's preferred style.
Wishes: whether the model obeys explicit requests, and how different its replies are.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx

from claw_base.ports import free_port
from openclaw_test.evaluation.flags import read_flags
from openclaw_test.loop.real_loop import ROOT
from openclaw_test.people.gsm8k import WordProblem, own_problems, read_problems
from openclaw_test.people.phases import PHASES, Phase
from openclaw_test.people.scoring import Summary, summarise
from openclaw_test.people.tasks import coding_score, tool_use_score
from openclaw_test.people.wishes import Messages, Obedience, cases, obedience

WISHES = 40
READY_SECONDS = 300.0
REQUEST_SECONDS = 300.0
AT_ONCE = 16


@contextlib.contextmanager
def served(model_path: Path, backend: str) -> Iterator[str]:
    """Yields the address of a gateway that serves the folder. Raises RuntimeError with the end of its log."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        sys.executable,
        "-m",
        "openclaw.server",
        "--model-path",
        str(model_path),
        "--port",
        str(port),
        "--backend",
        backend,
    ]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'base'}:{ROOT / 'slime'}"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(
                    f"{model_path} cannot be served: {(process.stderr.read() if process.stderr else '')[-800:]}"
                )
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{url}/readyz", timeout=5.0).status_code == 200:
                    break
            time.sleep(0.2)
        else:
            raise RuntimeError(f"{model_path} was not ready after {READY_SECONDS:g} s")
        yield url
    finally:
        process.terminate()
        process.wait(30)


class Asker:
    """Sends single questions to a served model."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=REQUEST_SECONDS, trust_env=False)

    def __call__(self, text: str, **body: Any) -> dict[str, Any]:
        return self.about([{"role": "user", "content": text}], **body)

    def about(self, messages: Messages, **body: Any) -> dict[str, Any]:
        """Returns the answer to a whole conversation."""
        request = {"messages": messages, "max_tokens": 1024, **body}
        response = self._http.post("/v1/chat/completions", json=request)
        response.raise_for_status()
        message: dict[str, Any] = response.json()["choices"][0]["message"]
        return message


def conversation(ask: Asker, problems: list[WordProblem]) -> dict[str, Summary]:
    """Scores first replies to each person, one session a problem."""

    def first_reply(phase: Phase, problem: WordProblem) -> str:
        return str(ask(phase.pasted(problem)).get("content") or "")

    numbers = {}
    for name, phase in PHASES.items():
        with ThreadPoolExecutor(AT_ONCE) as pool:
            replies = list(pool.map(lambda problem, phase=phase: first_reply(phase, problem), problems))
        numbers[name] = summarise(name, problems, list(enumerate(replies)))
    return numbers


def explicit_wishes(ask: Asker) -> Obedience:
    asked = cases("report", WISHES)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        replies = list(pool.map(lambda case: str(ask.about(case.messages).get("content") or ""), asked))
    return obedience(asked, replies)


def evaluate(model_path: Path, tasks: list[str], problems: list[WordProblem], backend: str) -> dict[str, Any]:
    """Returns scores by task; shares from 0 to 1."""
    with served(model_path, backend) as url:
        ask = Asker(url)
        scores: dict[str, Any] = {}
        if "conversation" in tasks:
            scores["conversation"] = {name: s.as_dict() for name, s in conversation(ask, problems).items()}
        if "wishes" in tasks:
            scores["wishes"] = explicit_wishes(ask).as_dict()
        if "coding" in tasks:
            scores["coding"] = coding_score(ask)
        if "tool-use" in tasks:
            scores["tool-use"] = tool_use_score(ask)
        return scores


def markdown(results: dict[str, dict[str, Any]]) -> str:
    """Returns a Markdown table with one column a model."""
    rows: dict[str, dict[str, str]] = {}
    for column, scores in results.items():
        for name, summary in scores.get("conversation", {}).items():
            for key, text in (
                ("preference", "as wanted"),
                ("right", "right"),
                ("steps_kept", "steps kept"),
                ("bare", "bare answer"),
            ):
                rows.setdefault(f"{name}: {text}", {})[column] = f"{summary[key]:.2f}"
        for key, value in scores.get("wishes", {}).items():
            rows.setdefault(f"wishes: {key.replace('_', ' ')}", {})[column] = f"{value:.2f}"
        for task in ("coding", "tool-use"):
            if task in scores:
                rows.setdefault(task, {})[column] = f"{scores[task]:.2f}"
    names = list(results)
    lines = ["| |" + "".join(f" {name} |" for name in names), "|---|" + "--:|" * len(names)]
    lines += [
        f"| {row} |" + "".join(f" {cells.get(name, '-')} |" for name in names) for row, cells in rows.items()
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    args = read_flags()
    try:
        problems = problems_of(args.dataset, args.num_problems)
        results = {
            path.name: evaluate(path, args.eval_tasks, problems, args.backend)
            for path in [*args.compare, args.model_path]
        }
    except (OSError, ValueError, RuntimeError, httpx.HTTPError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.output:
        args.output.with_suffix(".md").write_text(markdown(results))
        args.output.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    print(markdown(results), file=sys.stderr)
    print(json.dumps(results))
    return 0


def problems_of(dataset: Path | None, count: int) -> list[WordProblem]:
    """Returns problems from the file, or generated ones. Raises BadDataset and OSError."""
    if dataset is not None:
        return read_problems(dataset, count)
    return [
        WordProblem(p["question"], Decimal(p["ground_truth_answer"]), tuple(p["equations"]))
        for p in own_problems(count, 0)
    ]


if __name__ == "__main__":
    sys.exit(main())
