"""A judge model with any OpenAI-compatible chat API."""

from __future__ import annotations

from typing import Any

from openclaw.judge.backends.http import JudgeHttp, Refusal
from openclaw.judge.backends.model import ModelBackend
from openclaw.judge.backends.prompts import Asked, PromptSet
from openclaw.judge.backends.votes import Reply
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.settings import JudgeSettings

LONGEST_TEXT = 48_000
"""Most characters sent of the request, of the response and of the next state, because the model's context length is
unknown."""


class OpenAIBackend(ModelBackend):
    """Sends `/chat/completions` requests. A parameter that an API rejects by name (`seed`, `temperature`,
    `max_tokens`) is omitted or renamed from then on."""

    def __init__(self, settings: JudgeSettings, prompts: PromptSet, metrics: JudgeMetrics) -> None:
        super().__init__(f"openai:{settings.judge_model}", prompts, metrics, settings.judge_cache_size)
        self._model = settings.judge_model
        self._options: dict[str, Any] = {
            "temperature": settings.prm_temperature,
            "max_tokens": settings.prm_max_new_tokens,
        }
        self._has_seeds = True
        key = settings.judge_api_key
        self._http = JudgeHttp(
            [settings.completions_url],
            settings.judge_request_timeout,
            settings.judge_retries,
            settings.judge_retry_budget,
            settings.judge_max_requests,
            metrics,
            {"Authorization": f"Bearer {key}"} if key else None,
        )

    async def close(self) -> None:
        await self._http.close()

    async def reply(self, asked: Asked, seed: int) -> Reply:
        request = {"model": self._model, "messages": asked.messages(LONGEST_TEXT), "stream": False}
        while True:
            body = request | self._options | ({"seed": seed} if self._has_seeds else {})
            try:
                return Reply.of_chat(await self._http.post(body))
            except Refusal as refusal:
                if not self._adapted(str(refusal), body):
                    raise

    def _adapted(self, message: str, body: dict[str, Any]) -> bool:
        """Changes the field of `body` that the error names; returns whether there was one."""
        if "max_tokens" in body and "max_completion_tokens" in message:
            limit = self._options.pop("max_tokens", None)
            if limit is not None:
                self._options["max_completion_tokens"] = limit
            return True
        if "seed" in body and "seed" in message:
            self._has_seeds = False
            return True
        if "temperature" in body and "temperature" in message:
            self._options.pop("temperature", None)
            return True
        return False
