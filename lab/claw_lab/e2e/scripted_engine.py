"""An inference engine that speaks SGLang's protocol and answers from a script, for turns with tools in tests.

The tiny model cannot call an agent's tools, so these turns are scripted; all other parts are real. Its answer follows
from the last message of a person or a tool, without what the client put around it:

    RUN <command>   a call of the tool that runs commands      READ <path>   a call of the tool read
    CUT <command>   as RUN, but the call ends before its arguments do
    SLOW            an answer of 150 tokens in 3 seconds, so that weights can change in it
    a tool's result a sentence that quotes it    anything else  a sentence that quotes it

    bash lab/run.sh e2e.scripted_engine --model-path FOLDER --port 31000

POST /switch_weights {"weight_version": "4"} changes the version at once, also during answers. POST /fail_next
{"status": 500} ends the next answer after FAIL_AFTER tokens with that error. GET /calls lists the sampled answers, with
the start and end times of each call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from openclaw.formats.tokenizer import Tokenizer

END = "<|im_end|>"
INTERNAL = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_MESSAGE = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.S)
_STAMP = re.compile(r"^\[\w{3} \d{4}-\d\d-\d\d [^\]]+\] ?")
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.S)
_RUNNERS = (
    ("exec", "command"),
    ("exec_command", "cmd"),
    ("Bash", "command"),
    ("bash", "command"),
    ("terminal", "command"),
    ("run_shell_command", "command"),
    ("run_commands", "commands"),
)
"""Names of the tool that runs a command, and of its argument, in OpenClaw, Codex, Claude Code, opencode (and pi),
Hermes, Qwen Code and Cline."""
SLOW_TOKENS, SLOW_PAUSE = 150, 0.02  # tokens, seconds of each
FAIL_AFTER = 8


class ScriptedEngine:
    """A scripted engine; `version` is the weight version of the next tokens."""

    def __init__(self, model_path: Path) -> None:
        self.tokenizer = Tokenizer(model_path)
        self.end = self.tokenizer.token_id(END)
        self.version = 0
        self.calls: list[dict[str, Any]] = []
        self._next_error: int | None = None

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/generate", self.generate)
        app.router.add_post("/switch_weights", self.switch)
        app.router.add_post("/fail_next", self.fail_next)
        app.router.add_post("/abort_request", self.ok)
        app.router.add_get("/calls", self.show_calls)
        for path in ("/health", "/model_info", "/server_info"):
            app.router.add_get(path, self.info)
        return app

    async def ok(self, request: web.Request) -> web.Response:
        return web.json_response({"success": True})

    async def show_calls(self, request: web.Request) -> web.Response:
        return web.json_response(self.calls)

    async def info(self, request: web.Request) -> web.Response:
        return web.json_response({"weight_version": str(self.version), "checksum": f"script-{self.version}"})

    async def switch(self, request: web.Request) -> web.Response:
        self.version = int((await request.json())["weight_version"])
        return await self.info(request)

    async def fail_next(self, request: web.Request) -> web.Response:
        self._next_error = int((await request.json())["status"])
        return await self.info(request)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Streams cumulative chunks, as SGLang does, with log-probs and the version of each span."""
        began = time.monotonic()
        body = await request.json()
        text = answer_to(self.tokenizer.decode(body["input_ids"], skip_special_tokens=False))
        ids = [*self.tokenizer.encode_markup(text), self.end]
        ids = ids[_begun(body["input_ids"], ids) :]
        limit = int(body["sampling_params"]["max_new_tokens"])
        finish: dict[str, Any] = (
            {"type": "stop", "matched": self.end} if len(ids) <= limit else {"type": "length"}
        )
        ids = ids[:limit]
        error, self._next_error = self._next_error, None
        if error is not None:
            ids = ids[:FAIL_AFTER]
            finish = {"type": "abort", "status_code": error, "message": "the script ends this answer"}
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        spans: list[dict[str, Any]] = []
        slow = text.startswith("SLOW")
        for end in range(1, len(ids) + 1):
            self._extend(spans, end)
            meta = {
                "finish_reason": finish if end == len(ids) else None,
                "weight_version": str(self.version),
                "output_token_logprobs": [[-0.5, token, None] for token in ids[:end]],
            }
            if end == len(ids):
                meta["weight_versions"] = spans
            if slow or end == len(ids) or end % 8 == 0:
                await response.write(
                    b"data: " + json.dumps({"output_ids": ids[:end], "meta_info": meta}).encode() + b"\n\n"
                )
            if slow:
                await asyncio.sleep(SLOW_PAUSE)
        if error is None:
            self._note(body["rid"], ids, spans, began)
        await response.write(b"data: [DONE]\n\n")
        return response

    def _note(self, rid: str, ids: list[int], spans: list[dict[str, Any]], began: float) -> None:
        written = [(int(span["version"]), span["start"], span["end"]) for span in spans]
        times = {"began": began, "ended": time.monotonic()}
        self.calls.append({"completion_id": rid, "ids": ids, "spans": written, **times})

    def _extend(self, spans: list[dict[str, Any]], end: int) -> None:
        if spans and spans[-1]["version"] == str(self.version):
            spans[-1]["end"] = end
        else:
            spans.append({"version": str(self.version), "start": end - 1, "end": end})


def _begun(prompt_ids: list[int], ids: list[int]) -> int:
    """Returns how many ids of the answer the prompt ends with: a generation is resumed after an error."""
    counts = range(min(len(ids), len(prompt_ids)), 0, -1)
    return next((count for count in counts if prompt_ids[-count:] == ids[:count]), 0)


def answer_to(prompt: str) -> str:
    """Returns the script's answer to a rendered prompt."""
    texts = [
        (role, text) for role, text in _MESSAGE.findall(prompt) if INTERNAL not in text and role != "system"
    ]
    text = _REMINDER.sub("", texts[-1][1]).strip() if texts else ""
    result = re.search(r"<tool_response>\s*(.*?)\s*</tool_response>", text, re.S)
    if result:
        return f"The tool answered: {result.group(1)[:200]}"
    line = _STAMP.sub("", text).splitlines()[0].strip('"') if text else ""
    command, _, rest = line.partition(" ")
    if command in ("RUN", "CUT"):
        call = _run(prompt, rest)
        return call if command == "RUN" else call[: call.index(rest) + len(rest)]
    if command == "READ":
        return _call("read", {"path": rest})
    if command == "SLOW":
        return "SLOW" + " slow" * SLOW_TOKENS
    return f"You said: {line[:80]}"


def _run(prompt: str, command: str) -> str:
    name, argument = next((one for one in _RUNNERS if f'"name": "{one[0]}"' in prompt), _RUNNERS[0])
    more: dict[str, Any] = {"description": "as asked"} if name == "bash" else {}
    if name == "run_shell_command":
        more = {"is_background": False}
    return _call(name, {argument: [command] if argument == "commands" else command, **more})


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def main() -> int:
    parser = argparse.ArgumentParser(description="A scripted engine.")
    parser.add_argument("--model-path", type=Path, required=True, help="folder with the tokenizer")
    parser.add_argument("--port", type=int, required=True, help="port on 127.0.0.1")
    args = parser.parse_args()
    web.run_app(ScriptedEngine(args.model_path).app(), host="127.0.0.1", port=args.port, print=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
