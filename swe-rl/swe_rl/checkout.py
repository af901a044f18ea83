"""Working copies of an instance's repository: one for the agent, and fresh ones in which its patch is tested."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slime.errors import DataError, SandboxError
from slime.sandbox import Finished, Limits, Workspace, run
from slime.sandbox.command import box_python
from swe_rl import images
from swe_rl.changes import top_names
from swe_rl.instance import Instance
from swe_rl.logs import files_of_tests, outcomes_of_log
from swe_rl.repository import source_of, test_packages

LIMITS = Limits(
    memory=1 << 30, cpu_seconds=600, processes=64, disk_bytes=128 << 20, open_files=256, output_chars=8 << 20
)
GIT = (
    "git -c user.name=agent -c user.email=agent@localhost -c init.defaultBranch=main -c safe.directory=* "
    "-c core.autocrlf=false"
)
VERDICTS = Path(__file__).with_name("verdicts.py")
RUNNER = Path(__file__).with_name("boxed_pytest.py")
NEEDS = "/tests-need"
FOOLED = "a test that must fail passed or did not run, so the test runner was manipulated"
GIT_SECONDS = 120.0
WORKSPACE_BYTES = 256 << 20


def checkout(
    instance: Instance, for_agent: bool, place: str = "/workspace", with_git: bool = False
) -> Workspace:
    """Returns a fresh copy of the broken repository at `place` or, if it comes from an image, at the image's path.

    The agent's copy has no deciding tests and, unless `with_git`, no history, which may contain the repair.

    Raises:
        ConfigError, DataError: it cannot be created, with the current setup or at all.
        SandboxError: its sandbox did not start.
    """
    if instance.image:
        image, place = images.repository_in(instance.image)
        workspace = Workspace(None, place, WORKSPACE_BYTES, image=image)
    else:
        source = source_of(instance.repository) if instance.repository else None
        workspace = Workspace(source, place, WORKSPACE_BYTES)
    try:
        for name, text in instance.files.items():
            workspace.write(name, text.encode())
        if instance.bug is not None:
            try:
                broken = workspace.read(instance.bug.file, 16 << 20).decode()
                workspace.write(instance.bug.file, instance.bug.apply(broken).encode())
            except (OSError, ValueError) as error:
                raise DataError(f"{instance.instance_id}: {error}") from error
        if for_agent:
            hidden = images.HIDDEN_FILES if images.hidden_places_of(workspace) else ()
            for name in (*instance.test_files, *hidden, *(() if with_git else (".git",))):
                workspace.remove(name)
    except BaseException:
        workspace.close()
        raise
    return workspace


def commit(instance: Instance, work: Workspace) -> None:
    """Creates a git repository with one commit, for an agent that needs one. Raises SandboxError if that fails."""
    done = in_box(f"{GIT} init -q && {_added(work)} && {GIT} commit -q -m base", GIT_SECONDS, work, host=True)
    if done.exit_code != 0:
        raise SandboxError(f"{instance.instance_id}: no first commit: {done.output[-300:]}{done.error}")


def _added(work: Workspace, git: str = GIT) -> str:
    """Adds every file to the index; in an image's repository, which contains build results, only those that git does
    not ignore."""
    if work.image is None:
        return f"{git} add -A -f"
    return f"{{ mkdir -p .git/info && echo .venv >> .git/info/exclude && {git} add -A; }}"


def in_box(
    command: str,
    seconds: float,
    workspace: Workspace,
    read_only: dict[Path, str] | None = None,
    host: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Finished:
    """Runs a command in a separate sandbox; with an image, in the image and its activated environment.

    Args:
        host: use this machine's system even with an image, for its git.
    """
    image = None if host else workspace.image
    if image is not None:
        entered = {
            **images.variables(image, workspace.place),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(variables or {}),
        }
        return run(command, seconds, workspace, images.LIMITS, read_only, entered, image)
    python = str(Path(box_python()[0]).parent)
    path = {"PATH": f"{python}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **(variables or {})}
    return run(command, seconds, workspace, LIMITS, read_only, path)


def agents_box(command: str, seconds: float, workspace: Workspace) -> Finished:
    """Like `in_box`, for an agent's command: hides tests that an image keeps outside the repository."""
    return in_box(command, seconds, workspace, images.hidden_places_of(workspace))


def patch_of(instance: Instance, work: Workspace) -> str:
    """Returns an agent's changes relative to a clean index. The agent's git folder, with its hooks and settings, is
    not used.

    Raises:
        SandboxError: its sandbox did not start.
    """
    with contextlib.closing(checkout(instance, for_agent=True, with_git=bool(instance.image))) as base:
        ours = f"--git-dir={base.place}/.git"
        tree = f"{GIT} {ours} --work-tree=/agent -c core.attributesFile=/dev/null"
        begun = "true" if (base.path / ".git").is_dir() else f"{GIT} init -q"
        taken = f"{begun} && {_added(base)} && before=$({GIT} write-tree) && cd /agent && {tree} add -A"
        forced = "" if instance.image else " -f"
        shown = "diff --cached --binary --no-ext-diff --no-textconv --no-color --full-index"
        command = f"{{ {taken}{forced}; }} >/dev/null 2>&1 && {tree} {shown} $before"
        made = in_box(command, GIT_SECONDS, base, {work.path: "/agent"}, host=True)
        return made.output if made.exit_code == 0 else ""


