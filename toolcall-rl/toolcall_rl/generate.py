"""The track's hooks: `--custom-generate-function-path toolcall_rl.generate.generate`, and `--service-path
toolcall_rl.generate.start`, which rejects invalid settings before anything starts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from claw_base.settings.declare import flag, read
from slime.agents import EpisodeLimits, agent
from slime.agents.generate import Generate
from slime.errors import DataError
from slime.plan.environments import EnvironmentUse
from slime.rollout.state import GenerateState
from slime.rollout.tokenizer import ChatTokenizer
from slime.types import Sample
from toolcall_rl.environment import Rules, ToolEnvironment
from toolcall_rl.reading import ReToolFormat
from toolcall_rl.rewards import Check, RewardRules
from toolcall_rl.tools.config import read_tools
from toolcall_rl.tools.python import PythonSource
from toolcall_rl.tools.toolset import Source

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

__all__ = ["FLAGS", "environment_use", "generate", "start"]
_SEEN = "what the tool gave"
_ASKED = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": "a call"}]
_TOOL = {"type": "function", "function": {"name": "a_tool_of_mine", "description": "", "parameters": {}}}


@dataclass(frozen=True)
class ToolcallFlags:
    """Tools, limits and rewards of an episode."""

    tools_config: str = flag(
        "", "tools, as a JSON file or as JSON (default: the Python interpreter)", env=("TOOLS_CONFIG",)
    )
    max_turns: int = flag(16, "turns of the model in one episode", env=("MAX_TURNS", "MAX_STEPS"), least=1)
    max_tool_calls: int = flag(16, "maximum tool calls in an episode; later ones are rejected", least=0)
    parallel_envs: int = flag(32, "concurrent episodes", env=("PARALLEL_ENVS",), least=1)
    answer_check: Check = flag("math", "math: equal by number or algebra; strict: exactly the label's text")
    tool_encouragement: bool = flag(
        True, "reward a wrong answer with 0.05 more per call, from -1.1 up to -0.6"
    )
    tool_call_price: float = flag(0.0, "cost of each call, subtracted from the reward", least=0)


FLAGS: tuple[type, ...] = (ToolcallFlags,)


async def generate(
    args: GenerationSide, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
) -> Sample | list[Sample]:
    """Runs one episode; see `slime.agents.agent`."""
    run = _agent(read(ToolcallFlags, args), GenerateState.of(args).tokenizer)
    return await run(args, sample, sampling_params, evaluation)


def start(args: GenerationSide, endpoints: object) -> Sequence[Any]:
    """Checks the tools; starts no process.

    Raises:
        ConfigError: the tools are invalid, or the interpreter does not start (no sandbox, or limits that are too
            small).
    """
    for source in _tools(args):
        if isinstance(source, PythonSource):
            source.try_one()
    return []


def check_arguments(args: GenerationSide, endpoints: object = None, env: object = None) -> None:
    """Raises ConfigError, also in a dry run, for tools that are invalid on any machine."""
    _tools(args)


def _tools(args: GenerationSide) -> tuple[Source, ...]:
    return read_tools(read(ToolcallFlags, args).tools_config).sources


def environment_use(args: GenerationSide) -> EnvironmentUse:
    """Returns the resources of one interpreter per concurrent episode, for the plan."""
    flags = read(ToolcallFlags, args)
    boxes = [one.box for one in _tools(args) if isinstance(one, PythonSource)]
    memory, disk = sum(box.memory for box in boxes), sum(box.disk_bytes for box in boxes)
    return EnvironmentUse(flags.parallel_envs, memory, disk, float(len(boxes)), in_memory=True)


@functools.cache
def _agent(flags: ToolcallFlags, tokenizer: ChatTokenizer) -> Generate:
    """Returns the agent of a run; all episodes share its sources (threads, servers)."""
    toolset = read_tools(flags.tools_config)
    format = ReToolFormat(toolset.python, shows_tool_role(tokenizer))
    rewards = RewardRules(flags.answer_check, flags.tool_encouragement, flags.tool_call_price)
    rules = Rules(rewards, flags.max_tool_calls, tools_in_prompt=not shows_tools(tokenizer))
    return agent(
        lambda: ToolEnvironment(toolset, format, rules),
        EpisodeLimits(turns=flags.max_turns),
        parallel=flags.parallel_envs,
        format=format,
    )


def shows_tool_role(tokenizer: ChatTokenizer) -> bool:
    """Returns whether the chat template renders messages of the role tool."""
    try:
        return _SEEN in tokenizer.render([*_ASKED, {"role": "tool", "content": _SEEN}], answer_next=True)
    except DataError:
        return False


def shows_tools(tokenizer: ChatTokenizer) -> bool:
    """Returns whether the chat template describes tools."""
    try:
        return "a_tool_of_mine" in tokenizer.render(_ASKED[:1], [_TOOL], answer_next=True)
    except DataError:
        return False
