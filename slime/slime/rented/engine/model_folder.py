"""Local files of a model whose weights are elsewhere: vocabulary, context length, stop ids, tokenizer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from slime.engines.requests import ModelLimits
from slime.errors import ConfigError


@dataclass(frozen=True)
class ModelFolder:
    """Values read from a model folder; `tokenizer` is None if it has no tokenizer.json."""

    path: str
    limits: ModelLimits
    stop_ids: frozenset[int]
    tokenizer: Tokenizer | None

    @classmethod
    def read(cls, path: str, context_length: int | None = None) -> ModelFolder:
        """Reads a model folder. Raises ConfigError if files are missing, or if the model does not support this
        context length."""
        folder = Path(path)
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"{path} contains no config.json; give the folder of the model's tokenizer and configuration"
            )
        config = _json(folder / "config.json")
        text = config.get("text_config", config)
        vocabulary, most = text.get("vocab_size"), text.get("max_position_embeddings")
        if not isinstance(vocabulary, int) or not isinstance(most, int):
            raise ConfigError(f"{path}/config.json lacks vocab_size or max_position_embeddings")
        if context_length is not None and context_length > most:
            raise ConfigError(
                f"--context-length {context_length} is too long: the model has {most} positions"
            )
        file = folder / "tokenizer.json"
        tokenizer = Tokenizer.from_file(str(file)) if file.is_file() else None
        return cls(
            path, ModelLimits(context_length or most, vocabulary), _stop_ids(folder, tokenizer), tokenizer
        )

    def text(self, ids: list[int], skip_special_tokens: bool) -> str:
        """Returns the text of sampled ids; "" without a tokenizer."""
        if self.tokenizer is None:
            return ""
        return str(self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))


def _stop_ids(folder: Path, tokenizer: Tokenizer | None) -> frozenset[int]:
    stop_ids: list[Any] = []
    for name in ("generation_config.json", "config.json"):
        ids = _json(folder / name).get("eos_token_id")
        stop_ids += ids if isinstance(ids, list) else [ids]
    token = _json(folder / "tokenizer_config.json").get("eos_token")
    word = token.get("content") if isinstance(token, dict) else token
    if word and tokenizer is not None:
        stop_ids.append(tokenizer.token_to_id(word))
    return frozenset(int(one) for one in stop_ids if one is not None)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}
