"""asciinema's recordings, version 2: a line of JSON about the terminal, then one for each part of the output.

https://docs.asciinema.org/manual/asciicast/v2/
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Cast:
    """The output: (seconds since the start, text), in order. `idle`: longest silence that players show, seconds."""

    width: int
    height: int
    title: str
    idle: float = 1.0
    events: list[tuple[float, str]] = field(default_factory=list)

    def write(self, file: Path) -> None:
        head = {
            "version": 2, "width": self.width, "height": self.height, "title": self.title,
            "idle_time_limit": self.idle,
        }  # fmt: skip
        lines = [head, *([round(at, 3), "o", text] for at, text in self.events)]
        file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")

    def shortened(self) -> list[tuple[float, str]]:
        """Returns the events without silences longer than `idle`."""
        events, now, before = [], 0.0, 0.0
        for at, text in self.events:
            now += min(at - before, self.idle)
            before = at
            events.append((now, text))
        return events


def read(file: Path) -> Cast:
    """Reads a recording; raises ValueError for a file of another format."""
    head, *lines = map(json.loads, file.read_text("utf-8").splitlines())
    if not isinstance(head, dict) or head.get("version") != 2:
        raise ValueError(f"{file} is not an asciicast of version 2")
    events = [(float(at), str(text)) for at, kind, text in lines if kind == "o"]
    return Cast(
        head["width"], head["height"], head.get("title", ""), head.get("idle_time_limit", 1e9), events
    )