@dataclass(frozen=True)
class Verdicts:
    """The result of one test run.

    Attributes:
        outcomes: "passed", "failed" or "skipped" for each completed test.
        why: reasons of failures, by test or file.
        ended: whether the run was complete; otherwise `problem` has the cause.
    """

    outcomes: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    problem: str = ""
    exit_code: int | None = None


def run_tests(workspace: Workspace, tests: list[str], seconds: float, first: str = "true") -> Verdicts:
    """Runs tests (ids, files, or an empty list for all) in a separate sandbox. Their changes to the workspace
    persist.

    Args:
        first: a command that runs before the tests; if it fails, no test runs.

    Raises:
        ConfigError: required packages cannot be installed.
        SandboxError: the sandbox did not start.
    """
    python = box_python()[0]
    packages = test_packages(python)
    secret, order = secrets.token_hex(16), f".order-{secrets.token_hex(8)}"
    place = workspace.place
    options = [
        "-p",
        "no:cacheprovider",
        "-q",
        "--no-header",
        "--tb=line",
        "-W",
        "ignore",
        f"--rootdir={place}",
    ]
    provided = top_names(workspace.path) | top_names(workspace.path / "src")
    about = {
        "secret": secret,
        "plugin": VERDICTS.read_text(),
        "arguments": [*options, *tests],
        "repository": [f"{place}/src", place],
        "needs": NEEDS,
        "own": bool(provided & top_names(packages)),
    }
    workspace.write(order, json.dumps(about).encode())
    runner = shlex.join([python, "-I", "-B", "-c", RUNNER.read_text(), order])
    variables = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": ":".join([f"{place}/src", place, NEEDS]),
    }
    done = in_box(
        f"{{ {first}; }} && exec {runner}", seconds, workspace, {packages: NEEDS}, variables=variables
    )
    return parsed(done, secret)


def _plugin(workspace: Workspace) -> tuple[str, str, dict[str, str]]:
    """Adds the plugin that reports verdicts to the workspace, under a random name. Returns its folder, the secret in
    its output lines, and the variables that make every pytest load it."""
    secret, name = secrets.token_hex(16), f"verdicts_{secrets.token_hex(8)}"
    folder = f".{name}"
    workspace.write(f"{folder}/{name}.py", VERDICTS.read_bytes())
    workspace.write(f"{folder}/secret", secret.encode())
    used = {"PYTEST_ADDOPTS": f"-p {name} -rA", "PYTHONPATH": f"{workspace.place}/{folder}"}
    return folder, secret, used


def run_script(workspace: Workspace, script: str, seconds: float) -> tuple[Finished, Verdicts | None]:
    """Runs a script in a sandbox; returns its exit and, if a pytest loaded the plugin, the verdicts. Raises
    SandboxError if the sandbox did not start."""
    folder, secret, used = _plugin(workspace)
    workspace.write(f"{folder}/run.sh", script.encode())
    done = in_box(f"bash {folder}/run.sh", seconds, workspace, variables=used)
    return done, parsed(done, secret) if done.error is not None or any(
        _reported_lines(done.output, secret)
    ) else None


def run_tests_on_image(instance: Instance, workspace: Workspace, seconds: float) -> Verdicts:
    """Runs an instance's tests on its image, with the image's Python and pytest: with the script of the row, else the
    image's script, else the test files. Every pytest that they start loads the plugin. If none did (other runners,
    tox), the printed output decides.

    Raises:
        DataError: the command of its tests is unknown.
        SandboxError: the sandbox did not start.
    """
    assert workspace.image is not None
    script = images.script_of(instance.eval_script, workspace.image, workspace.place)
    files = files_of_tests((*instance.fail_to_pass, *instance.pass_to_pass))
    if not script and not files:
        raise DataError(f"{instance.instance_id}: its tests are not pytest's, and it has no eval_script")
    own = f"exec python -m pytest -p no:cacheprovider --tb=line {shlex.join(files or ())}\n"
    done, verdicts = run_script(workspace, script or own, seconds)
    if verdicts is not None:
        return verdicts
    return Verdicts(
        outcomes_of_log(done.output) if script else {}, ended=bool(script), exit_code=done.exit_code
    )


def parsed(done: Finished, secret: str) -> Verdicts:
    """Returns the verdicts that the plugin printed. A run in which a trap did not fail has no verdict."""
    outcomes: dict[str, str] = {}
    why: dict[str, str] = {}
    ended, traps, fooled = False, -1, False
    for line in _reported_lines(done.output, secret):
        entry = json.loads(line)
        if "test" in entry:
            outcomes[entry["test"]] = entry["outcome"]
        elif "place" in entry:
            why[entry["place"]] = entry["why"]
        elif "end" in entry:
            ended = entry["end"] == len(outcomes)
            fooled = fooled or entry["fooled"] > 0 or (entry["traps"] != traps and bool(outcomes))
        elif "traps" in entry:
            traps = entry["traps"]
    ended = ended and not fooled
    problem = (
        done.error
        or (FOOLED if fooled else "")
        or ("" if ended else f"the tests did not finish (exit code {done.exit_code}): {done.output[-400:]}")
    )
    return Verdicts(outcomes, why, ended and done.error is None, problem, done.exit_code)


def _reported_lines(output: str, secret: str) -> Iterator[str]:
    for line in output.splitlines():
        if line.startswith(f"{secret} "):
            yield line.removeprefix(f"{secret} ")
