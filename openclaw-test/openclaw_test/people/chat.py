"""The loop of an evaluation phase and its command line, shared by `student_chat.py` and its siblings."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from openclaw_test.people.agents import Agent, AgentError, OpenClawAgent, ServedModel, WrongKey
from openclaw_test.people.gsm8k import BadDataset, WordProblem, read_problems
from openclaw_test.people.phases import Phase
from openclaw_test.people.talkers import Exchange, ModelTalker, ScriptedTalker, Talker, TalkerError

PAUSE_SECONDS = 1.0


def main(phase: Phase, argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 if something is missing, the token is wrong or no session succeeds. A failed
    session is reported, and the next one starts."""
    args = _parser(phase).parse_args(argv)
    try:
        problems = read_problems(args.dataset, args.num_problems)
        agent, talker = _agent(args), _talker(args)
        if not args.direct:
            workspace = Path(os.environ.get("OPENCLAW_WORKSPACE", "~/.openclaw/workspace")).expanduser()
            phase.prepare(workspace, problems)
    except (OSError, BadDataset, KeyError) as error:
        print(
            f"error: {error}" if not isinstance(error, KeyError) else f"error: {error.args[0]} is not set",
            file=sys.stderr,
        )
        return 1
    done = held = 0
    with args.output.open("w") as output:
        for number, problem in enumerate(problems):
            session = f"{phase.key}-{number}-{os.getpid()}"
            try:
                talk, finished = converse(phase, problem, number, session, agent, talker, args)
            except WrongKey as error:
                print(f"error: {error}", file=sys.stderr)
                return 1
            except (AgentError, TalkerError) as error:
                print(f"[{session}] failed: {error}", file=sys.stderr)
                continue
            done, held = done + finished, held + 1
            output.write(f"[session: {session}]\n{talk[0][1]}\n\n")
            output.flush()
            print(f"[{session}] {len(talk)} turns, {'done' if finished else 'not done'}", flush=True)
    print(
        f"{done} of {len(problems)} problems completed within {args.max_turns} turns; first replies in {args.output}"
    )
    return 0 if held else 1


def converse(
    phase: Phase,
    problem: WordProblem,
    number: int,
    session: str,
    agent: Agent,
    talker: Talker,
    args: argparse.Namespace,
) -> tuple[list[Exchange], bool]:
    """Runs one session; returns the messages, and whether the person was satisfied at the end. Raises Agent-,
    TalkerError."""
    talk: list[Exchange] = []
    message = phase.pasted(problem) if args.direct else phase.first(number, problem)
    for turn in range(args.max_turns):
        if turn:
            time.sleep(args.pause)
            message = talker.next(phase, problem, talk)
            if phase.sentinel in message:
                agent.end(session)
                return talk, True
        talk.append((message, agent.say(session, message)))
    agent.end(session)
    return talk, False


def _agent(args: argparse.Namespace) -> Agent:
    if args.direct:
        return ServedModel(args.direct, os.environ.get("SGLANG_API_KEY", ""), args.max_retries)
    url = os.environ.get("OPENCLAW_GATEWAY_URL", "http://localhost:18789")
    return OpenClawAgent(url, os.environ["OPENCLAW_GATEWAY_TOKEN"], args.max_retries, args.agent_model)


def _talker(args: argparse.Namespace) -> Talker:
    if args.talker == "scripted":
        return ScriptedTalker(args.seed)
    url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
    return ModelTalker(url, os.environ["OPENAI_API_KEY"], os.environ.get("EXTERNAL_MODEL", "gpt-4o"))


def _parser(phase: Phase) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=f"The {phase.name} talks to OpenClaw. Env: OPENCLAW_GATEWAY_TOKEN, OPENCLAW_GATEWAY_URL, "
        "OPENCLAW_WORKSPACE; for a model that plays the person OPENAI_API_KEY, OPENAI_BASE_URL, EXTERNAL_MODEL."
    )
    parser.add_argument("--dataset", type=Path, required=True, help="problems, see people/gsm8k.py")
    parser.add_argument("--num-problems", type=int, default=5)
    parser.add_argument(
        "--max-turns", type=int, default=8, help="maximum messages of the person in a session"
    )
    parser.add_argument(
        "--max-retries", type=int, default=3, help="maximum retries of a request, after 1, 2, 4, ... seconds"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(phase.output),
        help="output file for the first reply of each session",
    )
    parser.add_argument(
        "--talker", choices=("model", "scripted"), default="model", help="who writes the person's messages"
    )
    parser.add_argument(
        "--direct", metavar="URL", help="talk to the served model directly, without OpenClaw and its files"
    )
    parser.add_argument("--agent-model", default="openclaw/default", help="model name for OpenClaw's gateway")
    parser.add_argument("--pause", type=float, default=PAUSE_SECONDS, help="seconds between turns")
    parser.add_argument("--seed", type=int, default=0, help="seed of the scripted person")
    return parser
