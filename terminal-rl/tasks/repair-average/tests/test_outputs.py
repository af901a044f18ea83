import subprocess
from pathlib import Path


def run(*words, cwd="/app", text=""):
    return subprocess.run(words, cwd=cwd, input=text, capture_output=True, text=True, timeout=20)


def average(text):
    Path("/tmp/numbers").write_text(text)
    done = run("python3", "/app/average.py", "/tmp/numbers")
    return done.returncode, done.stdout


def test_averages_are_not_cut():
    assert average("1\n2\n\n4\n") == (0, "2.33\n")
    assert average("-1.5\n\n\n0.25") == (0, "-0.62\n") or average("-1.5\n0.25\n") == (0, "-0.63\n")
    assert average("1000000\n3\n") == (0, "500001.50\n")


def test_no_numbers_are_said_to_be_none():
    assert average("\n \n") == (1, "no numbers\n")
    assert average("") == (1, "no numbers\n")
