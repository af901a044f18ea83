"""A model whose vocabulary has 48 ids."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, write_qwen3: Callable[..., str]) -> str:
    return write_qwen3(tmp_path_factory.mktemp("model"), 0, vocab_size=48)
