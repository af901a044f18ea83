"""Trainer's client of one engine, for any backend: health, version and weights.

engine = EngineControl("http://127.0.0.1:30010", "embedded")
checksum = engine.prepare("run/weights/v000004", 4)
engine.switch(4)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import httpx

from slime.engines.protocol import ControlRoutes, EngineControlError, EngineInfo, HttpCall
from slime.flags.shared import KEEPS_MEMORY
from slime.utils.certificates import certificates

__all__ = ["ROUTES", "EngineControl", "EngineControlError", "EngineInfo", "answer_each"]

SLOW = ("/weights_checker", "/generate")
"""Paths of calls that verify the served weights. Their first calls compile kernels, which may exceed
`timeout`, so they use `prepare_timeout`."""


class EmbeddedRoutes:
    """Two-phase update of the embedded engine, which can also generate with prepared weights."""

    tries = True

    def prepare(self, call: HttpCall, path: str, version: int) -> str:
        answer = call("POST", "/prepare_weights", {"model_path": path, "weight_version": str(version)})
        return str(answer["checksum"])

    def switch(self, call: HttpCall, version: int) -> str:
        return str(call("POST", "/switch_weights", {"weight_version": str(version)})["checksum"])

    def discard(self, call: HttpCall) -> None:
        call("POST", "/discard_weights", {})

    def try_weights(
        self,
        call: HttpCall,
        version: int,
        prompts: list[list[int]],
        most: int,
        drafts: Sequence[list[int]] = (),
        temperature: float = 0.0,
    ) -> list[Any]:
        body = {"weight_version": str(version), "prompts": prompts, "max_new_tokens": most}
        body |= {"drafts": list(drafts)} if temperature == 0 else {"temperature": temperature}
        answers: list[Any] = call("POST", "/try_weights", body)["answers"]
        return answers

    def release_memory(self, call: HttpCall) -> None:
        call("POST", "/release_memory_occupation", {})

    def resume_memory(self, call: HttpCall) -> None:
        call("POST", "/resume_memory_occupation", {})

    def info(self, call: HttpCall) -> EngineInfo:
        answer = call("GET", "/model_info")
        return EngineInfo(
            version=int(answer["weight_version"]),
            checksum=str(answer["checksum"]),
            model_path=str(answer["model_path"]),
            max_context_length=int(answer["max_context_length"]),
            forgotten=bool(answer.get("forgotten")),
        )


class HostedRoutes(EmbeddedRoutes):
    """Two-phase update of vLLM, hosted by this project's server."""

    tries = False

    def release_memory(self, call: HttpCall) -> None:
        raise EngineControlError(f"vLLM {KEEPS_MEMORY}")

    def resume_memory(self, call: HttpCall) -> None:
        """Does nothing: vLLM keeps its memory."""


def _sglang() -> ControlRoutes:
    from slime.engines.sglang.routes import (
        SGLangRoutes,
    )  # imports torch, which other engines do not need

    return SGLangRoutes()


ROUTES: dict[str, Callable[[], ControlRoutes]] = {
    "embedded": EmbeddedRoutes,
    "rented": EmbeddedRoutes,
    "sglang": _sglang,
    "vllm": HostedRoutes,
}


