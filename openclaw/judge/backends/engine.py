"""A judge model on our inference engines, prompted with token ids of the model's own template."""

from __future__ import annotations

import asyncio
from pathlib import Path

from openclaw.errors import JudgeError
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.tokenizer import Tokenizer
from openclaw.judge.backends.http import JudgeHttp
from openclaw.judge.backends.model import ModelBackend
from openclaw.judge.backends.prompts import Asked, PromptSet
from openclaw.judge.backends.votes import Reply
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.settings import JudgeSettings

REPLY_ROOM, REPLY_SHARE = 512, 4
"""Context reserved for the reply: at least the first number of tokens, and one part in the second of the context,
because a model may think before it votes. A longer prompt is shortened."""
_SHORTEST_TEXT = 200


class EngineBackend(ModelBackend):
    """Sends `/generate` requests to one or more equal engines (SGLang's native API). Raises ConfigError for a model
    folder that cannot be used."""

    def __init__(self, settings: JudgeSettings, prompts: PromptSet, metrics: JudgeMetrics) -> None:
        folder = ModelFolder.read(Path(settings.prm_model_path or "").expanduser())
        super().__init__(f"engine:{folder.path.resolve().name}", prompts, metrics, settings.judge_cache_size)
        self._tokenizer = Tokenizer(folder.path)
        self._format = ChatFormat(folder, self._tokenizer)
        self._context = min(folder.context_length, settings.judge_context_length or folder.context_length)
        self._temperature = settings.prm_temperature
        self._max_new_tokens = settings.prm_max_new_tokens
        self._http = JudgeHttp(
            [f"{url.rstrip('/')}/generate" for url in settings.judge_engine_url],
            settings.judge_request_timeout,
            settings.judge_retries,
            settings.judge_retry_budget,
            settings.judge_max_requests,
            metrics,
        )

    async def close(self) -> None:
        await self._http.close()

    async def reply(self, asked: Asked, seed: int) -> Reply:
        ids = await asyncio.to_thread(self.prompt_ids, asked)
        sampling = {
            "temperature": self._temperature,
            "top_p": 1.0,
            "top_k": -1,
            "max_new_tokens": min(self._max_new_tokens, self._context - len(ids)),
            "sampling_seed": seed,
            "stop_token_ids": self._format.stop_ids,
            "skip_special_tokens": False,
            "no_stop_trim": True,
        }
        answer = await self._http.post(
            {"input_ids": ids, "sampling_params": sampling, "return_logprob": False}
        )
        return Reply.of_text(self._text(answer), _finish_reason(answer))

    def prompt_ids(self, asked: Asked) -> list[int]:
        """Returns the prompt's ids [T], its texts shortened so that the context has room for a reply. Raises
        JudgeError if the prompt is too long even then."""
        reply = max(REPLY_ROOM, self._context // REPLY_SHARE)
        room = self._context - min(self._max_new_tokens, reply)
        longest = max(asked.longest_text, _SHORTEST_TEXT)
        while True:
            ids = self._format.render(asked.messages(longest), None, True)
            if len(ids) <= room:
                return ids
            if longest == _SHORTEST_TEXT:
                raise JudgeError(f"the judge prompt has {len(ids)} tokens; its engine has room for {room}")
            longest = max(_SHORTEST_TEXT, longest // 2)

    def _text(self, answer: dict[str, object]) -> str:
        text, ids = answer.get("text"), answer.get("output_ids")
        if isinstance(text, str) and text:
            return text
        if isinstance(ids, list) and all(isinstance(token_id, int) for token_id in ids):
            return self._tokenizer.decode(ids)
        raise JudgeError("the engine's answer has neither text nor output_ids")


def _finish_reason(answer: dict[str, object]) -> object:
    """Returns why the reply ended: `length` if it was truncated; None if the engine does not report it."""
    about = answer.get("meta_info")
    reason = about.get("finish_reason") if isinstance(about, dict) else None
    return reason.get("type") if isinstance(reason, dict) else reason
