"""Key, address and SDK of an account at Fireworks AI."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from slime.errors import ConfigError
from slime.rented.sdk import REFUSED_KEY, check_version, status_in_causes

TESTED = (1, 2)
"""Supported versions of the SDK: 1.2.x. Its calls were tested with these."""
INSTALL = "pip install -r openclaw-fireworks/requirements.txt"
FOR_EVER = 1_000_000
"""Steps of a run without a limit."""


def check_sdk() -> None:
    """Raises ConfigError if the SDK is missing or of an untested version."""
    check_version("Fireworks' SDK", "fireworks-ai", TESTED, INSTALL)


def read_key() -> str:
    """Returns the API key. Raises ConfigError if there is none; the message never contains it."""
    key = os.environ.get("FIREWORKS_API_KEY", "")
    if not key:
        raise ConfigError("no key: export FIREWORKS_API_KEY=fw_..., from fireworks.ai/account/api-keys")
    if not key.isascii() or any(mark.isspace() for mark in key):
        raise ConfigError(
            "FIREWORKS_API_KEY is not a key: it contains spaces or characters that are not allowed in a header"
        )
    return key


def api_url(env: Mapping[str, str]) -> str:
    """Returns FIREWORKS_BASE_URL, by default Fireworks' own address. Raises ConfigError if it is no address."""
    url = (env.get("FIREWORKS_BASE_URL") or "https://api.fireworks.ai").rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"FIREWORKS_BASE_URL {url!r} is not an address: https://...")
    return url


def managers(url: str) -> tuple[Any, Any]:
    """Returns the SDK's managers of trainers and of deployments."""
    from fireworks.training.sdk import DeploymentManager, TrainerJobManager

    key = read_key()
    return TrainerJobManager(api_key=key, base_url=url), DeploymentManager(api_key=key, base_url=url)


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turns every exception of the SDK inside into a one-line ConfigError."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # the SDK raises RuntimeError, ValueError, TimeoutError and httpx's
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        reason = " ".join(lines[:2])[:400]
        if status_in_causes(error) in REFUSED_KEY:
            raise ConfigError(f"FIREWORKS_API_KEY is refused: {reason}") from error
        raise ConfigError(f"{what}: {reason}") from error
