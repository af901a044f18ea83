"""State shared by all rollouts of a process: tokenizer, engines, the limit on concurrent requests."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claw_base.run_folder import records
from slime.rollout.engine_pool import EnginePool, Interrupt
from slime.rollout.tokenizer import ChatTokenizer, load_tokenizer
from slime.vision.pictures import pictures_of
from slime.vision.place import ImagePlace

if TYPE_CHECKING:
    from slime.flags.sampling import SamplingArguments
    from slime.flags.sides import GenerationSide
    from slime.vision.reading import ImageReader

current_interrupt: contextvars.ContextVar[Interrupt | None] = contextvars.ContextVar(
    "interrupt", default=None
)
"""Number of the rollout in which the generate function runs."""


class GenerateState:
    """Shared state, also for custom generate functions: `GenerateState.of(args)`.

    Attributes:
        tokenizer: tokenizer of the model.
        pool: the engines.
        sampling_params: the `--rollout-*` sampling flags, in SGLang's names.
    """

    _known: dict[str, GenerateState] = {}  # noqa: RUF012
    _lock = threading.Lock()

    def __init__(self, args: GenerationSide) -> None:
        self.args = args
        self.pool = EnginePool(lambda: engine_urls(args))
        self.sampling_params = sampling_params(args)
        engines = max(1, args.engine_count)
        self.semaphore = asyncio.Semaphore(args.sglang_server_concurrency * engines)

    @classmethod
    def of(cls, args: GenerationSide) -> GenerateState:
        """Returns the state of the run with these arguments, created once."""
        with cls._lock:
            if args.run_dir not in cls._known:
                cls._known[args.run_dir] = cls(args)
            return cls._known[args.run_dir]

    def placed(self, ids: list[int], messages: object) -> tuple[list[int], list[ImagePlace]]:
        """Returns ids [T] of rendered messages with their images inserted, and the places of the images.

        Raises:
            ConfigError: the model does not support images.
            DataError: a picture is invalid.
        """
        pictures = pictures_of(messages)
        if not pictures:
            return ids, []
        return self.reader.placed(ids, pictures)

    @property
    def reader(self) -> ImageReader:
        """Returns the image reader. Raises ConfigError if the model does not support images."""
        from slime.vision.reading import load_reader

        return load_reader(self.args.hf_checkpoint, self.args.run_dir)

    @property
    def tokenizer(self) -> ChatTokenizer:
        return load_tokenizer(self.args.hf_checkpoint)


def engine_urls(args: GenerationSide) -> list[str]:
    """Returns the addresses of the run's engines from its run folder, and of external ones."""
    return [*records.engine_urls(Path(args.run_dir)), *args.rollout_external_engine_addrs]


def sampling_params(args: SamplingArguments) -> dict[str, Any]:
    """Returns the sampling parameters of training rollouts."""
    return {
        "max_new_tokens": args.rollout_max_response_len,
        "temperature": args.rollout_temperature,
        "top_p": args.rollout_top_p,
        "top_k": args.rollout_top_k,
        "stop": list(args.rollout_stop) or None,
        "stop_token_ids": list(args.rollout_stop_token_ids) or None,
        "skip_special_tokens": args.rollout_skip_special_tokens,
        "no_stop_trim": True,
    }
