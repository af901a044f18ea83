"""An engine with scripted answers, for tests of episodes."""

from __future__ import annotations

from typing import Any

from slime.rollout.tokenizer import load_tokenizer
from tests import MODEL
from tests.fakes.rollout_engine import FakeEngine, Request

TOKENIZER = load_tokenizer(str(MODEL))
END = TOKENIZER.eos_token


class ScriptedEngine(FakeEngine):
    """Returns the texts of the script in order; each answer has its own weight version."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[str] = []

    async def _answer(self, body: Request) -> dict[str, Any]:
        ids = TOKENIZER.encode(self.script.pop(0))
        limit = body["sampling_params"]["max_new_tokens"]
        cut, ids = len(ids) > limit, ids[:limit]
        self.version += 1
        meta = {
            "finish_reason": {"type": "length" if cut else "stop"},
            "completion_tokens": len(ids),
            "output_token_logprobs": [[-token / 1000, token, None] for token in ids],
            "weight_version": str(self.version),
        }
        return {"text": "", "output_ids": ids, "meta_info": meta}
