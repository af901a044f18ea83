"""The model's tokenizer, from `tokenizer.json` alone: text to ids, and each id to its bytes.

It has the interface that `renderers` expects of a tokenizer (no character offsets, because the gateway needs only
ids). All supported model families use byte-level BPE, so an answer can be decoded token by token.

`PieceTokenizer` is faster for long texts: a text's ids pass through the renderer as one entry. Otherwise a renderer
records for each id, in Python, which message it is from, which costs as much as tokenizing. It works only with
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
"""Memory for cached ids of texts: a conversation's history is sent again with every turn."""

SURELY_READ = 2
"""Characters a token up to which a text is tokenized without an estimate first."""
SLICE_CHARACTERS = 16_384
CUT_ALLOWANCE = 64
"""Tokens that cutting a word may add to a slice, with a margin."""
_BETWEEN_WORDS = re.compile(r"(?<=[a-z]) ")
_ENTRY_BYTES = 150
"""Approximate bytes of an entry of an ordered dictionary."""


class TooManyTokens(Exception):
    """Texts have more tokens than the caller can use."""


class Tokenizer:
    """Text <-> token ids of one model. Thread-safe.

    Args:
        model_path: folder with `tokenizer.json`.

    Raises:
        ConfigError: there is none, or it is not byte-level.
    """

    def __init__(self, model_path: Path) -> None:
        path = model_path / "tokenizer.json"
        try:
            data = path.read_bytes()
            self._core = CoreTokenizer.from_str(data.decode())
        except OSError as error:
            raise ConfigError(
                f"{path}: {error.strerror}; give the folder of a model with tokenizer.json"
            ) from error
        except Exception as error:  # the library raises plain Exception for an unreadable file
            raise ConfigError(f"{path} is not a tokenizer file: {error}") from error
        if not _is_byte_level(json.loads(data)):
            raise ConfigError(f"{path}: only byte-level BPE tokenizers can be served (decoder ByteLevel)")
        self.name_or_path = str(model_path)
        self.fingerprint = hashlib.sha256(data).hexdigest()[:16]
        self.unk_token_id: int | None = None
        self.eos_token_id = self._special(model_path, "eos_token")
        self._bytes = _token_bytes(self._core)
        self._longest_token = max(map(len, self._bytes))
        self._cache = TextCache(CACHED_BYTES)
        self._control = _control_tokens(self._core)
        self._text_is_plain = False
        self._rest = threading.local()

    @contextmanager
    def at_most(self, tokens: int) -> Iterator[None]:
        """Inside, in this thread, encoding more than `tokens` tokens raises TooManyTokens, soon after the limit."""
        self._rest.tokens = tokens
        try:
            yield
        finally:
            self._rest.tokens = None

    def encode(self, text: str, *args: object, **kwargs: object) -> list[int]:
        """Returns the token ids of a text [T]; adds no special tokens. The name of a special token becomes that
        token, or plain text after `read_text_as_plain`. Raises TooManyTokens, see `at_most`."""
        ids = self._cache.get(text)
        if ids is None:
            self.see_that_fits(text)
            ids = self._encode_plain(text) if self._text_is_plain else self.encode_markup(text)
            self._cache.put(text, ids)
        self._take(len(ids))
        return ids

    def see_that_fits(self, text: str) -> None:
        """Raises TooManyTokens if a text certainly has more tokens than are left, see `at_most`."""
        rest = getattr(self._rest, "tokens", None)
        if rest is None or len(text) <= max(SURELY_READ * rest, SLICE_CHARACTERS):
            return
        if self.exceeds([text], rest):
            raise TooManyTokens

    def _take(self, tokens: int) -> None:
        """Counts encoded tokens. Raises TooManyTokens."""
        rest = getattr(self._rest, "tokens", None)
        if rest is not None:
            self._rest.tokens = rest - tokens
            if rest < tokens:
                raise TooManyTokens

    def encode_markup(self, text: str) -> list[int]:
        """Returns the token ids of a whole prompt [T], in which the name of a special token is that token."""
        return list(self._core.encode_batch_fast([text], add_special_tokens=False)[0].ids)

    def exceeds(self, texts: Sequence[str], limit: int) -> bool:
        """Returns whether texts certainly have more than `limit` tokens together; tokenizes no more of them than
        necessary.

        A token has at most as many bytes as the longest of the vocabulary, and a text at least as many bytes as
        characters. Beyond that, slices are counted one by one, each with an allowance for the cut.
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
        """From now on encodes texts without special tokens: spelling one (such as the end of a message) gives plain
        text. Changes nothing and returns False if `render` then gives other ids: the template itself writes special
        tokens as text."""
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
            cut = match.start() + 1  # a name cut in two is not recognised
            ids += self.encode_markup(text[start:cut])
            start = cut
        return ids + self.encode_markup(text[start:])

    def cut_names(self, text: str, mark: str) -> str:
        """Returns the text with `mark` inside each special token's name, so that it is not recognised."""
        if self._control is None:
            return text
        return self._control.sub(lambda match: match[0][0] + mark + match[0][1:], text)

    def decode(self, token_ids: Sequence[int], *args: object, **kwargs: object) -> str:
        """Returns the text of token ids [T], including special tokens; invalid UTF-8 becomes U+FFFD."""
        return b"".join([self.token_bytes(token_id) for token_id in token_ids]).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes of one token; empty for an id outside the vocabulary."""
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Returns the id of a token, None if there is none; a list of them for a list."""
        if isinstance(tokens, str):
            return self._core.token_to_id(tokens)
        return [self._core.token_to_id(token) for token in tokens]

    @property
    def vocabulary_size(self) -> int:
        return len(self._bytes)

    def same_vocabulary(self, other: Tokenizer) -> bool:
        """Returns whether every id has the same bytes."""
        return self._bytes == other._bytes

    def token_id(self, token: str) -> int:
        """Returns the id of a required token. Raises ConfigError."""
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
    """Returns the end of a slice of about `length` characters, between two words, where a pre-tokenizer would split
    too."""
    match = _BETWEEN_WORDS.search(text, length, length + 200)
    return min(length, len(text)) if match is None else match.start()


