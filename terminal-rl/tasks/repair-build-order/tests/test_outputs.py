import shutil
import subprocess
from pathlib import Path


def run(*words, cwd="/app", text=""):
    return subprocess.run(words, cwd=cwd, input=text, capture_output=True, text=True, timeout=20)


def build(cwd):
    done = run("bash", "/app/build", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return Path("/app/out/page.html").read_text()


def test_all_parts_in_order_from_any_folder_and_twice():
    shutil.rmtree("/app/out", ignore_errors=True)  # what is built already counts for nothing
    page = "<h1>Top</h1>\n<ul></ul>\n<p>Body</p>\n<hr>\n"
    assert (build("/tmp"), build("/app"), build("/")) == (page, page, page)


def test_another_order_gives_another_page():
    order = Path("/app/parts/order.txt")
    assert order.read_text() == "top\nmenu\nbody\nend\n"
    shutil.rmtree("/app/out", ignore_errors=True)
    order.write_text("end\nbody\n")
    assert build("/tmp") == "<hr>\n<p>Body</p>\n"
