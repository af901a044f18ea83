"""The output head of a model, run after the model on a few rows at a time (--log-probs-chunk-size)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from slime.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

AFTER_THE_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling")


class DeferredHead:
    """Lets a causal language model return hidden states in place of logits.

    FSDP keeps the weights of the outermost module, to which the head belongs, whole after its forward pass, so the
    head can run afterwards.

    Raises:
        ConfigError: the model changes logits after its head.
    """

    def __init__(self, model: PreTrainedModel, chunk: int) -> None:
        config = model.config.get_text_config()
        changed = [name for name in AFTER_THE_HEAD if getattr(config, name, None) not in (None, 1, 1.0)]
        if changed:
            raise ConfigError(
                f"--log-probs-chunk-size does not work with this model, which has a {changed[0]}; drop it"
            )
        self.chunk, self.is_deferred = chunk, False
        head = model.get_output_embeddings()
        self.project = head.forward
        head.forward = self._forward

    def _forward(self, hidden: Tensor) -> Tensor:
        return hidden if self.is_deferred else self.project(hidden)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, what the model returns as logits are the inputs of its head."""
        self.is_deferred = True
        try:
            yield
        finally:
            self.is_deferred = False
