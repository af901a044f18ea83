"""Checks that SGLang has the required features, unless its version is the tested one."""

from __future__ import annotations

from typing import Any

import httpx

from slime.errors import EngineError

MEASURED_VERSION = "0.5.23"
ROUTES = (
    "/generate",
    "/abort_request",
    "/pause_generation",
    "/continue_generation",
    "/update_weights_from_disk",
    "/weights_checker",
    "/model_info",
    "/health",
)


def check_capabilities(url: str, version: str, timeout: float = 120.0) -> None:
    """Requests from a running SGLang its routes, and one token with exact id and log-prob.

    Raises:
        EngineError: a feature is missing; the message names it and the version.
    """
    with httpx.Client(base_url=url, timeout=timeout, trust_env=False) as client:
        try:
            paths = client.get("/openapi.json").json()["paths"]
            body = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 1}, "return_logprob": True}
            answer = client.post("/generate", json=body).json()
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise EngineError(
                f"SGLang {version} responds differently from the tested version {MEASURED_VERSION}: {error!r}"
            ) from error
    lacking = [path for path in ROUTES if path not in paths]
    if lacking:
        raise EngineError(f"SGLang {version} has no {', '.join(lacking)}; use {MEASURED_VERSION}")
    if not _is_exact(answer):
        raise EngineError(
            f"SGLang {version} does not return output_ids with their log-probs from /generate; "
            f"use {MEASURED_VERSION}"
        )


def _is_exact(answer: dict[str, Any]) -> bool:
    try:
        entries = answer["meta_info"]["output_token_logprobs"]
        return [entry[1] for entry in entries] == answer["output_ids"] and len(entries) == 1
    except (KeyError, TypeError, IndexError):
        return False
