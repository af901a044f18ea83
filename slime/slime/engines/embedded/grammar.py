"""Constrained decoding by a JSON schema: llguidance computes a mask of the allowed next tokens."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
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
"""Restricts JSON to one line. With free white space a small model may generate spaces up to its token
limit."""
_FIELD = "sampling_params.json_schema"
COMPILE_SECONDS = 5
"""Most processor time to compile a schema. Some schemas of a few hundred bytes would take years."""
_LONGEST_WAIT_SECONDS = 120.0
_CHECK = Path(__file__).with_name("schema_check.py")
_REMEMBERED = 1000


class Grammars:
    """Compiles grammars for one model; thread-safe.

    The tables are built with the first grammar, which takes seconds for a large vocabulary.

    Args:
        tokenizer: the model's tokenizer; None if it has none.
        vocabulary: number of logits.
        stop_ids: tokens that end an answer.
    """

    def __init__(self, tokenizer: Tokenizer | None, vocabulary: int, stop_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._stop_ids = sorted(stop_ids)
        self._lock = threading.Lock()
        self._tables: LLTokenizer | None = None
        self._checked: set[bytes] = set()

    def of_schema(self, schema: str, begun: list[int]) -> Grammar:
        """Returns the grammar of answers that match a JSON schema.

        Args:
            schema: JSON schema.
            begun: sampled tokens of the answer, if it is resumed.

        Raises:
            RequestError: the schema is invalid, too complex or unsupported by llguidance, or the tokens do not match
                it.
        """
        from llguidance import LLMatcher

        if self._tokenizer is None:
            raise RequestError(f"{_FIELD}: the model folder has no tokenizer.json")
        if not self._stop_ids:
            raise RequestError(f"{_FIELD}: the model has no end-of-sequence token")
        self._check(schema)
        try:
            grammar = LLMatcher.grammar_from_json_schema(schema, defaults=_SPACING)
            # 0: an error is raised below, not printed
            matcher = LLMatcher(self._with_tables(self._tokenizer), grammar, log_level=0)
        except ValueError as error:
            raise RequestError(f"{_FIELD}: {error}") from error
        if matcher.is_error():
            raise RequestError(f"{_FIELD}: {matcher.get_error().splitlines()[0]}")
        if not matcher.consume_tokens(begun):
            raise RequestError(f"{_FIELD}: the resumed tokens do not match the schema")
        return Grammar(matcher, self._vocabulary)

    def _check(self, schema: str) -> None:
        """Raises RequestError if the compilation of a schema takes too long. Each schema is checked once."""
        digest = hashlib.sha256(schema.encode()).digest()
        if digest in self._checked:
            return
        command = [sys.executable, "-I", str(_CHECK), str(COMPILE_SECONDS), json.dumps(_SPACING)]
        try:
            done = subprocess.run(
                command,
                input=schema.encode(),
                timeout=_LONGEST_WAIT_SECONDS,
                capture_output=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            done = None
        if done is None or done.returncode:
            raise RequestError(
                f"{_FIELD}: the schema is too complex: its compilation takes more than {COMPILE_SECONDS} seconds or "
                "too much memory"
            )
        if len(self._checked) >= _REMEMBERED:
            self._checked.clear()
        self._checked.add(digest)

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
    """State of one answer's grammar."""

    _matcher: LLMatcher
    _vocabulary: int

    def allowed(self) -> Tensor:
        """Returns the allowed next tokens, bool [V]; at least one is allowed, possibly a stop token."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        return torch.from_numpy(np.unpackbits(bits, bitorder="little", count=self._vocabulary).astype(bool))

    def advance(self, token: int) -> str:
        """Appends a sampled token. Returns an error message, or "" if the grammar allows the token."""
        return "" if self._matcher.consume_token(token) else self._matcher.get_error()
