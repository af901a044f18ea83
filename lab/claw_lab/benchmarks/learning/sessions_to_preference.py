"""Measures how many conversations it takes until a model writes as people prefer, by method.

`bash lab/run.sh benchmarks.learning.sessions_to_preference` runs methods x seeds in this process and its workers (no
Ray, no HTTP, see claw_lab/offline), and prints one JSON line for each method and group of people: mean and 90 %
interval of the sessions of a person until 0.8 of 200 fresh replies please, and measurements after 40 sessions of
each. Each finished seed is a line of `--out`; the same command continues after an interruption. `--search-lr` tries
several learning rates.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from claw_lab import MODEL, ROOT
from claw_lab.offline import gated, lr_search
from claw_lab.offline.local_loop import ChatModel
from claw_lab.offline.methods import METHODS, Setting
from claw_lab.offline.statistics import mean_curve, summary
from claw_lab.offline.trial import TARGET, Plan, Trial
from openclaw_test.evaluation.plot import chart
from openclaw_test.people.tastes import BY_NAME
from slime.errors import ConfigError

PEOPLE = {
    "joint": ("student", "TA", "teacher"),
    "student": ("student",),
    "TA": ("TA",),
    "teacher": ("teacher",),
    "unnamed": ("dasher",),
    "slow": ("own words",),
    "careless": ("student",),
    "neutral": ("student",),
    "occasional": ("student",),
}
"""Groups of people who talk to one model. `unnamed`: a preference that pre-training never named. `slow`: one person,
one session at a time, with wordings that occur in no training data; `--batch 1` makes an update of each turn.
`careless`: a person who gives the opposite feedback in one case of five. `neutral`: a person without feedback, so
that nothing may be learned. `occasional`: a person who explicitly asks for a list in one session of five."""

Job = dict[str, Any]
"""One trial: method, people, seed and all settings; it identifies the trial's line in the results."""


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """Returns all requested trials; each seed runs with all methods before the next seed."""
    rates = options.lr if options.search_lr else options.lr[:1]
    seeds = [options.first_seed + number for number in range(options.seeds)]
    return [
        {
            "method": method,
            "people": people,
            "seed": seed,
            "lr": rate or METHODS[method].lr,
            "batch": options.batch or METHODS[method].batch,
            "kl": METHODS[method].kl if options.kl is None else options.kl,
            "most": options.most,
            "behind": options.behind,
            "flags": options.flags.split(),
            **({"gate": True} if options.gate else {}),
            **({"memory": True} if options.memory else {}),
        }
        for seed in seeds
        for rate in rates
        for people in options.people
        for method in options.methods
    ]


_chat: ChatModel | None = None


def start_worker(model: str) -> None:
    """Sets one thread and loads one model for all trials of a process."""
    global _chat
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    _chat = ChatModel(model)


def run_job(job: Job) -> dict[str, Any]:
    """Runs a trial; returns its result with its job."""
    if _chat is None:
        raise RuntimeError("the worker has no model")
    method, gate = METHODS[job["method"]], job.get("gate", False)
    extra = (*(gated.FLAGS if gate else ()), *job["flags"])
    remembers = job.get("memory", False)
    setting = Setting(
        method, job["lr"], job["batch"], job["kl"], behind=job["behind"], memory=remembers, extra=extra
    )
    tastes = tuple(BY_NAME[name] for name in PEOPLE[job["people"]])
    who = job["people"] if job["people"] in ("careless", "neutral", "occasional") else "honest"
    plan = Plan(tastes, job["most"], 1 if job["people"] == "slow" else Plan.at_once, who)
    trial = (gated.GatedTrial if gate else Trial)(_chat, setting, plan, job["seed"])
    return {"job": job, **trial.run(), **(refused(trial.loop) if gate else {})}


def refused(loop: gated.GatedLoop) -> dict[str, Any]:
    """Returns the reasons for which the gate rejected an update or rolled one back."""
    return {"rejected": [list(one) for one in loop.rejections], "undone": list(loop.undone)}


def run_all(jobs: Sequence[Job], workers: int, model: str) -> Iterator[dict[str, Any]]:
    """Yields results as they come; with one worker, in this process."""
    if workers == 1:
        start_worker(model)
        yield from map(run_job, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, start_worker, (model,)) as pool:
        yield from pool.imap_unordered(run_job, jobs)


