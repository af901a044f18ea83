"""A service that only samples: any OpenAI-compatible completions endpoint that accepts and returns token ids.

    python -m slime.engines.launch --backend completions --rented-url http://HOST:8000/v1 --rented-model NAME \\
      --model-path FOLDER --port 30010

Ids of an answer are read from the fields of known servers:

    vLLM      choices[0].token_ids, with "return_token_ids"; log-probs in choices[0].logprobs.token_logprobs
    others    choices[0].raw_output.completion_token_ids, with "raw_output"; logprobs.content[].logprob

An endpoint that returns no ids is rejected when the engine starts: re-tokenised text can differ from the sampled ids.
Variables: COMPLETIONS_API_KEY, sent as a bearer token.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NoReturn

import httpx

from slime.errors import ConfigError
from slime.rented.sdk import MAY_PASS, failures_translated
from slime.rented.service import (
    FIRST_ANSWER,
    Sampled,
    Sampler,
    SamplingRequest,
    ServiceAway,
    ServiceRefuses,
    ServiceSettings,
    Trained,
)

Fields = Mapping[str, Any]
"""JSON of the endpoint: fields of a request, or of one of its choices."""

ANSWER_SECONDS = 600.0
CONNECTIONS = 64
NO_IDS = (
    "{url} returns no token ids for {model!r}, which training needs: use a server that returns them, such as vLLM, or "
    "use this one only as a judge"
)
ID_REQUEST_FIELDS = {"return_token_ids": True, "raw_output": True}
"""Request fields that make servers return ids; servers ignore unknown fields."""
CANNOT_TRAIN = "{url} can only sample, not train: use it only for serving, or rent a service that can train"


class CompletionsService:
    """One model of one endpoint.

    Raises:
        ConfigError: no URL was given.
    """

    exclusive = False

    def __init__(self, settings: ServiceSettings) -> None:
        if not settings.url.startswith(("http://", "https://")):
            raise ConfigError(
                "--rented-url: give the base URL of the completions endpoint, http://HOST:PORT/v1"
            )
        self.settings = settings
        self.client = CompletionsSampler(
            settings.url,
            settings.model,
            os.environ.get("COMPLETIONS_API_KEY", ""),
            {"return_token_ids": True},
        )

    def check(self) -> None:
        """Samples one token, which verifies the key, the model, and that ids are returned. Raises ConfigError,
        ServiceAway."""
        try:
            self.client.ask(FIRST_ANSWER)
        except ServiceRefuses as error:
            raise ConfigError(str(error)) from error

    def sampler(self, address: str | None) -> Sampler:
        if address is not None:
            raise ServiceRefuses(CANNOT_TRAIN.format(url=self.settings.url))
        return self.client

    def load(self, address: str | None) -> None:
        """Does nothing: the endpoint has only one model."""

    def new(self) -> Trained:
        self._refuse()

    def resume(self, address: str) -> Trained:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ConfigError(CANNOT_TRAIN.format(url=self.settings.url))


class CompletionsSampler:
    """Samples from one model of an endpoint. Log-probs are the raw model's, over the whole vocabulary at temperature
    1.

    Args:
        url: base URL, to which `/completions` is appended.
        options: request fields that make this server return ids.
    """

    def __init__(self, url: str, model: str, key: str, options: Fields) -> None:
        self.url, self.model, self.options = url.rstrip("/"), model, dict(options)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        self.http = httpx.Client(headers=headers, timeout=ANSWER_SECONDS, limits=limits)
        self.threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="completions")

    def sample(self, request: SamplingRequest) -> Future[Sampled]:
        return self.threads.submit(self.ask, request)

    def log_probs(self, ids: Sequence[int]) -> Future[list[float]]:
        return self.threads.submit(self._of_prompt, ids)

    def ask(self, request: SamplingRequest) -> Sampled:
        """Samples one answer. Raises ServiceAway, ServiceRefuses."""
        choice = self._post(request, {"logprobs": 1})
        ids, values = ids_of(choice), log_probs_of(choice)
        if ids is None:
            raise ServiceRefuses(NO_IDS.format(url=self.url, model=self.model))
        if values is None or len(values) != len(ids):
            raise ServiceAway(f"{self.url} returned {len(values or [])} log-probs for {len(ids)} ids")
        return Sampled(ids, values, choice.get("finish_reason") == "stop")

    def _of_prompt(self, ids: Sequence[int]) -> list[float]:
        choice = self._post(SamplingRequest(ids, 1), {"logprobs": 1, "echo": True})
        values = log_probs_of(choice, first_known=False)
        if values is None or len(values) < len(ids):
            raise ServiceRefuses(f"{self.url} returns no log-probs of prompts")
        return values[1 : len(ids)]

    def _post(self, request: SamplingRequest, more: Fields) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": list(request.prompt),
            "max_tokens": request.most,
            "n": 1,
        }
        body |= {"temperature": request.temperature, "top_p": request.top_p, **more, **self.options}
        body |= {"top_k": request.top_k} if request.top_k > 0 else {}
        body |= {"seed": request.seed} if request.seed is not None else {}
        body |= {"stop_token_ids": list(request.stop_ids)} if request.stop_ids else {}
        with failures_translated():
            answer = self.http.post(f"{self.url}/completions", json=body)
        if answer.status_code != 200:
            kind = (
                ServiceAway if answer.status_code >= 500 or answer.status_code in MAY_PASS else ServiceRefuses
            )
            raise kind(
                f"{self.url} answered with status {answer.status_code}: {answer.text[:300]}".replace(
                    "\n", " "
                )
            )
        with failures_translated():
            [choice] = answer.json()["choices"]
        return dict(choice)


def ids_of(choice: Fields) -> list[int] | None:
    """Returns the sampled ids of an answer, None if the server returns none."""
    raw = choice.get("raw_output") or {}
    ids = choice.get("token_ids") or raw.get("completion_token_ids")
    return None if ids is None else [int(one) for one in ids]


def log_probs_of(choice: Fields, first_known: bool = True) -> list[float] | None:
    """Returns the log-probs of an answer's tokens; `first_known`: False if the prompt is echoed, because its first
    token has none."""
    log_probs = choice.get("logprobs") or {}
    content = log_probs.get("content")
    numbers = [one.get("logprob") for one in content] if content else log_probs.get("token_logprobs")
    if not numbers:
        return None
    values = [math.nan if one is None else float(one) for one in numbers]
    return None if any(map(math.isnan, values[0 if first_known else 1 :])) else values