class EngineControl:
    """Client that controls one engine. Calls raise EngineControlError and can be repeated.

    Args:
        timeout: seconds for a call.
        prepare_timeout: seconds for preparing weights.
        routes: replaces the backend's routes, if weights are not transferred through files.
    """

    def __init__(
        self,
        url: str,
        backend: str = "embedded",
        timeout: float = 10.0,
        prepare_timeout: float = 600.0,
        routes: ControlRoutes | None = None,
    ) -> None:
        if backend not in ROUTES:
            raise ValueError(f"unknown engine backend {backend!r}; known: {', '.join(sorted(ROUTES))}")
        self.url = url.rstrip("/")
        self._routes = routes or ROUTES[backend]()
        self._timeout = timeout
        self._prepare_timeout = prepare_timeout
        self._client = httpx.Client(
            base_url=self.url, timeout=timeout, trust_env=False, verify=certificates()
        )

    def health(self) -> bool:
        """Returns whether the engine answers and is healthy."""
        try:
            return self._client.get("/health").status_code == 200
        except httpx.HTTPError:
            return False

    def prepare(self, path: str, version: int) -> str:
        """Loads and verifies the folder `path` as `version` without making it live; returns its checksum."""
        return self._routes.prepare(self._call_with(self._prepare_timeout), path, version)

    def switch(self, version: int) -> str:
        """Makes a prepared version live between two decode steps; returns the checksum of the live tensors."""
        return self._routes.switch(self._call_with(self._prepare_timeout), version)

    def discard(self) -> None:
        """Discards the prepared version, if any."""
        self._routes.discard(self._call_with(self._timeout))

    def try_weights(
        self,
        path: str,
        version: int,
        prompts: Sequence[list[int]],
        max_new_tokens: int,
        drafts: Sequence[list[int]] = (),
        temperature: float = 0.0,
    ) -> list[Mapping[str, Any]] | None:
        """Returns answers of the live weights, or of those in the folder `path`, which are prepared but not
        made live.

        Args:
            drafts: another version's answers at temperature 0, one per prompt, each empty if unknown; () for
                none.

        Returns:
            For each prompt ids, log_probs, text, ended; None if this backend holds only one set of weights.
        """
        routes = self._routes
        if not isinstance(routes, EmbeddedRoutes) or not routes.tries:
            return None
        call = self._call_with(self._prepare_timeout)
        routes.prepare(call, path, version)
        answers: list[Mapping[str, Any]] = routes.try_weights(
            call, version, list(prompts), max_new_tokens, drafts, temperature
        )
        return answers

    def load_adapter(self, name: str, path: str, version: int) -> str:
        """Serves the adapter in the folder `path` as `name`, replacing its previous version; returns its checksum."""
        body = {"lora_name": name, "lora_path": path, "weight_version": str(version)}
        return str(self._call_with(self._prepare_timeout)("POST", "/load_lora_adapter", body)["checksum"])

    def answer(
        self, prompt_ids: list[int], max_new_tokens: int, temperature: float, adapter: str | None = None
    ) -> dict[str, Any]:
        """Returns one answer of the served model or an adapter: ids, log_probs, text, ended.

        Raises:
            EngineControlError: the call failed, or the answer is malformed.
        """
        body: dict[str, Any] = {
            "input_ids": prompt_ids,
            "sampling_params": {"temperature": temperature, "max_new_tokens": max_new_tokens},
            "return_logprob": True,
        }
        body |= {} if adapter is None else {"lora_path": adapter}
        content = self._call_with(self._prepare_timeout)("POST", "/generate", body)
        try:
            rows = content["meta_info"]["output_token_logprobs"]
            finish = content["meta_info"].get("finish_reason") or {}
            return {
                "ids": [int(row[1]) for row in rows],
                "log_probs": [float(row[0]) for row in rows],
                "text": str(content["text"]),
                "ended": finish.get("type") == "stop",
            }
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise EngineControlError(f"{self.url}/generate: {error!r}") from error

    def unload_adapter(self, name: str) -> None:
        """Unloads an adapter."""
        self._call_with(self._timeout)("POST", "/unload_lora_adapter", {"lora_name": name})

    def adapters(self) -> dict[str, dict[str, Any]]:
        """Returns version (`weight_version`), path and checksum of every adapter, by name."""
        adapters: dict[str, dict[str, Any]] = self._call_with(self._timeout)("GET", "/lora_adapters")[
            "adapters"
        ]
        return adapters

    def flush_cache(self) -> None:
        """Drops cached keys and values of finished requests."""
        self._call_with(self._timeout)("POST", "/flush_cache", {})

    def release_memory(self) -> None:
        """Releases the engine's memory; its requests wait. Can be repeated."""
        self._routes.release_memory(self._call_with(self._prepare_timeout))

    def resume_memory(self) -> None:
        """Reallocates the released memory and continues; no-op if nothing is released."""
        self._routes.resume_memory(self._call_with(self._prepare_timeout))

    def info(self) -> EngineInfo:
        return self._routes.info(self._call_with(self._timeout))

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> EngineControl:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call_with(self, timeout: float) -> HttpCall:
        def call(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
            limit = max(timeout, self._prepare_timeout) if path in SLOW else timeout
            try:
                answer = self._client.request(method, path, json=body, timeout=limit)
            except httpx.HTTPError as error:
                raise EngineControlError(f"{self.url}{path}: {error or type(error).__name__}") from error
            if answer.status_code != 200:
                raise EngineControlError(f"{self.url}{path}: {_message(answer)}", answer.status_code)
            return _content(answer)

        return call


def answer_each(
    engine: EngineControl,
    prompts: Sequence[list[int]],
    max_new_tokens: int,
    temperature: float,
    ended: threading.Event,
    at_once: int,
    adapter: str | None = None,
) -> list[Mapping[str, Any]]:
    """Calls `EngineControl.answer` for each prompt, `at_once` concurrently; returns answers in order of the
    prompts.

    Raises:
        EngineControlError: a call failed, or `ended` was set meanwhile.
    """

    def answer(prompt: list[int]) -> Mapping[str, Any]:
        if ended.is_set():
            raise EngineControlError(f"{engine.url}: the check was cancelled")
        return engine.answer(prompt, max_new_tokens, temperature, adapter)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(answer, prompts))


def _content(answer: httpx.Response) -> dict[str, Any]:
    """Returns the JSON object of a response; some successful responses of SGLang are plain text."""
    try:
        result = answer.json()
    except ValueError:
        return {}
    return result if isinstance(result, dict) else {}


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}: {answer.text[:200]}"
