"""A custom reward model: any object with `score(prompt, response, next_state)`.

Here it is a classifier in a Hugging Face folder, given by --prm-model-path (PRM_MODEL_PATH): the reward is the
probability of its class 1. slime calls `score` in threads; `next_state` is `metadata["next_state"]` of the sample,
else its label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


class Classifier:
    def __init__(self, folder: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        self.model = AutoModelForSequenceClassification.from_pretrained(
            folder, trust_remote_code=False
        ).eval()

    @torch.no_grad()
    def score(self, prompt: str, response: str, next_state: str) -> float:
        text = f"{prompt}\n{response}\n{next_state}"
        inputs = self.tokenizer(text, return_tensors="pt", truncation=True, max_length=256)
        return float(self.model(**inputs).logits.softmax(-1)[0, 1])


def get_reward_model(config: Mapping[str, Any]) -> Classifier:
    return Classifier(config["prm_model_path"])
