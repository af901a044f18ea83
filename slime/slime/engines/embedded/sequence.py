"""The state of one request in the engine."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any

from slime.engines.embedded.grammar import Grammar
from slime.engines.embedded.images import PromptImages
from slime.engines.embedded.slab import PrefillCache, Slab
from slime.engines.embedded.text import StopStrings
from slime.engines.requests import SamplingParams

LogProb = tuple[float | None, int, str | None]
"""SGLang's JSON triple: (log-prob or null, token id, text or null)."""


@dataclass
class LogProbs:
    """Log-probs of consecutive tokens, in SGLang's format; `top` and `chosen` are empty unless requested."""

    tokens: list[LogProb] = field(default_factory=list)
    top: list[list[LogProb] | None] = field(default_factory=list)
    chosen: list[list[LogProb] | None] = field(default_factory=list)


@dataclass(eq=False)
class Sequence:
    """A request's prompt, sampled tokens and options.

    Written by the engine thread only. Other threads read the first `published` output tokens and `finish`.
    The engine sets `finish` before it publishes the last token, so readers never see that token without it.
    """

    rid: str
    prompt_ids: list[int]
    sampling: SamplingParams
    max_new_tokens: int
    stop_ids: frozenset[int]
    return_logprob: bool = False
    logprob_start: int = -1
    top_logprobs: int = 0
    input_temperature: float = 1.0
    """Divisor of the logits for prompt log-probs."""
    chosen_ids: list[int] | None = None
    stop_strings: StopStrings | None = None
    grammar: Grammar | None = None
    images: PromptImages | None = None
    adapter: str | None = None
    """Name of the adapter; None: the base model."""
    is_low_priority: bool = False

    output_ids: list[int] = field(default_factory=list)
    output: LogProbs = field(default_factory=LogProbs)
    input: LogProbs = field(default_factory=LogProbs)
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    finish: dict[str, Any] | None = None
    published: int = 0
    version: int = 0
    retractions: int = 0
    restarts: int = 0
    created: float = field(default_factory=time.perf_counter)
    finished_at: float | None = None

    cached: int = 0
    """Number of tokens with stored keys and values."""
    prefill: PrefillCache | None = None
    slab: Slab[Sequence] | None = None
    row: int = -1
    reused: int = 0
    """Prompt tokens with keys and values from the prefix cache."""
    weights: int = 0
    """The scheduler's weight counter when the sequence began."""
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        seed = self.sampling.seed if self.sampling.seed is not None else self.sampling.sampling_seed
        self.rng = random.Random(seed)
        if self.logprob_start >= 0:
            self._open_input()

    def _open_input(self) -> None:
        """Adds the first requested prompt position, which has no log-prob, as in SGLang."""
        self.input.tokens.append((None, self.prompt_ids[self.logprob_start], None))
        self.input.top.append(None)
        self.input.chosen.append(None)

    def restart_prompt(self) -> None:
        """Drops the cache of the prompt; called before anything is sampled."""
        self.cached = 0
        self.restarts += 1
        self.input = LogProbs()
        if self.logprob_start >= 0:
            self._open_input()

    @property
    def length(self) -> int:
        """Returns the number of prompt and sampled tokens."""
        return len(self.prompt_ids) + len(self.output_ids)

    @property
    def shift(self) -> int:
        """Returns the number that is added to an answer token's index to get its position."""
        return 0 if self.images is None else self.images.shift

    def tokens(self, start: int, end: int) -> list[int]:
        """Returns token ids at positions [start, end) of prompt + output."""
        prompt = len(self.prompt_ids)
        if end <= prompt:
            return self.prompt_ids[start:end]
        return self.prompt_ids[start:prompt] + self.output_ids[max(0, start - prompt) : end - prompt]

    @property
    def next_scored(self) -> int:
        """Returns the next prompt position that needs a log-prob, or the prompt's length if none does."""
        if self.logprob_start < 0:
            return len(self.prompt_ids)
        return self.logprob_start + len(self.input.tokens)

    def append(self, token: int, logprob: float, version: int) -> None:
        """Appends a sampled token with its version, and finishes the sequence if it is the last."""
        position = len(self.output_ids)
        self.output_ids.append(token)
        self.output.tokens.append((logprob, token, None))
        self.version = version
        if self.spans and self.spans[-1][0] == version:
            self.spans[-1] = (version, self.spans[-1][1], position + 1)
        else:
            self.spans.append((version, position, position + 1))
        self._check_end(token)

    def _check_end(self, token: int) -> None:
        matched: int | str | None = token if token in self.stop_ids else None
        if matched is None and self.stop_strings is not None:
            matched = self.stop_strings.push(token)
        if matched is not None:
            self.end({"type": "stop", "matched": matched})
        elif len(self.output_ids) >= self.max_new_tokens:
            self.end({"type": "length", "length": len(self.output_ids)})

    def end(self, reason: dict[str, Any]) -> None:
        self.finished_at = time.perf_counter()
        self.finish = reason
