"""Cache of transcripts, so that only the new messages of a repeated history are processed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from openclaw.sessions.transcript import Transcript
from openclaw.types import Message

KEPT_ANSWERS = 200_000
"""Most answers in all cached transcripts together."""
_NONE = Transcript("", ())


class KnownHistories:
    """Cache of the transcripts of recent histories, by their `prefix_keys`. Thread-safe."""

    def __init__(self, kept: int = KEPT_ANSWERS) -> None:
        self._kept = kept
        self._size = 0
        self._transcripts: OrderedDict[bytes, Transcript] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, keys: Sequence[bytes] | None) -> tuple[int, Transcript]:
        """Returns the longest cached prefix of a history: its number of messages, and their transcript."""
        for count in range(len(keys or ()) - 1, 0, -1):
            assert keys is not None
            with self._lock:
                transcript = self._transcripts.get(keys[count])
                if transcript is not None:
                    self._transcripts.move_to_end(keys[count])
                    return count, transcript
        return 0, _NONE

    def transcript(
        self, messages: Sequence[Message], keys: Sequence[bytes] | None, known: tuple[int, Transcript]
    ) -> Transcript:
        """Returns the transcript of a history, and caches it.

        The transcript without the last message is cached too, because some clients move that message to the end of each
        request.

        Args:
            keys: `prefix_keys` of the history; None if it cannot be cached.
            known: result of `known` for the history.
        """
        last = len(messages) - 1
        if last >= known[0]:
            known = last, Transcript.of(messages[:last], known)
            self._add(keys, *known)
        transcript = Transcript.of(messages, known)
        self._add(keys, len(messages), transcript)
        return transcript

    def _add(self, keys: Sequence[bytes] | None, count: int, transcript: Transcript) -> None:
        if keys is None:
            return
        with self._lock:
            if keys[count] not in self._transcripts:
                self._transcripts[keys[count]] = transcript
                self._size += len(transcript.answers) + 1
            while self._size > self._kept:
                self._size -= len(self._transcripts.popitem(last=False)[1].answers) + 1
