import subprocess


def git(*words):
    return subprocess.run(
        ["git", "-C", "/app/repo", *words], capture_output=True, text=True, check=True
    ).stdout


def test_the_guide_is_back_as_it_was_last():
    assert git("show", "main:guide.txt") == "one\ntwo\nthree\n"


def test_it_is_one_commit_on_top_and_nothing_else_has_changed():
    assert git("log", "--format=%s", "main^").splitlines() == [
        "Add notes",
        "Delete the guide",
        "Add a step",
        "Begin",
    ]
    assert git("diff", "--name-only", "main^", "main").split() == ["guide.txt"]
    assert git("status", "--porcelain") == ""
