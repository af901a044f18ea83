"""Real clients pass the conformance script."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from openclaw_test.conformance.run import CHECKS, run
from openclaw_test.conformance.target import Target
from tests.fakes.running_gateway import RunningGateway

KEY = "secret-key"


def outcomes(gateway: RunningGateway, client: str) -> list[Any]:
    gateway.engine.say = gateway.tokenizer.encode(' {"city": "Paris"}}\n</tool_call><|im_end|>')
    gateway.engine.chunk = 1
    return list(run(Target(gateway.url, KEY, "small-qwen3"), [client]))


@pytest.mark.parametrize("client", ["openai-python", "langchain", "anthropic", "curl"])
def test_client_passes_every_check(keyed: RunningGateway, client: str) -> None:
    if client == "curl" and shutil.which("curl") is None:
        pytest.skip("curl is not installed: its conformance checks were NOT run")
    assert [(one.check, one.error or one.skipped) for one in outcomes(keyed, client)] == [
        (check, "") for check in CHECKS
    ]


def test_the_node_client_passes_every_check(keyed: RunningGateway) -> None:
    found = outcomes(keyed, "openai-node")
    if found[0].skipped:
        pytest.skip(f"Node's conformance checks were NOT run: {found[0].skipped}")
    assert [(one.check, one.error) for one in found] == [(check, "") for check in CHECKS]


def test_a_server_that_truncates_calls_by_length_also_passes(keyed: RunningGateway) -> None:
    keyed.engine.finish = {"type": "length"}
    keyed.engine.say = keyed.tokenizer.encode(' {"city": "Par')
    found = list(run(Target(keyed.url, KEY, "small-qwen3"), ["openai-python", "langchain", "anthropic"]))
    assert [one for one in found if one.error] == []


def test_a_missing_client_is_reported(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert [(one.check, bool(one.skipped)) for one in outcomes(gateway, "curl")] == [("all", True)]
