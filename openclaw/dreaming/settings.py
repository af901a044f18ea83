"""Flags of dreaming."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import flag


@dataclass(frozen=True)
class DreamArguments:
    """Dreams: a person's wish is learned from shipped everyday prompts, answered with the wish in the prompt."""

    dream_steps: int = flag(
        0,
        "minimum training steps on dreams (wish in the prompt) after a complaint; 0: none",
        least=0,
        most=64,
    )
    dream_first_steps: int = flag(
        16,
        "with --dream-steps, steps per batch until half of the held-out answers show the "
        "wish; then fewer, if opposite requests are still obeyed",
        least=1,
        most=64,
    )
    dream_rows: int = flag(5, "dreams per dream step", least=1, most=256)
    dream_anchors: int = flag(
        8,
        "anchors per dream step: wishes, other prompts and questions, distilled from the teacher",
        least=0,
        most=256,
    )
    dream_anchor_weight: float = flag(
        1.0,
        "loss weight of a 14-token anchor, relative to a dream; longer anchors weigh more",
        least=0,
        most=16,
    )
    dream_end_weight: float = flag(
        4.0,
        "weight of ending where a dream's answer ends, relative to its other tokens",
        least=0,
        most=16,
    )
    dream_prompts: int = flag(
        16,
        "answers selected for a new wish, from 2.5 times as many samples",
        least=1,
        most=512,
    )
    dream_tokens: int = flag(
        96, "longest sampled answer of a dream or an anchor", least=8, most=4096, unit="tokens"
    )
    dream_reasoning_tokens: int = flag(
        2048,
        "longest reasoning before such an answer; longer: dropped; 0: reasoning counts as the answer",
        least=0,
        most=32768,
        unit="tokens",
    )

    @property
    def is_on(self) -> bool:
        return self.dream_steps > 0
