"""Ends a streamed answer at its first stop string."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw.formats.deltas import Delta, TextDelta


class StopStrings:
    """Cuts an answer before the first stop string, and holds back text that may be the beginning of one.

    The engine stops at a match too, but by then its text would already be sent.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held: TextDelta | None = None
        self._stopped = False

    def filter(self, deltas: list[Delta]) -> list[Delta]:
        """Returns the deltas that are certainly not part of a stop string, and come before any."""
        released: list[Delta] = []
        for delta in deltas:
            if self._stopped:
                break
            if isinstance(delta, TextDelta):
                released += self._text(delta)
            else:
                released += [*self._release(), delta]
        return released

    def finish(self, matched: str | None) -> list[Delta]:
        """Returns the text that was held back, unless it is the beginning of the stop string that the engine matched.

        Args:
            matched: stop string that ended the answer; None if there is none.
        """
        held = self._release()
        if matched and held and matched.startswith(held[0].text):
            return []
        return list(held)

    def _text(self, delta: TextDelta) -> list[TextDelta]:
        before: list[TextDelta] = []
        if self._held is not None and self._held.kind != delta.kind:
            before = self._release()
        text = (self._held.text if self._held else "") + delta.text
        self._held = None
        starts = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if starts:
            self._stopped = True
            text = text[: min(starts)]
        else:
            text, held = self._split(text)
            self._held = TextDelta(delta.kind, held) if held else None
        return [*before, TextDelta(delta.kind, text)] if text else before

    def _split(self, text: str) -> tuple[str, str]:
        """Splits off the longest end of a text that may be the beginning of a stop string."""
        longest = max(len(stop) for stop in self._stops) - 1
        for start in range(max(0, len(text) - longest), len(text)):
            if any(stop.startswith(text[start:]) for stop in self._stops):
                return text[:start], text[start:]
        return text, ""

    def _release(self) -> list[TextDelta]:
        held, self._held = self._held, None
        return [held] if held is not None else []
