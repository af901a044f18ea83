"""Imports the package `renderers` without its client, which imports OpenAI's SDK.

This saves a quarter of the gateway's start time, and 14 MB of memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

__all__ = [
    "MODEL_RENDERER_MAP",
    "DefaultRenderer",
    "DefaultRendererConfig",
    "config_from_name",
    "create_renderer",
]
CLIENT = "renderers.client"


class Placeholder(ModuleType):
    """Stands in for the client module during the import. The package exports its error classes, which are never
    raised."""

    def __getattr__(self, name: str) -> type[Exception]:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


@contextmanager
def without_client() -> Iterator[None]:
    """Replaces the client module inside the context. Code that imports it later gets the real one."""
    if "renderers" in sys.modules or "openai" in sys.modules:
        yield
        return
    sys.modules[CLIENT] = Placeholder(CLIENT)
    try:
        yield
    finally:
        del sys.modules[CLIENT]


with without_client():
    from renderers.base import MODEL_RENDERER_MAP, create_renderer
    from renderers.configs import DefaultRendererConfig, config_from_name
    from renderers.default import DefaultRenderer
