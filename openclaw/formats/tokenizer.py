"""The tokenizer of a model, from its `tokenizer.json`: text to token ids, and token ids to bytes.

It has the interface that the package `renderers` expects, without character offsets. All supported model families use
byte-level BPE, so an answer can be decoded token by token.

`PieceTokenizer` is faster for long texts: all ids of a text pass through the renderer as one entry. Otherwise the
renderer records, in Python, from which message each id is, which takes as long as tokenizing. It can be used only with
renderers that never inspect the ids.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as CoreTokenizer

from openclaw.errors import ConfigError

CACHED_BYTES = 4 << 20
"""Memory for cached ids of texts. Every request repeats the history of its conversation."""

SURELY_READ = 2
"""Characters per allowed token up to which a text is tokenized without checking its length first."""
SLICE_CHARACTERS = 16_384
"""Characters of the slices whose tokens are counted to check the length of a text."""
CUT_ALLOWANCE = 64
"""Upper bound of the number of tokens that cutting a text may add to a slice."""
_BETWEEN_WORDS = re.compile(r"(?<=[a-z]) ")
_ENTRY_BYTES = 150
"""Approximate bytes of an entry of an ordered dictionary."""


class TooManyTokens(Exception):
    """The texts of a prompt have more tokens than the limit, see `Tokenizer.at_most`."""


class Tokenizer:
    """Converts between text and token ids of one model. Thread-safe.

    Args:
        model_path: folder with `tokenizer.json`.

    Raises:
        ConfigError: the file does not exist, is invalid, or is not a byte-level tokenizer.
    """

    def __init__(self, model_path: Path) -> None:
        path = model_path / "tokenizer.json"
        try:
            data = path.read_bytes()
            self._core = CoreTokenizer.from_str(data.decode())
        except OSError as error:
            raise ConfigError(
                f"cannot read {path}: {error.strerror}; the model folder must contain tokenizer.json"
            ) from error
        except Exception as error:  # the library raises plain Exception for an unreadable file
            raise ConfigError(f"{path} is not a tokenizer file: {error}") from error
        if not _is_byte_level(json.loads(data)):
            raise ConfigError(f"{path}: only byte-level BPE tokenizers (decoder ByteLevel) are supported")
        self.name_or_path = str(model_path)
        self.fingerprint = hashlib.sha256(data).hexdigest()[:16]
        self.unk_token_id: int | None = None
        self.eos_token_id = self._special(model_path, "eos_token")
        self._bytes = _token_bytes(self._core)
        self._longest_token = max(map(len, self._bytes))
        self._cache = TextCache(CACHED_BYTES)
        self._control = _control_tokens(self._core)
        self._text_is_plain = False
        self._remaining = threading.local()

    @contextmanager
    def at_most(self, tokens: int) -> Iterator[None]:
        """Limits the tokens that this thread may encode inside the context. TooManyTokens is raised soon after the
        limit is exceeded."""
        self._remaining.tokens = tokens
        try:
            yield
        finally:
            self._remaining.tokens = None

    def encode(self, text: str, *args: object, **kwargs: object) -> list[int]:
        """Returns the token ids [T] of a text, without adding special tokens.

        The name of a special token in the text is encoded as that token, or as plain text after `read_text_as_plain`.
        Raises TooManyTokens, see `at_most`.
        """
        ids = self._cache.get(text)
        if ids is None:
            self.check_length(text)
            ids = self._encode_plain(text) if self._text_is_plain else self.encode_markup(text)
            self._cache.put(text, ids)
        self._count(len(ids))
        return ids

    def check_length(self, text: str) -> None:
        """Raises TooManyTokens if a text certainly has more tokens than `at_most` still allows."""
        remaining = getattr(self._remaining, "tokens", None)
        if remaining is None or len(text) <= max(SURELY_READ * remaining, SLICE_CHARACTERS):
            return
        if self.exceeds([text], remaining):
            raise TooManyTokens

    def _count(self, tokens: int) -> None:
        """Subtracts encoded tokens from the limit. Raises TooManyTokens if it is exceeded."""
        remaining = getattr(self._remaining, "tokens", None)
        if remaining is not None:
            self._remaining.tokens = remaining - tokens
            if remaining < tokens:
                raise TooManyTokens

    def encode_markup(self, text: str) -> list[int]:
        """Returns the token ids [T] of a rendered prompt, in which names of special tokens are those tokens."""
        return list(self._core.encode_batch_fast([text], add_special_tokens=False)[0].ids)

    def exceeds(self, texts: Sequence[str], limit: int) -> bool:
        """Returns whether texts certainly have more than `limit` tokens together. It tokenizes no more than necessary.

        The number of characters divided by the longest token is a lower bound of the number of tokens. If it is within
        the limit, the tokens of slices are counted, less CUT_ALLOWANCE for each, until they exceed the limit.
        """
        if sum(map(len, texts)) > limit * self._longest_token:
            return True
        count = 0
        for text in texts:
            start = 0
            while start < len(text):
                end = _cut(text, start + SLICE_CHARACTERS)
                count += max(1, len(self.encode_markup(text[start:end])) - CUT_ALLOWANCE)
                if count > limit:
                    return True
                start = end
        return False

    def read_text_as_plain(self, render: Callable[[], list[list[int]]]) -> bool:
        """Makes `encode` treat names of special tokens in texts as plain text. Returns whether this takes effect.

        It does not if the ids that `render` returns change, because the template itself writes special tokens as text.
        """
        before = render()
        self._text_is_plain = True
        self._cache.clear()
        if render() != before:
            self._text_is_plain = False
            self._cache.clear()
        return self._text_is_plain

    @property
    def text_is_plain(self) -> bool:
        """Returns whether `read_text_as_plain` took effect."""
        return self._text_is_plain

    def _encode_plain(self, text: str) -> list[int]:
        if self._control is None or not self._control.search(text):
            return self.encode_markup(text)
        ids: list[int] = []
        start = 0
        while match := self._control.search(text, start):
            cut = match.start() + 1  # the tokenizer does not recognize a name that is split
            ids += self.encode_markup(text[start:cut])
            start = cut
        return ids + self.encode_markup(text[start:])

    def cut_names(self, text: str, mark: str) -> str:
        """Returns the text with `mark` inserted into each name of a special token, so that it is not recognized."""
        if self._control is None:
            return text
        return self._control.sub(lambda match: match[0][0] + mark + match[0][1:], text)

    def decode(self, token_ids: Sequence[int], *args: object, **kwargs: object) -> str:
        """Returns the text of token ids [T], including special tokens. Invalid UTF-8 is replaced by U+FFFD."""
        return b"".join([self.token_bytes(token_id) for token_id in token_ids]).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes of one token; empty for an id outside the vocabulary."""
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Returns the id of a token, or None if it is not in the vocabulary. Returns a list for a list of tokens."""
        if isinstance(tokens, str):
            return self._core.token_to_id(tokens)
        return [self._core.token_to_id(token) for token in tokens]

    @property
    def vocabulary_size(self) -> int:
        """Returns the number of token ids, including special and unused ones."""
        return len(self._bytes)

    def same_vocabulary(self, other: Tokenizer) -> bool:
        """Returns whether every token id has the same bytes in both tokenizers."""
        return self._bytes == other._bytes

    def token_id(self, token: str) -> int:
        """Returns the id of a required token. Raises ConfigError if it is not in the vocabulary."""
        token_id = self._core.token_to_id(token)
        if token_id is None:
            raise ConfigError(f"the tokenizer in {self.name_or_path} has no token {token!r}")
        return int(token_id)

    def _special(self, model_path: Path, name: str) -> int | None:
        try:
            token = json.loads((model_path / "tokenizer_config.json").read_bytes()).get(name)
        except OSError:
            return None
        text = token.get("content") if isinstance(token, dict) else token
        return self._core.token_to_id(text) if isinstance(text, str) else None


def _cut(text: str, length: int) -> int:
    """Returns the end of a slice of at least `length` characters. It is between two words if possible, where
    pre-tokenizers split too."""
    match = _BETWEEN_WORDS.search(text, length, length + 200)
    return min(length, len(text)) if match is None else match.start()


class TextPiece(int):
    """Placeholder for the ids [T] of a text in a list of ids. Its own value is not a valid id."""

    ids: list[int]


class PieceTokenizer:
    """A tokenizer that encodes every text as one TextPiece."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str, *args: object, **kwargs: object) -> list[int]:
        """Returns a list with one TextPiece, or [] for a text without tokens. Raises TooManyTokens."""
        ids = self._tokenizer.encode(text)
        if not ids:
            return []
        piece = TextPiece(-1)
        piece.ids = ids
        return [piece]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def with_text_pieces_expanded(entries: Iterable[int]) -> list[int]:
    """Returns ids [T] in which each TextPiece is replaced by its ids."""
    ids: list[int] = []
    for entry in entries:
        if type(entry) is TextPiece:
            ids += entry.ids
        else:
            ids.append(entry)
    return ids


