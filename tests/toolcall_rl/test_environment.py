"""Tests episodes of tools: the observations, and the counts."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slime.agents.protocol import Action, Task, ToolCall
from slime.errors import ConfigError, EnvironmentAway
from toolcall_rl.environment import NO_MORE, Rules, ToolEnvironment
from toolcall_rl.generate import ToolcallFlags, start
from toolcall_rl.prompt import SYSTEM
from toolcall_rl.reading import ReToolFormat
from toolcall_rl.rewards import RewardRules
from toolcall_rl.tools.config import read_tools
from toolcall_rl.tools.mcp import McpSource

SERVER = str(Path(__file__).with_name("mcp_server.py"))
SERVES = Path(SERVER).read_text()
needs_sandbox = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def double(x: int) -> dict[str, int]:
    return {"double": 2 * x}


def fail(x: int) -> str:
    raise ValueError("no such x")


def hang(x: int) -> str:
    time.sleep(5)
    return ""


def odd(x: int) -> str:
    return "half: \ud800"


def function(name: str, **more: object) -> dict[str, Any]:
    return {"type": "function", "path": f"{__file__}:{name}", **more}


def environment(*tools: dict[str, Any], rules: Rules | None = None) -> ToolEnvironment:
    toolset = read_tools(json.dumps({"tools": list(tools) or [function("double")]}))
    return ToolEnvironment(toolset, ReToolFormat(toolset.python), rules or Rules(RewardRules()))


async def shown(environment: ToolEnvironment, name: str, **arguments: object) -> str:
    seen = await environment.step(Action("", (ToolCall(name, arguments),)))
    return "\n".join(message["content"] for message in seen.messages)


async def test_a_prompt_and_its_system_message_are_unchanged() -> None:
    start = await environment().reset(Task("1 + 1?", "2"))
    assert start.messages == [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "1 + 1?"}]
    own = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]
    assert (await environment().reset(Task(own, "2"))).messages == own


async def test_for_a_template_without_tools_the_system_message_describes_them() -> None:
    described = environment(rules=Rules(RewardRules(), tools_in_prompt=True))
    start = await described.reset(Task("1 + 1?", "2"))
    assert (
        '"name": "double"' in start.messages[0]["content"] and "<tool_call>" in start.messages[0]["content"]
    )


@needs_sandbox
async def test_the_interpreter_keeps_its_variables_and_an_episode_without_calls_starts_none() -> None:
    first, second = environment({"type": "python"}), environment({"type": "python"})
    for one in (first, second):
        await one.reset(Task("x?", "42"))
    assert await shown(first, "code_interpreter", code="x = 6 * 7") == "(no output)"
    assert await shown(first, "code_interpreter", code="x") == "42"
    assert "NameError" in await shown(second, "code_interpreter", code="x")
    untouched = environment({"type": "python"})
    await untouched.reset(Task("x?", "42"))
    assert untouched.tools.open == {}
    for one in (first, second, untouched):
        await one.close()


@needs_sandbox
async def test_code_may_import_define_print_and_raise() -> None:
    """Includes what a filter of sources would reject or change: imports, dunders, long strings, exit."""
    one = environment({"type": "python"})
    await one.reset(Task("x?", ""))
    code = "from math import sqrt\nclass A:\n  def __len__(self): return 3\n"
    code += "text = '''a\n    b'''\nprint(sqrt(4), len(A()), text)"
    assert await shown(one, "code_interpreter", code=code) == "2.0 3 a\n    b"
    assert await shown(one, "code_interpreter", code="print(1)\nraise SystemExit") == "1"
    assert await shown(one, "code_interpreter", code="import os; os.environ.get('HOME')") == "'/tmp'"
    await one.close()


@needs_sandbox
async def test_slow_code_delays_no_other_episode() -> None:
    slow, quick = environment({"type": "python"}), environment({"type": "python"})
    for one in (slow, quick):
        await one.reset(Task("x?", ""))
    await shown(quick, "code_interpreter", code="0")
    sleeping = asyncio.create_task(shown(slow, "code_interpreter", code="import time; time.sleep(30)"))
    for number in range(3):
        assert await shown(quick, "code_interpreter", code=str(number)) == str(number)
    assert not sleeping.done()
    await slow.close()
    await sleeping
    await quick.close()


async def test_functions_are_called_with_their_arguments_and_their_errors_are_shown() -> None:
    one = environment(function("double"), function("fail"), function("hang", seconds=0.2))
    await one.reset(Task("x?", ""))
    assert await shown(one, "double", x=4) == '{"double": 8}'
    assert await shown(one, "fail", x=4) == "Error: ValueError: no such x"
    assert (
        await shown(one, "double", y=4) == "Error: TypeError: double() got an unexpected keyword argument 'y'"
    )
    assert await shown(one, "hang", x=4) == "Error: hang ran longer than 0.2 s"


async def test_a_lone_surrogate_is_shown_as_a_question_mark() -> None:
    one = environment(function("odd"))
    await one.reset(Task("x?", ""))
    assert await shown(one, "odd", x=4) == "half: ?"


@needs_sandbox
async def test_printed_output_is_limited_by_the_config() -> None:
    one = environment({"type": "python", "output_chars": 6000})
    await one.reset(Task("x?", ""))
    text = await shown(one, "code_interpreter", code="print('x' * 5000, end='y')")
    assert len(text) == 5001 and text.endswith("xy")
    flood = await shown(
        one, "code_interpreter", code="import os\nfor _ in range(1024): os.write(1, b'z' * (1 << 20))"
    )
    assert len(flood) < 6100 and flood.startswith("zzz") and "truncated" in flood
    await one.close()


@needs_sandbox
def test_an_interpreter_with_too_small_limits_is_rejected_at_the_start() -> None:
    tools = json.dumps({"tools": [{"type": "python", "memory_mb": 1}]})
    with pytest.raises(ConfigError, match="code_interpreter does not start within its limits"):
        start(ToolcallFlags(tools_config=tools), {})  # type: ignore[arg-type]
    assert list(start(ToolcallFlags(), {})) == []  # type: ignore[arg-type]


async def test_calls_beyond_the_limit_are_rejected_and_long_results_shortened() -> None:
    one = environment(function("double", calls=2, output_chars=5), rules=Rules(RewardRules(), most_calls=3))
    await one.reset(Task("x?", ""))
    assert await shown(one, "double", x=1) == '{"dou... [truncated 8 chars]'
    await shown(one, "double", x=1)
    assert await shown(one, "double", x=1) == "Error: double may be called 2 times; answer now"
    assert await shown(one, "double", x=1) == NO_MORE
    assert (await one.evaluate()).details == {"pred": None, "calls_made": 3, "calls_refused": 1}


async def test_an_answer_ends_the_episode_and_the_calls_before_it_count() -> None:
    rules = Rules(RewardRules(encouragement=False, price=0.25))
    one = environment(rules=rules)
    await one.reset(Task("21 * 2?", "42"))
    await shown(one, "double", x=21)
    assert (await one.step(Action("Answer: \\boxed{42}"))).done
    outcome = await one.evaluate()
    assert (outcome.score, outcome.solved) == (0.75, True) and outcome.details["pred"] == "42"


async def test_a_truncated_episode_has_no_answer_despite_a_boxed_prompt() -> None:
    one = environment()
    await one.reset(Task("Write \\boxed{42}.", "42"))
    await shown(one, "double", x=21)
    outcome = await one.evaluate()
    assert not outcome.solved and outcome.score == pytest.approx(-1.05)


@pytest.fixture
async def served() -> AsyncIterator[ToolEnvironment]:
    one = environment({"type": "mcp", "command": [sys.executable, SERVER], "prefix": "my_", "seconds": 20})
    yield one
    [source] = one.tools.toolset.sources
    assert isinstance(source, McpSource)
    await source.close()


async def test_tools_of_an_mcp_server_are_listed_called_and_rejected(served: ToolEnvironment) -> None:
    start = await served.reset(Task("x?", ""))
    assert [tool.name for tool in start.tools][:3] == ["my_add", "my_refuse", "my_fail"]
    assert start.tools[0].parameters["properties"]["a"] == {"type": "integer"}
    assert await shown(served, "my_add", a=2, b=3) == "5\n[image]"
    assert await shown(served, "my_refuse") == "Error: not today"
    assert await shown(served, "my_fail") == "Error: fail\n[image]"
    assert "truncated" in await shown(served, "my_flood")
    assert "API_KEY" not in await shown(served, "my_environment")


async def test_a_crashed_server_is_an_infrastructure_failure_and_is_restarted(
    served: ToolEnvironment,
) -> None:
    await served.reset(Task("x?", ""))
    with pytest.raises(EnvironmentAway, match="has ended"):
        await shown(served, "my_end")
    assert await shown(served, "my_add", a=1, b=1) == "2\n[image]"


async def test_a_slow_server_is_reported_to_the_model_and_a_silent_one_is_unavailable() -> None:
    slow = McpSource([sys.executable, SERVER], {}, only=frozenset({"sleep"}))
    assert [tool.name for tool in await slow.tools()] == ["sleep"]
    assert slow.client is not None
    slow.client.seconds = 0.2
    assert "gave nothing within" in await slow.opened().call("sleep", {})
    await slow.close()
    with pytest.raises(EnvironmentAway, match="did not complete the handshake"):
        await McpSource([sys.executable, "-c", "pass"], {}).tools()


@pytest.mark.parametrize(
    ("listed", "refused", "said"),
    [
        ([{"name": "f", "inputSchema": {"type": "string"}}], ConfigError, "a JSON schema of an object"),
        ([{"inputSchema": {}}], EnvironmentAway, "sent an invalid list of tools"),
        ("tools", EnvironmentAway, "sent an invalid list of tools"),
    ],
)
async def test_uncallable_tools_are_reported(listed: object, refused: type[Exception], said: str) -> None:
    text = SERVES.replace("TOOLS[:2]", json.dumps(listed))
    source = McpSource([sys.executable, "-c", text], {})
    with pytest.raises(refused, match=said):
        await source.tools()
    await source.close()


async def test_two_tools_with_one_name_are_rejected(served: ToolEnvironment) -> None:
    command = [sys.executable, SERVER]
    both = environment(*[{"type": "mcp", "command": command, "only": ["add"]}] * 2)
    with pytest.raises(ConfigError, match="two tools are called add"):
        await both.reset(Task("x?", ""))
    for source in both.tools.toolset.sources:
        assert isinstance(source, McpSource)
        await source.close()
