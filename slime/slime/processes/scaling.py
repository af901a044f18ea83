"""Changes the number of servers of a group while they run: `RUN_DIR/scale.json` has the number of each group.

    {"judge": 4}

Any process that may write into the run folder may write the file (the gateway does, at PUT /admin/judges); the
watcher of the servers follows it. Servers of a group differ only in their name, which is an argument of their
command. The file's numbers apply until the next start of the run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slime.processes.servers import ServerManager, ServerSpec

logger = logging.getLogger(__name__)

FOLLOW_INTERVAL = 1.0  # seconds between checks of the file


def scale_file(run_dir: Path | str) -> Path:
    return Path(run_dir) / "scale.json"


def ordered_counts(run_dir: Path | str) -> dict[str, int]:
    """Returns the numbers in the file; {} if it cannot be read."""
    try:
        counts = json.loads(scale_file(run_dir).read_text(encoding="utf-8"))
        return {str(group): int(count) for group, count in counts.items() if int(count) > 0}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        logger.warning("%s cannot be read and is ignored: %s", scale_file(run_dir), error)
        return {}


def forget(run_dir: Path | str) -> None:
    """Removes the file, so that a new run starts with the numbers of its flags."""
    scale_file(run_dir).unlink(missing_ok=True)


def scaled(specs: Sequence[ServerSpec], counts: Mapping[str, int]) -> list[ServerSpec]:
    """Returns the specs with each given group scaled to its number; others unchanged."""
    groups: dict[str, list[ServerSpec]] = {}
    for spec in specs:
        if spec.group in counts:
            groups.setdefault(str(spec.group), []).append(spec)
    result = [spec for spec in specs if spec.group not in counts]
    for group, members in groups.items():
        result += [member_of(members, group, index) for index in range(counts[group])]
    return result


def member_of(members: Sequence[ServerSpec], group: str, index: int) -> ServerSpec:
    """Returns server number `index` of a group: the configured one, or a copy with another name."""
    if index < len(members):
        return members[index]
    first, name = members[0], f"{group}-{index}"
    return replace(first, name=name, command=[name if word == first.name else word for word in first.command])


class Scaler:
    """Scales the servers of a manager to the requested numbers. `specs`: those configured by flags."""

    def __init__(self, manager: ServerManager, specs: Sequence[ServerSpec]) -> None:
        self.manager = manager
        self.specs = list(specs)

    def target(self) -> list[ServerSpec]:
        return scaled(self.specs, ordered_counts(self.manager.run_dir))

    def follow(self) -> None:
        """Starts missing servers and stops surplus ones."""
        target = {spec.name: spec for spec in self.target()}
        running = {name: watched.spec for name, watched in list(self.manager.servers.items())}
        for name, spec in target.items():
            if name not in running and spec.group is not None:
                logger.info("adding one %s: %s", spec.group, name)
                self.manager.adopt_or_launch(spec)
        for name, spec in running.items():
            if name not in target and spec.group is not None:
                logger.info("removing one %s: %s", spec.group, name)
                self.manager.stop(name)
