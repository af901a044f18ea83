"""An engine without clients, of any backend, for the gate; it loads the weights of each call.

spare = SpareEngine("http://10.0.0.7:30000")
answers = spare.try_weights("run/weights/v000004", 4, prompts, 80)
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from slime.engines.client import EngineControl, answer_each
from slime.engines.protocol import EngineControlError
from slime.utils.certificates import certificates

AT_ONCE = 8
"""Maximum concurrent prompts."""


class SpareEngine:
    """Client of a spare engine, whose backend is detected from `/model_info` (SGLang if not reported).

    It must see the versions' folders under the same path as the trainer.

    Args:
        timeout: seconds for a call.
        prepare_timeout: seconds to load a version, and for all answers of the embedded engine.
    """

    def __init__(self, url: str, timeout: float = 60.0, prepare_timeout: float = 600.0) -> None:
        self.url = url
        self._timeout, self._prepare_timeout = timeout, prepare_timeout
        self._client = httpx.Client(
            base_url=url, timeout=prepare_timeout, trust_env=False, verify=certificates()
        )
        self._control: EngineControl | None = None
        self._ended = threading.Event()

    def try_weights(
        self,
        path: str,
        version: int,
        prompts: Sequence[list[int]],
        max_new_tokens: int,
        drafts: Sequence[list[int]] = (),
        temperature: float = 0.0,
    ) -> list[Mapping[str, Any]] | None:
        """Returns answers of the weights in `path`, in order of the prompts: ids, log_probs, text, ended.

        Only the embedded engine uses drafts.

        Raises:
            EngineControlError: it is unreachable, it rejects the weights, or `discard` was called meanwhile.
        """
        self._ended.clear()
        control = self.control()
        answers = control.try_weights(path, version, prompts, max_new_tokens, drafts, temperature)
        if answers is not None:
            return answers
        control.prepare(path, version)
        control.switch(version)
        return answer_each(control, prompts, max_new_tokens, temperature, self._ended, AT_ONCE)

    def discard(self) -> None:
        """Aborts unfinished answers."""
        self._ended.set()
        if self._control is not None:
            self._control.discard()

    def control(self) -> EngineControl:
        """Returns the client of its backend, which is detected at first use because it may start after the
        driver."""
        if self._control is None:
            try:
                about = self._client.get("/model_info", timeout=self._timeout).json()
            except (httpx.HTTPError, ValueError) as error:
                raise EngineControlError(f"{self.url}: {error or type(error).__name__}") from error
            backend = str(about.get("backend", "sglang"))
            self._control = EngineControl(self.url, backend, self._timeout, self._prepare_timeout)
        return self._control
