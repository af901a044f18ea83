"""Types of shared fixtures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path
    from types import SimpleNamespace

    import httpx
    from torch import Tensor
    from transformers import PreTrainedModel

    from slime.arguments import Arguments
    from slime.training.trainer import Trainer
    from slime.types import Sample


Rows = list[dict[str, str]]
"""Rows of a data set."""


class MakeTrainingArgs(Protocol):
    """Returns arguments for training the model of a folder, with these values."""

    def __call__(self, model_folder: str, **values: object) -> Arguments: ...


class MakeArgs(Protocol):
    """Returns arguments of a training run on a tiny model, with these flags."""

    def __call__(self, **flags: object) -> Arguments: ...


class ParseArgs(Protocol):
    """Returns parsed arguments of a run over these prompt rows; `words` are further command-line arguments."""

    def __call__(
        self, rows: list[dict[str, Any]] | str | None, *words: str, rm: str | None = "random"
    ) -> Arguments: ...


class MakeRewardArgs(Protocol):
    """Returns only the flags of rewards."""

    def __call__(self, **flags: object) -> SimpleNamespace: ...


class MakeTrainer(Protocol):
    """Returns a single-rank trainer with these flags."""

    def __call__(self, **flags: object) -> Trainer: ...


class MakeSamples(Protocol):
    """Returns samples of different lengths; `changes` are attributes set on all of them."""

    def __call__(self, count: int = 6, seed: int = 0, **changes: object) -> list[Sample]: ...


class MakeHinted(Protocol):
    """Returns one sample for each number of hints."""

    def __call__(self, hints: Sequence[int] = ..., seed: int = 0, **changes: object) -> list[Sample]: ...


class RunRanks(Protocol):
    """Returns the results of a script run by four processes."""

    def __call__(self, script: str, order: object) -> list[Any]: ...


class GradientsOf(Protocol):
    """Returns gradients of a transformers model by the folder's names."""

    def __call__(self, model: PreTrainedModel, /) -> dict[str, Tensor]: ...


class AddEngine(Protocol):
    """Registers an engine in the run folder."""

    def __call__(self, run_dir: Path, url: str, name: str = "engine-0") -> None: ...


class Visit(Protocol):
    """Returns the page's answer to a browser on this machine."""

    def __call__(self, path: str, **query: object) -> httpx.Response: ...


class Talk(Protocol):
    """Returns the completion ids of a conversation."""

    def __call__(
        self, *texts: str, answer: str = "hello there", session: str = "s1", user: str = "ada"
    ) -> list[str]: ...


class JudgeTurn(Protocol):
    """Judges a turn; its sample becomes ready."""

    def __call__(self, completion: str, score: float = 1.0, hint: str = "be short") -> None: ...
