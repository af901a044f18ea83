"""Tool results under the rules: a sign needs evidence."""

from __future__ import annotations

import json

import pytest

from openclaw.judge.rules.tool_calls import ToolCall, calls_in
from openclaw.judge.rules.tool_results import read_report, read_tool_result, read_tool_results


def call(command: str, name: str = "bash") -> ToolCall:
    (found,) = calls_in(f"Let me see.\n{name}({json.dumps({'command': command})})")
    return found


def sign(output: str, command: str = "", name: str = "bash") -> int:
    return read_tool_result(output, call(command, name) if command else ToolCall())[0]


@pytest.mark.parametrize(
    "shown",
    [
        "boom\n\n(Command exited with code 3)",
        '{"status": "error", "tool": "exec", "error": "boom\\n\\nCommand exited with code 3"}',
        "Exit code 3\nboom",
        "Exit code: 3\nWall time: 0.4 seconds\nOutput:\nboom",
        "Chunk ID: 4f\nProcess exited with code 3\nOriginal token count: 1\nOutput:\nboom",
        '{"exit_code": 3, "output": "boom"}',
        '{"output": "boom", "metadata": {"exit_code": 3, "duration_seconds": 0.4}}',
        "<returncode>3</returncode>\n<output>\nboom\n</output>",
        "boom\n[The command completed with exit code 3.]",
    ],
)
def test_all_formats_of_exit_codes_are_parsed(shown: str) -> None:
    report = read_report(shown)
    assert (report.code, report.body) == (3, "boom")
    assert sign(shown, "make") == -1
    assert sign(shown.replace("3", "0"), "make") == (-1 if '"status": "error"' in shown else 1)


def test_an_exit_code_in_the_middle_of_the_output_is_ignored() -> None:
    assert read_report("step 1\nexit code: 1\nstep 2\nstep 3\nall done").code is None
    assert read_report("status: 404").code is None


def test_output_without_evidence_is_neutral() -> None:
    assert sign("hello", "python3 app.py") == sign("", "touch a") == sign("hello") == sign("[]") == 0


def test_a_shell_that_reports_all_failures_succeeds_without_a_report() -> None:
    assert sign("hello", "python3 app.py", name="exec") == sign("hello", "./run", name="Bash") == 1
    assert sign("(no output)", "mv a b", name="exec") == 1
    assert sign("Command still running (session 12, pid 7)", "./serve", name="exec") == 0


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("python3 app.py", 'Traceback (most recent call last):\n  File "a"\nValueError: x'),
        ("npm run deploy", 'npm error Missing script: "deploy"'),
        ("curl -sS http://a", "curl: (7) Failed to connect to a port 80"),
        ("git merge b", "Auto-merging a\nCONFLICT (content): Merge conflict in a"),
        ("cargo check", "error[E0308]: mismatched types"),
        ("./deploy", "./deploy: line 4: syntax error: unexpected end of file"),
        ("curl -s http://a", '{"status": 401, "message": "no token"}'),
        ("cat a.txt", "cat: a.txt: No such file or directory"),
        ("docker logs a", "Error response from daemon: No such container: a"),
        ("sha256sum -c sums", "a: FAILED\nsha256sum: WARNING: 1 computed checksum did NOT match"),
        ("./check || true", "exit code: 0\nOutput:\nmake: *** [check] Error 1"),
        ("pytest -q | tail -1", "Exit code: 0\nOutput:\n1 failed, 4 passed in 0.3s"),
    ],
)
def test_an_error_reported_by_the_program_is_a_failure(command: str, output: str) -> None:
    assert sign(output, command) == -1


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("cat build.log", "Error: boom\nmake: *** [app] Error 1"),
        ("grep -n error app.log", "3:error: disk full"),
        ("git log --oneline", "1a2b3c4 fix error: failed to push"),
        ("pytest -q", "5 passed, 0 failed in 0.3s"),
        ("curl -s http://a", '{"healthy": true, "errors": []}'),
        ('curl -s -o /dev/null -w "%{http_code}" http://a', "401"),
        ("git commit -m a", "[main 5b052bd] a\n 1 file changed"),
        ("./migrate", "error: an old line of the log\nexit code: 0"),
    ],
)
def test_output_that_only_resembles_a_failure_is_a_success(command: str, output: str) -> None:
    assert sign(output, command) == 1


@pytest.mark.parametrize(
    "command",
    ["grep foo a.txt", "diff a b", "cd app && which foo", "test -f a && echo yes", "command -v foo"],
)
def test_exit_code_1_of_grep_or_diff_is_not_a_failure(command: str) -> None:
    assert sign("Exit code 1\n", command) == 0
    assert sign("Exit code 2\n", command) == -1
    assert sign("Exit code 1\n", f"{command}; make") == -1


def test_a_turn_succeeds_only_with_evidence_for_all_results() -> None:
    calls = [call("make"), call("cat a")]
    assert read_tool_results(["", "text"], calls)[0] == 0
    assert read_tool_results(["(Command exited with code 2)", "text"], calls)[0] == -1
    assert read_tool_results(["Exit code: 0\nOutput:\n", "text"], calls)[0] == 1
