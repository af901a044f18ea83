from __future__ import annotations

import pytest

from swe_rl.patch import PatchPolicy, files_of


def changing(*files: str) -> str:
    return "".join(
        f"diff --git a/{file} b/{file}\n--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-a\n+b\n" for file in files
    )


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (("src/calc.py",), None),
        (("src/latest.py", "contest.py"), None),
        (("tests/data.json",), "is a test"),
        (("src/calc.py", "src/test_calc.py"), "src/test_calc.py is a test"),
        (("conftest.py",), "configures"),
        (("src/conftest.py",), "configures"),
        (("setup.cfg",), "configures"),
        ((".github/workflows/ci.yml",), "configures"),
        (("a.pth",), "configures"),
        (("../out.py",), "outside"),
        ((".git/hooks/x",), "outside"),
    ],
)
def test_files_that_decide_the_verdict_may_not_be_changed(files: tuple[str, ...], said: str | None) -> None:
    complaint = PatchPolicy().complaint(changing(*files))
    assert complaint is None if said is None else complaint is not None and said in complaint


def test_tests_of_the_instance_are_protected_under_any_name() -> None:
    assert PatchPolicy().complaint(changing("checks.py"), frozenset({"checks.py"})) == "checks.py is a test"


def test_each_rule_of_the_policy_can_be_disabled() -> None:
    assert PatchPolicy(tests=False).complaint(changing("tests/test_a.py")) is None
    assert PatchPolicy(configuration=False).complaint(changing("setup.cfg")) is None


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (" \n", "empty"),
        ("hello", "not a git patch"),
        (changing("a.py") + "new file mode 120000\n", "links"),
        (changing("a.py") + "x" * (1 << 20), "more than"),
    ],
)
def test_a_text_that_is_not_a_patch_is_rejected(patch: str, said: str) -> None:
    assert said in (PatchPolicy().complaint(patch) or "")


def test_both_names_of_a_renamed_file_count() -> None:
    assert files_of("diff --git a/tests/a.py b/b.py\nsimilarity index 100%\n") == ["tests/a.py", "b.py"]
