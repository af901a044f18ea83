"""Creates instances of a package: inserts single bugs, and keeps those that its tests detect.

python -m swe_rl.factory boltons==26.2.0 --count 8 --seed 1 --output instances.jsonl
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.errors import ClawError, DataError
from slime.sandbox import Workspace
from swe_rl.checkout import Verdicts, run_tests
from swe_rl.factory.mutations import Mutation, compiles, mutations
from swe_rl.instance import Instance
from swe_rl.patch import is_configuration, is_test
from swe_rl.repository import source_of

MOST_FAILING = 12
MOST_KEPT = 40
SKIPPED = {"docs", "doc", "examples", "benchmark", "benchmarks", "tools", "build", "setup.py"}


def candidates(source: Path) -> list[Mutation]:
    """Returns every mutation of the package's own code, in the order of its files."""
    all_mutations: list[Mutation] = []
    for path in sorted(source.rglob("*.py")):
        file = PurePosixPath(path.relative_to(source).as_posix())
        if is_test(file) or is_configuration(file) or SKIPPED & set(file.parts):
            continue
        with contextlib.suppress(SyntaxError, UnicodeDecodeError):  # code for another Python version
            all_mutations += mutations(path.read_text(), str(file))
    return all_mutations


def sound_tests(repository: str, seconds: float) -> set[str]:
    """Returns the tests that pass twice in the unbroken repository; tests that fail once are unreliable.

    Raises:
        DataError: no test passes.
    """
    passed: list[set[str]] = []
    for _ in range(2):
        with contextlib.closing(Workspace(source_of(repository))) as copy:
            verdicts = run_tests(copy, [], seconds)
        passed.append({test for test, outcome in verdicts.outcomes.items() if outcome == "passed"})
        if not verdicts.ended or not passed[-1]:
            raise DataError(
                f"{repository}: its tests do not pass here: {verdicts.problem or verdicts.why}"[:600]
            )
    return passed[0] & passed[1]


def instances(repository: str, count: int, seed: int, seconds: float) -> Iterator[Instance]:
    """Yields up to `count` instances, at most one per function. The same seed gives the same instances.

    Raises:
        DataError: the package has no tests that pass here.
        ConfigError: it could not be fetched.
    """
    source = source_of(repository)
    sound, chosen = sound_tests(repository, seconds), candidates(source)
    random.Random(f"{repository} {seed}").shuffle(chosen)
    used: set[tuple[str, str]] = set()
    made = 0
    for bug in chosen:
        if made == count:
            return
        if (bug.file, bug.function) in used or not compiles(bug.apply((source / bug.file).read_text())):
            continue
        instance = tried(repository, bug, sound, seconds)
        if instance is not None:
            used.add((bug.file, bug.function))
            made += 1
            yield instance


def tried(repository: str, bug: Mutation, sound: set[str], seconds: float) -> Instance | None:
    """Returns the instance of a bug that some tests detect and others pass with; None for any other bug."""
    with contextlib.closing(Workspace(source_of(repository))) as copy:
        copy.write(bug.file, bug.apply((source_of(repository) / bug.file).read_text()).encode())
        verdicts = run_tests(copy, tests_for(bug, sound), seconds)
    if not verdicts.ended:
        return None
    failing = sorted(test for test in sound if verdicts.outcomes.get(test) == "failed")
    if not 1 <= len(failing) <= MOST_FAILING:
        return None
    files = {test.split("::")[0] for test in failing}
    kept = sorted(
        test for test in sound if test.split("::")[0] in files and verdicts.outcomes.get(test) == "passed"
    )
    name = f"{repository.replace('==', '-')}__{bug.function}-{bug.line}-{bug.column}".replace("/", "_")
    return Instance(
        name,
        statement(bug, failing, verdicts),
        tuple(failing),
        tuple(kept[:: -(-len(kept) // MOST_KEPT) or 1]),
        repository,
        bug=bug,
        test_files=tuple(sorted(files)),
    )


def tests_for(bug: Mutation, sound: set[str]) -> list[str]:
    """Returns the test files named after the module; an empty list, which runs all tests, if there are none."""
    stem = PurePosixPath(bug.file).stem.strip("_")
    files = sorted({test.split("::")[0] for test in sound})
    return [file for file in files if stem in PurePosixPath(file).stem]


def statement(bug: Mutation, failing: list[str], verdicts: Verdicts) -> str:
    """Returns a user's bug report: where it fails and the observed values, without the tests' code or the kind of
    bug."""
    module = PurePosixPath(bug.file).with_suffix("").as_posix().removeprefix("src/").replace("/", ".")
    seen = list(
        dict.fromkeys(verdicts.why[test].splitlines()[0] for test in failing if verdicts.why.get(test))
    )
    lines = [f"Something that `{module}` does is wrong since the last change.", "", "What was seen:"]
    lines += [f"* {one[:200]}" for one in seen[:3]] or ["* a check of it fails"]
    return "\n".join([*lines, "", f"Find the cause (start in `{bug.file}`) and repair it."])


@dataclass(frozen=True, kw_only=True)
class Made:
    """The repositories to break, and the number of bugs."""

    repository: list[str] = flag(
        REQUIRED, "name==version of a package whose source has tests, or a folder", positional=True
    )
    count: int = flag(8, "instances per repository")
    seed: int = flag(0, "seed of the random choices")
    seconds: float = flag(120.0, "time limit of a repository's tests, seconds")
    output: Path = flag(REQUIRED, "JSONL file, to which instances are appended", unit="path")


def main() -> int:
    args = parse(Made, None, "python -m swe_rl.factory", __doc__.split("\n")[0])
    try:
        with args.output.open("a") as file:
            for repository in args.repository:
                for instance in instances(repository, args.count, args.seed, args.seconds):
                    file.write(json.dumps(instance.to_row()) + "\n")
                    file.flush()
                    print(f"{instance.instance_id}: {len(instance.fail_to_pass)} tests notice it")
    except (ClawError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
