import subprocess
from pathlib import Path


def run(*words, cwd="/app", text=""):
    return subprocess.run(words, cwd=cwd, input=text, capture_output=True, text=True, timeout=20)


def test_names_with_blanks(tmp="/tmp/spaces"):
    Path(tmp, "folder").mkdir(parents=True)
    for name, size in (("one two  three", 7), ("Z", 2), ("a*b", 11)):
        Path(tmp, name).write_bytes(b"x" * size)
    assert run("bash", "/app/sizes", tmp).stdout == "2 Z\n11 a*b\n7 one two  three\ntotal 20\n"


def test_a_folder_without_files(tmp="/tmp/with blank/none"):
    Path(tmp).mkdir(parents=True)
    assert run("bash", "/app/sizes", tmp).stdout == "total 0\n"
    Path(tmp, "x y").write_text("1")
    assert run("bash", "/app/sizes", tmp).stdout == "1 x y\ntotal 1\n"
