"""Builds the documentation site from the repository's Markdown files: python instructions/build_site.py

Each file becomes a page of the same name, with the pictures and scripts that it links to; mkdocs converts them to
HTML, with a search that works offline. Pages are written to FOLDER/pages, the site to FOLDER/html.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "instructions" / "mkdocs.yml"
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
SECTIONS = {
    "Start": (
        "README.md",
        "README.zh-CN.md",
        "instructions/quick_start.md",
        "instructions/quick_start.zh-CN.md",
    ),
    "Guides": ("instructions/",),
    "Methods": ("openclaw-rl/", "openclaw-opd/", "openclaw-combine/"),
    "Runtime": ("openclaw/",),
    "Trainer": ("slime/",),
    "Test and measure": ("lab/", "openclaw-test/", "tests/"),
    "More": ("",),
}
"""Sections with the path prefixes of their pages; a page belongs to the first section that matches."""


def documents() -> list[str]:
    """Returns the paths of all Markdown files in git, README files first in each folder."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(
        listed.stdout.split(), key=lambda name: (str(Path(name).parent), Path(name).name != "README.md", name)
    )


def stage(folder: Path, names: list[str]) -> None:
    """Writes all pages, and the files that they link to, below `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in names:
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(LINK.sub(partial(_staged, folder, name), (ROOT / name).read_text()))


def _staged(folder: Path, name: str, link: re.Match[str]) -> str:
    """Rewrites a link for the site: a folder becomes its README, a file that is not a page is copied."""
    target = link[2]
    there = (ROOT / name).parent / target
    if "://" in target or target.startswith("mailto:") or not there.exists():
        return link[0]
    if there.is_dir():
        readme = there / "README.md"
        return f"{link[1]}{target.rstrip('/')}/README.md{link[3]}" if readme.is_file() else link[0]
    if there.suffix != ".md":
        copy = folder / there.resolve().relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(there, copy)
    return link[0]


def navigation(names: list[str]) -> Iterator[str]:
    """Yields the lines of `nav`: every page once."""
    yield "nav:"
    left = list(names)
    for section, beginnings in SECTIONS.items():
        own_names = [name for start in beginnings for name in left if name.startswith(start)]
        own_names = list(dict.fromkeys(own_names))
        left = [name for name in left if name not in own_names]
        if own_names:
            yield f"  - {section}:"
            yield from (f"      - {name}" for name in own_names)


def main() -> int:
    """Returns the exit status of mkdocs, which rejects broken links."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--output", type=Path, default=ROOT / "build" / "site", help="folder for pages and HTML"
    )
    folder = parser.parse_args().output.resolve()
    names = documents()
    stage(folder / "pages", names)
    places = f"docs_dir: {folder / 'pages'}\nsite_dir: {folder / 'html'}\n"
    config = folder / "mkdocs.yml"
    config.write_text(CONFIG.read_text() + places + "\n".join(navigation(names)) + "\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(config)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
