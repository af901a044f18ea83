import subprocess


def git(*words):
    return subprocess.run(
        ["git", "-C", "/app/repo", *words], capture_output=True, text=True, check=True
    ).stdout


def test_main_is_a_merge_of_both_with_both_lines():
    assert git("show", "main:list.txt") == "apples\nbread\ncheese\nmilk\n"
    parents = (
        git("log", "-1", "--format=%s", "main^1").strip(),
        git("log", "-1", "--format=%s", "main^2").strip(),
    )
    assert parents == ("Add bread", "Add cheese")


def test_main_is_checked_out_and_clean():
    assert git("rev-parse", "--abbrev-ref", "HEAD").strip() == "main" and git("status", "--porcelain") == ""
    assert "<<<<" not in git("show", "HEAD:list.txt") and "cheese" in git("show", "HEAD:list.txt")
