"""Types of what fixtures of several files return."""

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
    """Arguments that train the model of a folder, with these values."""

    def __call__(self, model_folder: str, **values: object) -> Arguments: ...


class MakeArgs(Protocol):
    """Arguments of a training run on a tiny model, with these flags."""

    def __call__(self, **flags: object) -> Arguments: ...


class ParseArgs(Protocol):
    """Parsed arguments of a run over these prompt rows; `words` are further ones of the command line."""

    def __call__(
        self, rows: list[dict[str, Any]] | str | None, *words: str, rm: str | None = "random"
    ) -> Arguments: ...


class MakeRewardArgs(Protocol):
    """The flags of rewards alone."""

    def __call__(self, **flags: object) -> SimpleNamespace: ...


class MakeTrainer(Protocol):
    """A trainer of one rank with these flags."""

    def __call__(self, **flags: object) -> Trainer: ...


class MakeSamples(Protocol):
    """Samples of different lengths; `changes` are attributes that all of them have."""

    def __call__(self, count: int = 6, seed: int = 0, **changes: object) -> list[Sample]: ...


class MakeHinted(Protocol):
    """One sample for each number of hints."""

    def __call__(self, hints: Sequence[int] = ..., seed: int = 0, **changes: object) -> list[Sample]: ...


class RunRanks(Protocol):
    """The results of a script that four processes run."""

    def __call__(self, script: str, order: object) -> list[Any]: ...


class GradientsOf(Protocol):
    """Gradients of a model of transformers, by the names that its folder has."""

    def __call__(self, model: PreTrainedModel, /) -> dict[str, Tensor]: ...


class AddEngine(Protocol):
    """Records an engine where a run finds it."""

    def __call__(self, run_dir: Path, url: str, name: str = "engine-0") -> None: ...


class Visit(Protocol):
    """The page's answer to a browser on this machine."""

    def __call__(self, path: str, **query: object) -> httpx.Response: ...


class Talk(Protocol):
    """The completion ids of a talk."""

    def __call__(
        self, *texts: str, answer: str = "hello there", session: str = "s1", user: str = "ada"
    ) -> list[str]: ...


class JudgeTurn(Protocol):
    """Judges a turn; its sample is ready."""

    def __call__(self, completion: str, score: float = 1.0, hint: str = "be short") -> None: ...
