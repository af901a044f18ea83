"""The site, the Chinese pages and the compose file keep step with what they are about."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAIRS = [
    ("README.md", "README.zh-CN.md"),
    ("instructions/quick_start.md", "instructions/quick_start.zh-CN.md"),
    ("instructions/platforms.md", "instructions/platforms.zh-CN.md"),
]


def _headings(text: str) -> list[int]:
    """Levels, in order, of those outside of code."""
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return [len(found) for found in re.findall(r"^(#+) ", outside, re.MULTILINE)]


def _commands(text: str) -> list[str]:
    """The lines of all code, without their comments."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    return [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_a_chinese_page_has_the_headings_and_commands_of_its_english_one(english: str, chinese: str) -> None:
    ours, theirs = (ROOT / english).read_text(), (ROOT / chinese).read_text()
    assert _headings(theirs) == _headings(ours)
    assert _commands(theirs) == _commands(ours)
    assert f"({Path(english).name})" in theirs and f"({Path(chinese).name})" in ours
    assert re.search(r"[\u4e00-\u9fff]", theirs)


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_a_chinese_page_has_the_links_of_its_english_one(english: str, chinese: str) -> None:
    links = [set(re.findall(r"\]\(([^)\s]+)\)", (ROOT / name).read_text())) for name in (english, chinese)]
    allowed = {Path(name).name for pair in PAIRS for name in pair}
    differing = {link for link in links[0] ^ links[1] if Path(link.split("#")[0]).name not in allowed}
    assert differing == set()


def test_every_page_is_in_the_site_with_valid_links(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, str(ROOT / "instructions" / "build_site.py"), "--output", str(tmp_path)],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    html = (tmp_path / "html" / "index.html").read_text()
    assert (
        "instructions/quick_start.html" in html
        and (tmp_path / "html" / "search" / "search_index.json").is_file()
    )
    foreign = re.findall(r"<(?:script|link)[^>]+(?:src|href)=\"(?:https?:)?//[^\"]+", html)
    assert [one for one in foreign if "canonical" not in one] == []


def test_the_picture_of_the_loop_is_small_and_complete() -> None:
    picture = ROOT / "instructions" / "images" / "loop.svg"
    words = "".join(ElementTree.parse(picture).getroot().itertext())
    assert picture.stat().st_size < 6000
    assert all(word in words for word in ("1 serving", "2 collecting", "3 judging", "4 training"))


def test_the_compose_file_uses_existing_programs_and_known_variables() -> None:
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["openclaw"]
    assert (ROOT / service["command"][1]).is_file() and "SGLANG_API_KEY" in service["environment"]
    known = (ROOT / "instructions" / "settings.md").read_text() + (ROOT / "launch" / "env.sh").read_text()
    assert [name for name in service["environment"] if name not in known] == []
    assert service["ports"] == ["127.0.0.1:30000:30000"]