class TextPiece(int):
    """Placeholder for `ids` [T] in a list of ids; its value is not a valid id."""

    ids: list[int]


class PieceTokenizer:
    """A tokenizer that encodes every text as one TextPiece."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str, *args: object, **kwargs: object) -> list[int]:
        ids = self._tokenizer.encode(text)
        if not ids:
            return []
        piece = TextPiece(-1)
        piece.ids = ids
        return [piece]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def spelled_out(entries: Iterable[int]) -> list[int]:
    """Returns the ids [T], with each TextPiece replaced by its ids."""
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
    """Returns a pattern for the names of special tokens, each longer than one character; None if there are none."""
    added = core.get_added_tokens_decoder().values()
    names = sorted((token.content for token in added if token.special and len(token.content) > 1), key=len)
    return re.compile("|".join(re.escape(name) for name in reversed(names))) if names else None


def _token_bytes(core: CoreTokenizer) -> list[bytes]:
    """Returns the bytes of each token id. A token with a character outside GPT-2's byte alphabet (an added one) is
    plain text."""
    alphabet = _byte_alphabet()
    table = [b""] * (max(core.get_vocab(with_added_tokens=True).values()) + 1)
    for token, token_id in core.get_vocab(with_added_tokens=True).items():
        try:
            table[token_id] = bytes([alphabet[character] for character in token])
        except KeyError:
            table[token_id] = token.encode()
    return table


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's mapping of printable characters to bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return alphabet


class TextCache:
    """Ids of the most recently used texts, limited in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._ids: OrderedDict[str, array[int]] = OrderedDict()  # a list needs nine times the memory
        self._lock = threading.Lock()

    def get(self, text: str) -> list[int] | None:
        with self._lock:
            ids = self._ids.get(text)
            if ids is None:
                return None
            self._ids.move_to_end(text)
            return ids.tolist()

    def clear(self) -> None:
        with self._lock:
            self._ids.clear()
            self._size = 0

    def put(self, text: str, ids: list[int]) -> None:
        with self._lock:
            if text not in self._ids:
                self._ids[text] = array("i", ids)
                self._size += _bytes_of(text, self._ids[text])
            while self._size > self._limit:
                self._size -= _bytes_of(*self._ids.popitem(last=False))


def _bytes_of(text: str, ids: array[int]) -> int:
    """Returns the memory of an entry in bytes."""
    return sys.getsizeof(text) + sys.getsizeof(ids) + _ENTRY_BYTES
