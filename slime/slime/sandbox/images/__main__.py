"""Downloads images before a run needs them: `python -m slime.sandbox.images NAME_OR_ARCHIVE ... [--again]`.

Names can be read from a file with one per line (`--from FILE`). Prints a line of JSON for each image; the exit status
is 1 if an image is not available.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from claw_base.settings.command_line import parse
from claw_base.settings.declare import flag
from slime.errors import ClawError, ConfigError
from slime.sandbox.images.cache import image_of


@dataclass(frozen=True, kw_only=True)
class Images:
    """The images to fetch. Raises ConfigError if none is named."""

    names: list[str] = flag([], "images that podman or docker has or can pull, or archives", positional=True)
    from_: Path | None = flag(None, "file with further names, one per line", unit="path")
    again: bool = flag(False, "check whether names refer to new images")

    def __post_init__(self) -> None:
        if not self.all_names:
            raise ConfigError("name an image")

    @functools.cached_property
    def all_names(self) -> list[str]:
        """Returns the names from the command line and the file."""
        return [*self.names, *(self.from_.read_text().split() if self.from_ else ())]


def main() -> int:
    settings = parse(
        Images, None, "python -m slime.sandbox.images", "Downloads and unpacks container images."
    )
    failed = False
    for name in settings.all_names:
        began = time.monotonic()
        try:
            image = image_of(name, again=settings.again)
        except ClawError as error:
            failed = True
            print(f"error: {error}", file=sys.stderr)
            continue
        row = {"image": name, "path": str(image.path), "mib": image.size >> 20, "entries": image.entries}
        print(json.dumps({**row, "seconds": round(time.monotonic() - began, 2)}), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