def _is_byte_level(config: dict[str, Any]) -> bool:
    decoder = config.get("decoder") or {}
    kinds = [decoder.get("type"), *(part.get("type") for part in decoder.get("decoders") or [])]
    return "ByteLevel" in kinds


def _control_tokens(core: CoreTokenizer) -> re.Pattern[str] | None:
    """Returns a pattern for all names of special tokens of two or more characters; None if there are none."""
    added = core.get_added_tokens_decoder().values()
    names = sorted((token.content for token in added if token.special and len(token.content) > 1), key=len)
    return re.compile("|".join(re.escape(name) for name in reversed(names))) if names else None


def _token_bytes(core: CoreTokenizer) -> list[bytes]:
    """Returns the bytes of each token id. An added token, with characters outside GPT-2's byte alphabet, is encoded as
    UTF-8."""
    alphabet = _byte_alphabet()
    table = [b""] * (max(core.get_vocab(with_added_tokens=True).values()) + 1)
    for token, token_id in core.get_vocab(with_added_tokens=True).items():
        try:
            table[token_id] = bytes([alphabet[character] for character in token])
        except KeyError:
            table[token_id] = token.encode()
    return table


def _byte_alphabet() -> dict[str, int]:
    """Returns GPT-2's mapping from printable characters to bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return alphabet


class TextCache:
    """Cache of the ids of the most recently used texts, of at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._ids: OrderedDict[str, array[int]] = OrderedDict()  # a list needs nine times the memory
        self._lock = threading.Lock()

    def get(self, text: str) -> list[int] | None:
        """Returns the cached ids [T] of a text; None if they are not cached."""
        with self._lock:
            ids = self._ids.get(text)
            if ids is None:
                return None
            self._ids.move_to_end(text)
            return ids.tolist()

    def clear(self) -> None:
        """Removes all texts."""
        with self._lock:
            self._ids.clear()
            self._size = 0

    def put(self, text: str, ids: list[int]) -> None:
        """Adds a text, and removes the least recently used ones over the limit."""
        with self._lock:
            if text not in self._ids:
                self._ids[text] = array("i", ids)
                self._size += _bytes_of(text, self._ids[text])
            while self._size > self._limit:
                self._size -= _bytes_of(*self._ids.popitem(last=False))


def _bytes_of(text: str, ids: array[int]) -> int:
    """Returns the approximate memory of a cache entry in bytes."""
    return sys.getsizeof(text) + sys.getsizeof(ids) + _ENTRY_BYTES
