"""Where reasoning before an answer begins and ends, as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openclaw.formats.tokenizer import Tokenizer


@dataclass(frozen=True)
class ReasoningMarks:
    """The tokens that open and close the reasoning of a model family, such as `<think>` and `</think>`.

    A family that has them may nevertheless have models that never reason.
    """

    open_id: int
    close_id: int
    tokenizer: Tokenizer

    def is_open_after(self, prompt_ids: Sequence[int]) -> bool | None:
        """Returns whether a prompt ends inside reasoning: True if its template opens it, False if it closes it (the
        reasoning is disabled), None if the model decides."""
        for token in reversed(prompt_ids):
            if token in (self.open_id, self.close_id):
                return token == self.open_id
            if not self._is_blank(token):
                break
        return None

    def opening(self, ids: Sequence[int]) -> list[int] | None:
        """Returns the ids up to the token that opens reasoning, if an answer begins with it, or with white space and
        it; None otherwise."""
        for number, token in enumerate(ids, 1):
            if token == self.open_id:
                return list(ids[:number])
            if not self._is_blank(token):
                break
        return None

    def _is_blank(self, token: int) -> bool:
        return not self.tokenizer.token_bytes(token).strip()
