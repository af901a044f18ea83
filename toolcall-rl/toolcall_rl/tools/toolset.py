"""The tools of a run, and those of one episode."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slime.agents.protocol import Tool
from slime.errors import ConfigError

NOTHING = "(no output)"


@dataclass(frozen=True)
class CallLimits:
    """Limits of one tool.

    Attributes:
        seconds: time of one call.
        output_chars: length of a result; the rest is omitted.
        calls: calls in one episode.
    """

    seconds: float = 10.0
    output_chars: int = 1024
    calls: int = 16


class Source(Protocol):
    """A source of tools, shared by a whole run."""

    @property
    def limits(self) -> CallLimits: ...

    async def tools(self) -> Sequence[Tool]:
        """Raises EnvironmentAway if a server does not respond."""
        ...

    def opened(self) -> Opened: ...


class Opened(Protocol):
    """A source opened for one episode."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Returns the tool's result, or its error, as text for the model. Raises EnvironmentAway."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Toolset:
    """All tools of a run.

    Attributes:
        python: name of the interpreter that runs `<code>`; None if there is none.
    """

    sources: tuple[Source, ...]
    python: str | None

    def opened(self) -> EpisodeTools:
        return EpisodeTools(self)


class EpisodeTools:
    """The tools of one episode; a source is opened with the first call of one of its tools."""

    def __init__(self, toolset: Toolset) -> None:
        self.toolset = toolset
        self.by_name: dict[str, Source] = {}
        self.open: dict[int, Opened] = {}
        self.counts: Counter[str] = Counter()

    async def specs(self) -> tuple[Tool, ...]:
        """Returns the tools of all sources. Raises ConfigError if two tools have the same name, EnvironmentAway if a
        server is unavailable."""
        specs: list[Tool] = []
        for source in self.toolset.sources:
            for tool in await source.tools():
                if tool.name in self.by_name:
                    raise ConfigError(
                        f"two tools are called {tool.name}; give one of their sources another prefix"
                    )
                self.by_name[tool.name] = source
                specs.append(tool)
        return tuple(specs)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Returns the text for the model. Raises EnvironmentAway."""
        source = self.by_name[name]
        limits = source.limits
        self.counts[name] += 1
        if self.counts[name] > limits.calls:
            return f"Error: {name} may be called {limits.calls} times; answer now"
        if id(source) not in self.open:
            self.open[id(source)] = source.opened()
        return cut(await self.open[id(source)].call(name, arguments), limits.output_chars) or NOTHING

    async def close(self) -> None:
        await asyncio.gather(*(opened.close() for opened in self.open.values()))


def cut(text: str, longest: int) -> str:
    """Returns at most `longest` characters, followed by the number of omitted ones. Lone surrogates, which tokenizers
    reject, become "?"."""
    text = text.strip("\n")
    shown = text[:longest].encode(errors="replace").decode()
    return shown if len(text) <= longest else f"{shown}... [truncated {len(text) - longest} chars]"
