"""One line per request: enough for an operator, without any content."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.fakes.running_gateway import RunningGateway

ASK: list[Any] = [{"role": "user", "content": "a secret question"}]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, "openclaw.access")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "openclaw.access"]


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_is_one_line_without_content(
    gateway: RunningGateway, lines: Callable[[], list[str]], stream: bool
) -> None:
    gateway.says("a secret answer")
    body = {"messages": ASK, "session_id": "my session", "user": "ann", "stream": stream}
    assert gateway.http.post("/v1/chat/completions?key=hidden", json=body).status_code == 200
    (line,) = gateway.wait_for(lines)
    form = r"POST /v1/chat/completions 200 \d+ms prompt=\d+ completion=(\d+) session=my%20session"
    found = re.fullmatch(form, line)
    assert found and int(found[1]) == len(gateway.engine.say)


def test_rejections_are_logged_and_polling_is_not(
    keyed: RunningGateway, lines: Callable[[], list[str]]
) -> None:
    assert keyed.http.post("/v1/chat/completions", content=b"{").status_code == 400
    assert httpx.post(f"{keyed.url}/v1/chat/completions", json={}).status_code == 401
    assert keyed.http.get("/no%0Aplace").status_code == 404
    for path in ("/healthz", "/readyz", "/metrics"):
        keyed.http.get(path)
    keyed.wait_for(lambda: len(lines()) == 3)
    told = [line.rsplit(" ", 1)[0] for line in lines()]
    assert told == ["POST /v1/chat/completions 400", "POST /v1/chat/completions 401", "GET /no%0Aplace 404"]
