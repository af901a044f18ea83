"""The definition of a method: what it requests from the judge, and how a judged turn becomes a sample.

    def needs(options): return Needs(hint=True, teacher="token")

    @asks(needs, options=("temperature",))
    def sample_from_judged_turn(turn, judgements, context): return SampleDraft(...) or Drop("why")

A function without `@asks` may have only the first two parameters; it gets the eval judgement.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from openclaw.errors import ConfigError, HintError
from openclaw.types import Drop, Judgement, SampleDraft, Turn

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from openclaw.methods.hinted_prompt import HintedPrompts

Flags = TypeVar("Flags", bound="DataclassInstance")
Options = Mapping[str, float]
TeacherKind = Literal["none", "token", "topk"]


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The judgements and teacher outputs of a turn that a method needs.

    eval: the score by the next state; hint: the hints in it.
    teacher: the outputs of an inference engine that is the teacher: `token` log-probs of the answer's own ids,
    `topk` the teacher's best ids too, `none` nothing. A teacher in the trainer gets the candidates instead.
    """

    eval: bool = True
    hint: bool = False
    teacher: TeacherKind = "none"


class MethodContext:
    """The context of a method, in addition to turn and judgements.

    Args:
        prompts: makes hinted prompts of the policy's model; None for a method without hints.
        options: the values of the options that the method declares, by name.
    """

    def __init__(self, prompts: HintedPrompts | None = None, options: Options | None = None) -> None:
        self._prompts = prompts
        self.options = dict(options or {})
        self.unplaced_hints = 0
        """Hints that could not be added to their prompt: no messages, or no room in the context."""

    def candidates(self, turn: Turn, hints: Iterable[str]) -> list[list[int]]:
        """Returns the turn as its teachers see it, one for each hint that can be added: ids of the hinted prompt and
        the turn's own completion ids. Raises ConfigError if there is no model to render for."""
        if self._prompts is None:
            raise ConfigError("a method that uses hints needs the policy's model folder (--model-path)")
        prompts = []
        for hint in hints:
            try:
                prompts.append(self._prompts.candidate(turn, hint))
            except HintError:
                self.unplaced_hints += 1
        return prompts


MethodFunction = Callable[[Turn, list[Judgement], MethodContext], SampleDraft | Drop]
NeedsFunction = Callable[[Options], Needs]


@dataclass(frozen=True)
class Method:
    """A method, as used by a worker. `options`: names of the numeric options that it uses, which are flags of the
    trainer."""

    name: str
    function: MethodFunction
    needs: NeedsFunction
    options: tuple[str, ...]

    @classmethod
    def load(cls, path: str) -> Method:
        """Returns the hook named `module:attr` or `file.py:attr`. Raises ConfigError."""
        return cls.of(function_of("--method-path", path), path)

    def chosen(self, flags: Mapping[str, Any]) -> dict[str, float]:
        """Returns the method's options that are set to a number by the trainer's flags."""
        options = {name: flags.get(name) for name in self.options}
        return {name: float(value) for name, value in options.items() if value is not None}

    @classmethod
    def of(cls, function: Callable[..., Any], name: str = "") -> Method:
        """Returns a function as a method. Raises ConfigError if its parameters are not those of a method."""
        needs, options = getattr(function, "method_needs", (_eval_only, ()))
        parameters = len(inspect.signature(function).parameters)
        if parameters not in (2, 3):
            raise ConfigError(
                f"method {name} must take (turn, judgements) or (turn, judgements, context), not {parameters} "
                "parameters"
            )
        called = (
            function if parameters == 3 else lambda turn, judgements, _context: function(turn, judgements)
        )
        return cls(name or getattr(function, "__name__", "method"), called, needs, options)


def function_of(flag: str, path: str) -> Callable[..., Any]:
    """Returns the function named by a flag: `module:attr` or `file.py:attr`. Raises ConfigError."""
    file, _, attr = path.rpartition(":")
    try:
        in_file = file.endswith(".py")
        function = getattr(_module_of(Path(file)), attr) if in_file else pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError, OSError) as error:
        raise ConfigError(f"{flag} {path}: {error}") from error
    if not callable(function):
        raise ConfigError(f"{flag} {path} is not a function")
    method: Callable[..., Any] = function
    return method


def asks(needs: NeedsFunction, options: tuple[str, ...] = ()) -> Callable[[MethodFunction], MethodFunction]:
    """Decorator: declares the needs of a method, as a function of its options."""

    def declare(function: MethodFunction) -> MethodFunction:
        function.method_needs = (needs, options)  # type: ignore[attr-defined]
        return function

    return declare


def chosen(group: type[Flags], options: Options) -> Flags:
    """Returns a method's flags, a dataclass, with the values in `options` and defaults otherwise."""
    return group(**{item.name: options[item.name] for item in fields(group) if item.name in options})


def eval_score(judgements: Iterable[Judgement]) -> float | None:
    """Returns the score of the turn; None if none was requested."""
    return next((judgement.score for judgement in judgements if judgement.kind == "eval"), None)


def is_liked(judgements: Iterable[Judgement]) -> bool:
    """Returns whether the turn has a score above 0."""
    return (eval_score(judgements) or 0.0) > 0


def hints_of(judgements: Sequence[Judgement]) -> list[str]:
    """Returns the different hints of a turn, shortest first (then in order); [] for a liked turn.

    Praise asks for no change, and a teacher with praise in its prompt makes the liked answer less likely.
    """
    if is_liked(judgements):
        return []
    hints = [hint for judgement in judgements if judgement.kind == "hint" for hint in judgement.hints]
    return sorted(dict.fromkeys(hints), key=len)


def _eval_only(_options: Options) -> Needs:
    return Needs()


def _module_of(file: Path) -> ModuleType:
    """Returns the module of a file, loaded once. Raises OSError if it cannot be read, and exceptions raised by the
    file."""
    name = f"{file.stem}_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None  # the name ends in .py
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
