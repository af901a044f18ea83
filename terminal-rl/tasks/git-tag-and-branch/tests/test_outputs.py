import subprocess


def git(*words):
    return subprocess.run(
        ["git", "-C", "/app/repo", *words], capture_output=True, text=True, check=True
    ).stdout


def test_the_tag_is_annotated_and_on_the_release():
    assert git("cat-file", "-t", "v1.0").strip() == "tag"
    assert git("for-each-ref", "--format=%(contents:subject)", "refs/tags/v1.0").strip() == "first release"
    assert git("log", "-1", "--format=%s", "v1.0").strip() == "Release 1.0"


def test_the_branch_begins_there_and_main_is_as_it_was():
    assert git("log", "-1", "--format=%s", "hotfix").strip() == "Release 1.0"
    assert git("rev-list", "--count", "--all").strip() == "5"
    assert git("rev-parse", "--abbrev-ref", "HEAD").strip() == "main"