def read_results(path: Path) -> list[dict[str, Any]]:
    """Returns the results of earlier runs, without an incomplete line."""
    if not path.is_file():
        return []
    results = []
    for line in path.read_text("utf-8").splitlines():
        try:
            results.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{path}: a line that is not JSON was left out", file=sys.stderr)
    return results


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs the missing trials and returns all results."""
    jobs = jobs_of(options)
    known = [result for result in read_results(options.out) if result["job"] in jobs]
    done = [result["job"] for result in known]
    missing = [job for job in jobs if job not in done]
    print(f"{len(done)} of {len(jobs)} trials are done already", file=sys.stderr)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a", encoding="utf-8") as out:
        for result in run_all(missing, min(options.workers, len(missing) or 1), str(options.model)):
            out.write(json.dumps(result) + "\n")
            out.flush()
            known.append(result)
            report(result)
    return known


def report(result: dict[str, Any]) -> None:
    job, late = result["job"], result["late"]
    print(
        f"{job['method']} {job['people']} seed {job['seed']} lr {job['lr']:g}: "
        f"{result['sessions_to_preference']} sessions; after {late['sessions']}: preference "
        f"{late['preference']:.2f}, accuracy {late['accuracy_greedy']:.3f}, steps {late['steps_kept']:.2f} "
        f"({result['seconds']:.0f} s)",
        file=sys.stderr,
        flush=True,
    )


def grouped(results: Sequence[dict[str, Any]]) -> dict[tuple[str, str, float], list[dict[str, Any]]]:
    """Groups results by people, method and learning rate; seeds are in order."""
    groups: dict[tuple[str, str, float], list[dict[str, Any]]] = {}
    for result in sorted(results, key=lambda one: one["job"]["seed"]):
        job = result["job"]
        groups.setdefault((job["people"], job["method"], job["lr"]), []).append(result)
    return groups


def print_lines(options: argparse.Namespace, results: Sequence[dict[str, Any]]) -> None:
    for (people, method, rate), group in grouped(results).items():
        setting = {"lr": rate, **{name: group[0]["job"][name] for name in ("batch", "kl", "behind")}}
        setting["flags"] = options.flags.split()
        if options.gate:
            setting |= {"gate": True} | {
                name: sum(len(one[name]) for one in group) for name in ("rejected", "undone")
            }
        line = {"method": method, "people": people, **summary(group, options.most), **setting}
        print(json.dumps(line), flush=True)


def write_plots(options: argparse.Namespace, results: Sequence[dict[str, Any]]) -> None:
    """Writes one SVG file for each group of people."""
    groups = grouped(results)
    for people in options.people:
        curves = {
            f"{METHODS[method].title} ({len(group)})": mean_curve(group)
            for (who, method, _), group in groups.items()
            if who == people
        }
        title = f"Preference on fresh problems, {people} (mean over seeds)"
        options.plot.mkdir(parents=True, exist_ok=True)
        (options.plot / f"{people}.svg").write_text(chart(curves, title, TARGET), "utf-8")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--people", nargs="+", choices=PEOPLE, default=["joint"], metavar="GROUP")
    parser.add_argument("--seeds", type=int, default=10, help="trials of each method")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--lr", type=float, nargs="+", default=[None], help="learning rates; default: each method's own"
    )
    parser.add_argument(
        "--batch", type=int, default=None, help="samples of an update (default: the method's)"
    )
    parser.add_argument(
        "--kl",
        type=float,
        default=None,
        help="weight of the KL to the first weights (default: the method's)",
    )
    parser.add_argument(
        "--behind", type=int, default=0, help="number of versions by which serving lags behind training"
    )
    parser.add_argument("--flags", default="", help="further flags of the driver, in quotes")
    parser.add_argument(
        "--gate", action="store_true", help="check each update with the gate of the launch scripts"
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="add preferences to prompts until the weights contain them",
    )
    parser.add_argument(
        "--most", type=int, default=Plan.most, help="most sessions of a person before a trial is given up"
    )
    parser.add_argument("--workers", type=int, default=2, help="worker processes, one thread each")
    parser.add_argument("--model", type=Path, default=MODEL, help="folder of the initial model")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "learning" / "results.jsonl")
    parser.add_argument("--plot", type=Path, default=None, help="folder for an SVG plot per group of people")
    parser.add_argument("--search-lr", action="store_true", help=lr_search.RULE.replace("%", "%%"))
    options = parser.parse_args(argv)
    for name in ("seeds", "workers", "batch", "most"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name} must be 1 or more")
    if options.memory and options.behind:
        parser.error("--memory does not go with --behind: the canaries are asked of the newest version")
    if len(options.lr) > 1 and not options.search_lr:
        parser.error("several learning rates are for --search-lr")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    options = parse(argv)
    try:
        results = measure(options)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    print_lines(options, results)
    if options.plot is not None:
        write_plots(options, results)
    if options.search_lr:
        print(json.dumps(lr_search.choice(results)))


if __name__ == "__main__":
    main()
