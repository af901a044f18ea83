"""Restricts answers to a JSON schema: a mask of the tokens that may come next, computed by llguidance."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from slime.engines.requests import RequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

_SPACING: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One line of JSON. With free white space a small model may add spaces until its limit of tokens."""
_FIELD = "sampling_params.json_schema"


class Grammars:
    """Makes the grammars of one model. Its tables are built with the first grammar, which takes seconds for a large
    vocabulary. Used by several threads.

    Args:
        tokenizer: the model's; None: it has none.
        vocabulary: number of logits.
        stop_ids: tokens that end an answer.
    """

    def __init__(self, tokenizer: Tokenizer | None, vocabulary: int, stop_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._stop_ids = sorted(stop_ids)
        self._lock = threading.Lock()
        self._tables: LLTokenizer | None = None

    def of_schema(self, schema: str, begun: list[int]) -> Grammar:
        """Returns the grammar of an answer that follows a JSON schema.

        Args:
            schema: JSON.
            begun: sampled tokens of the answer, if it is resumed.

        Raises:
            RequestError: the schema is invalid or uses what llguidance lacks, or the tokens do not follow it.
        """
        from llguidance import LLMatcher

        if self._tokenizer is None:
            raise RequestError(f"{_FIELD}: the model folder has no tokenizer.json")
        if not self._stop_ids:
            raise RequestError(f"{_FIELD}: the model has no token that ends an answer")
        try:
            grammar = LLMatcher.grammar_from_json_schema(schema, defaults=_SPACING)
            # 0: an error is raised below, not printed
            matcher = LLMatcher(self._with_tables(self._tokenizer), grammar, log_level=0)
        except ValueError as error:
            raise RequestError(f"{_FIELD}: {error}") from error
        if matcher.is_error():
            raise RequestError(f"{_FIELD}: {matcher.get_error().splitlines()[0]}")
        if not matcher.consume_tokens(begun):
            raise RequestError(f"{_FIELD}: the answer so far does not follow the schema")
        return Grammar(matcher, self._vocabulary)

    def _with_tables(self, tokenizer: Tokenizer) -> LLTokenizer:
        from llguidance import LLTokenizer

        with self._lock:
            if self._tables is None:
                self._tables = LLTokenizer(
                    tokenizer.to_str(), n_vocab=self._vocabulary, eos_token=self._stop_ids
                )
            return self._tables


@dataclass(frozen=True, eq=False)
class Grammar:
    """The state of one answer's grammar."""

    _matcher: LLMatcher
    _vocabulary: int

    def allowed(self) -> Tensor:
        """Returns the tokens that may come next, bool `[V]`; at least one, which may be a stop token."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        return torch.from_numpy(np.unpackbits(bits, bitorder="little", count=self._vocabulary).astype(bool))

    def advance(self, token: int) -> str:
        """Adds a sampled token. Returns an error message; "" if the grammar allows the token."""
        return "" if self._matcher.consume_token(token) else self._matcher.get_error()
