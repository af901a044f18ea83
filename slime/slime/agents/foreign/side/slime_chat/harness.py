"""The chat loop. Every model call goes through verifiers' own server, as its harness contract requires."""

from __future__ import annotations

import functools
import json
import ssl
from contextlib import AsyncExitStack
from typing import Any

import httpx
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harness import Harness
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.runtimes import ProgramResult

Json = dict[str, Any]


class ChatHarnessConfig(HarnessConfig):  # type: ignore[misc]
    """An empty configuration."""


class ChatHarness(Harness[ChatHarnessConfig]):  # type: ignore[misc]
    """Calls the model until an answer has no tool call; a user turn continues the conversation."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
        tool_interception_url: str | None = None,
    ) -> ProgramResult:
        system, prompt = self.resolve_prompt(data)
        messages: list[Json] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or []]
        headers = {"Authorization": f"Bearer {secret}"}
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(
                httpx.AsyncClient(timeout=None, headers=headers, verify=trusted())
            )
            servers = {
                name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()
            }
            tools, places, connected = await connect_mcp({"mcpServers": servers}, stack)
            while True:
                body = {"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})}
                answer = await http.post(f"{endpoint}/chat/completions", json=body)
                if answer.status_code != 200:
                    if trace.stop_condition is None:
                        raise RuntimeError(f"the model answered {answer.status_code}: {answer.text[:500]}")
                    break
                message = answer.json()["choices"][0]["message"]
                messages.append({name: value for name, value in message.items() if value is not None})
                if not message.get("tool_calls"):
                    break
                for call in message["tool_calls"]:
                    messages.append(await called(call, places, connected))
        return ProgramResult(exit_code=0, stdout="", stderr="")


@functools.cache
def trusted() -> ssl.SSLContext:
    """Returns a cached context: loading the certificates takes 20 ms, twice the rest of a turn."""
    return httpx.create_ssl_context()


async def called(call: Json, places: Json, connected: Json) -> Json:
    name = call["function"]["name"]
    arguments = json.loads(call["function"]["arguments"] or "{}")
    known = name in places
    content = await call_mcp(connected, places, name, arguments) if known else f"error: no tool {name!r}"
    return {"role": "tool", "tool_call_id": call["id"], "content": content, "name": name}
