"""The model's tokenizer, from `tokenizer.json` alone: text to ids, and each id to its bytes.

It has the surface that `renderers` asks of a tokenizer (no character offsets: the gateway needs ids only).
Byte-level BPE is what every model family served here uses, so the bytes of a text are the joined bytes of its
tokens and an answer can be decoded token by token.

`PieceTokenizer` renders without carrying every id about: a text's ids pass through the renderer as one entry. A renderer
notes for each id which message it is from, in Python; for a long text that costs as much as reading it. It is fit for
renderers that only string together what the tokenizer gives, and never look at it.
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
"""Memory for texts whose ids are kept: a conversation's history is sent again with every turn."""

SURELY_READ = 2
"""Characters for each token that fits, up to which a text is read as tokens without being counted first."""
SLICE_CHARACTERS = 16_384
CUT_ALLOWANCE = 64
"""Tokens that a cut in the middle of a word may add to a slice, with a margin."""
_BETWEEN_WORDS = re.compile(r"(?<=[a-z]) ")
_ENTRY_BYTES = 150
"""Of an ordered dictionary, about."""


class TooManyTokens(Exception):
    """Texts have more tokens than their reader can use."""


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
        except Exception as error:  # the library raises plain Exception for a file it cannot read
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
        """Inside, in this thread, texts of more than `tokens` together raise TooManyTokens, soon after so many of them
        were read."""
        self._rest.tokens = tokens
        try:
            yield
        finally:
            self._rest.tokens = None

    def encode(self, text: str, *args: object, **kwargs: object) -> list[int]:
        """Token ids of a text [T]; special tokens are added nowhere. The name of a special token is read as
        the token, or, after `read_text_as_plain`, as the plain text that it is. Raises TooManyTokens: see `at_most`."""
        ids = self._cache.get(text)
        if ids is None:
            self.see_that_fits(text)
            ids = self._encode_plain(text) if self._text_is_plain else self.encode_markup(text)
            self._cache.put(text, ids)
        self._take(len(ids))
        return ids

    def see_that_fits(self, text: str) -> None:
        """Raises TooManyTokens for a text that surely has more tokens than are left: see `at_most`."""
        rest = getattr(self._rest, "tokens", None)
        if rest is None or len(text) <= max(SURELY_READ * rest, SLICE_CHARACTERS):
            return
        if self.exceeds([text], rest):
            raise TooManyTokens

    def _take(self, tokens: int) -> None:
        """Counts tokens that were read. Raises TooManyTokens."""
        rest = getattr(self._rest, "tokens", None)
        if rest is not None:
            self._rest.tokens = rest - tokens
            if rest < tokens:
                raise TooManyTokens

    def encode_markup(self, text: str) -> list[int]:
        """Token ids of a text [T] in which the name of a special token is that token: a whole prompt."""
        return list(self._core.encode_batch_fast([text], add_special_tokens=False)[0].ids)

    def exceeds(self, texts: Sequence[str], limit: int) -> bool:
        """Returns whether texts surely have more than `limit` tokens together; it reads no more of them than that
        takes.

        No token has more bytes than the longest of the vocabulary, and a text no fewer bytes than characters. Beyond
        that, slices are counted one by one, each with an allowance for what its cut adds.
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
        """From now on texts are encoded without special tokens: spelling one (the end of a message, the beginning of
        another) gives plain text. Changes nothing, and returns False, when `render` gives other ids then: the
        template itself writes special tokens as text."""
        before = render()
        self._text_is_plain = True
        self._cache.clear()
        if render() != before:
            self._text_is_plain = False
            self._cache.clear()
        return self._text_is_plain

    @property
    def text_is_plain(self) -> bool:
        """See `read_text_as_plain`."""
        return self._text_is_plain

    def _encode_plain(self, text: str) -> list[int]:
        if self._control is None or not self._control.search(text):
            return self.encode_markup(text)
        ids: list[int] = []
        start = 0
        while match := self._control.search(text, start):
            cut = match.start() + 1  # a name cut in two is no name
            ids += self.encode_markup(text[start:cut])
            start = cut
        return ids + self.encode_markup(text[start:])

    def cut_names(self, text: str, mark: str) -> str:
        """Returns the text with `mark` inside each name of a special token in it: a name cut in two is no name."""
        if self._control is None:
            return text
        return self._control.sub(lambda match: match[0][0] + mark + match[0][1:], text)

    def decode(self, token_ids: Sequence[int], *args: object, **kwargs: object) -> str:
        """Text of token ids [T], special tokens included; bytes that are no UTF-8 become U+FFFD."""
        return b"".join([self.token_bytes(token_id) for token_id in token_ids]).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes that one token adds to the text; empty for an id that the vocabulary does not have."""
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Id of a token, None if there is none; a list of them for a list."""
        if isinstance(tokens, str):
            return self._core.token_to_id(tokens)
        return [self._core.token_to_id(token) for token in tokens]

    @property
    def vocabulary_size(self) -> int:
        return len(self._bytes)

    def same_vocabulary(self, other: Tokenizer) -> bool:
        """Returns whether every id stands for the same bytes."""
        return self._bytes == other._bytes

    def token_id(self, token: str) -> int:
        """Id of a token that must exist. Raises ConfigError."""
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
    """Returns where to end a slice: between two words close after `length`, where a pre-tokenizer divides a text
    too."""
    match = _BETWEEN_WORDS.search(text, length, length + 200)
    return min(length, len(text)) if match is None else match.start()


class TextPiece(int):
    """Stands in a list of ids for `ids` [T]; as a number it is no id."""

    ids: list[int]


class PieceTokenizer:
    """A tokenizer whose every text is one TextPiece."""

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
    """Returns ids [T] of entries some of which are TextPieces."""
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
    """Finds the names of special tokens, of which each is more than one character; None if there are none."""
    added = core.get_added_tokens_decoder().values()
    names = sorted((token.content for token in added if token.special and len(token.content) > 1), key=len)
    return re.compile("|".join(re.escape(name) for name in reversed(names))) if names else None


def _token_bytes(core: CoreTokenizer) -> list[bytes]:
    """Returns bytes by token id. A token with a character outside GPT-2's byte alphabet (an added one) is plain
    text."""
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
    """Ids of the texts used last, up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._ids: OrderedDict[str, array[int]] = OrderedDict()  # a list takes nine times the memory
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
    """Memory of an entry, in bytes."""
    return sys.getsizeof(text) + sys.getsizeof(ids) + _ENTRY_BYTES
