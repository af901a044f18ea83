import subprocess


def run(*words, cwd="/app", text=""):
    return subprocess.run(words, cwd=cwd, input=text, capture_output=True, text=True, timeout=20)


TABLE = 'a,"b, c","say ""hi"""\n1,,3\n"x",y\n'


def column(number):
    return run("python3", "/app/column.py", str(number), text=TABLE).stdout


def test_quoted_values_are_whole():
    assert column(2) == "b, c\n\ny\n" and column(1) == "a\n1\nx\n"


def test_missing_columns_are_empty_lines():
    assert column(3) == 'say "hi"\n3\n\n' and column(4) == "\n\n\n"
