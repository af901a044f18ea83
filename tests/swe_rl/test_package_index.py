"""Tests that the source of a package is downloaded with pip's configuration, and that none of its code runs."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slime.errors import ConfigError
from swe_rl import package_index
from swe_rl.package_index import fetch_source, is_source, links_of, pip_settings, unpack
from swe_rl.repository import source_of

BACKEND = """
import pathlib
pathlib.Path({mark!r}).touch()


def get_requires_for_build_wheel(*_):
    return []


def prepare_metadata_for_build_wheel(folder, *_):
    about = pathlib.Path(folder, "evil-1.0.dist-info")
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\\nName: evil\\nVersion: 1.0\\n")
    return about.name


build_wheel = build_sdist = prepare_metadata_for_build_wheel
"""


def archive(files: dict[str, str], kind: str = "gz") -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=f"w:{kind}") as made:
        for name, text in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(text.encode())
            made.addfile(about, io.BytesIO(text.encode()))
    return held.getvalue()


def evil(mark: Path) -> bytes:
    code = BACKEND.format(mark=str(mark))
    return archive(
        {
            "evil-1.0/pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
            "evil-1.0/backend.py": code,
            "evil-1.0/setup.py": code,
            "evil-1.0/conftest.py": code,
            "evil-1.0/PKG-INFO": "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n",
            "evil-1.0/evil.py": "VALUE = 1\n",
        }
    )


@pytest.fixture(autouse=True)
def _pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configures pip with one folder, and a separate store of sources."""
    (tmp_path / "archives").mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "archives"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("SWE_ENV_DIR", str(tmp_path / "kept"))


def test_the_build_code_of_a_package_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "archives" / "evil-1.0.tar.gz").write_bytes(evil(tmp_path / "exploded"))
    source = source_of("evil==1.0")
    assert (source / "evil.py").read_text() == "VALUE = 1\n" and (source / "setup.py").is_file()
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("kind", "suffix"), [("gz", ".tar.gz"), ("gz", ".tgz"), ("bz2", ".tar.bz2"), ("xz", ".tar.xz")]
)
def test_archives_of_all_kinds_are_unpacked(tmp_path: Path, kind: str, suffix: str) -> None:
    made = archive({"A_b-2.0/a.py": "x = 1\n"}, kind)
    (tmp_path / "archives" / f"A_b-2.0{suffix}").write_bytes(made)
    assert (source_of("a-b==2.0") / "a.py").is_file()


def test_a_package_missing_in_all_indexes_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"none==1\.0 could not be fetched: no index has its source"):
        source_of("none==1.0")


@pytest.mark.parametrize(
    ("file", "package", "same"),
    [
        ("boltons-26.2.0.tar.gz", ("boltons", "26.2.0"), True),
        ("My.Package-1.0.tar.gz", ("my-package", "1.0.0"), True),
        ("my_package-1.0.post1.tar.gz", ("my-package", "1.0-post1"), True),
        ("boltons-26.2.0-py3-none-any.whl", ("boltons", "26.2.0"), False),
        ("boltons-26.2.1.tar.gz", ("boltons", "26.2.0"), False),
        ("boltons-extra-26.2.0.tar.gz", ("boltons", "26.2.0"), False),
        ("boltons-26.2.0.zip", ("boltons", "26.2.0"), False),
        ("boltons-26.2.0.tar.gz.metadata", ("boltons", "26.2.0"), False),
    ],
)
def test_a_versions_archive_is_recognised_by_its_name(
    file: str, package: tuple[str, str], same: bool
) -> None:
    assert is_source(file, *package) is same


def test_escaping_entries_of_an_archive_are_not_extracted(tmp_path: Path) -> None:
    for number, name in enumerate(("../out.py", "/tmp/out-of-an-archive.py", "a/../../out.py")):
        (tmp_path / f"{number}.tar.gz").write_bytes(archive({name: "x"}))
        (tmp_path / str(number)).mkdir()
        try:
            unpack(tmp_path / f"{number}.tar.gz", tmp_path / str(number))
        except ConfigError as error:
            assert "cannot be unpacked" in str(error)
    assert not (tmp_path / "out.py").exists() and not Path("/tmp/out-of-an-archive.py").exists()


def test_archive_bombs_and_corrupt_archives_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_index, "LARGEST", 1000)
    (tmp_path / "archives" / "bomb-1.0.tar.gz").write_bytes(archive({"bomb-1.0/x": "0" * 100_000}))
    with pytest.raises(ConfigError, match="holds more than"):
        source_of("bomb==1.0")
    (tmp_path / "archives" / "broken-1.0.tar.gz").write_bytes(b"no archive")
    with pytest.raises(ConfigError, match="cannot be unpacked"):
        source_of("broken==1.0")
    (tmp_path / "archives" / "large-1.0.tar.gz").write_bytes(b"0" * 2000)
    with pytest.raises(ConfigError, match="is larger than"):
        source_of("large==1.0")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, dict[str, tuple[str, bytes]]]]:
    """Yields an index on this machine: its address, and its answers by path."""
    answers: dict[str, tuple[str, bytes]] = {}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = answers.get(self.path, ("", b""))
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()


@pytest.mark.parametrize("as_json", [True, False])
def test_an_index_is_read_and_its_digest_compared(
    index: tuple[str, dict[str, tuple[str, bytes]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    as_json: bool,
) -> None:
    url, answers = index
    data = archive({"a-1.0/a.py": "x = 1\n"})
    digest = hashlib.sha256(data).hexdigest()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
    answers["/files/a-1.0.tar.gz"] = ("application/gzip", data)

    def list_with(found: str) -> None:
        if as_json:
            files = [{"filename": "a", "url": "../../files/a-1.0.tar.gz", "hashes": {"sha256": found}}]
            page = "application/vnd.pypi.simple.v1+json", json.dumps({"files": files}).encode()
        else:
            page = "text/html", f'<a href="../../files/a-1.0.tar.gz#sha256={found}">a</a>'.encode()
        answers["/simple/a/"] = page

    list_with(digest)
    assert fetch_source("A==1.0", tmp_path).read_bytes() == data
    list_with("0" * 64)
    with pytest.raises(ConfigError, match="differs from its index"):
        fetch_source("A==1.0", tmp_path)


def test_a_network_page_cannot_refer_to_local_files(
    index: tuple[str, dict[str, tuple[str, bytes]]], tmp_path: Path
) -> None:
    url, answers = index
    (tmp_path / "a-1.0.tar.gz").write_bytes(b"secret")
    answers["/simple/a/"] = "text/html", f'<a href="{(tmp_path / "a-1.0.tar.gz").as_uri()}">a</a>'.encode()
    with package_index._client({}) as http:
        assert links_of(f"{url}/simple/a/", http) == []


def test_index_settings_are_those_of_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://a/simple\nextra-index-url =\n  https://b\n  https://c\n"
        "find-links = /x\n[download]\nindex-url = https://d/simple\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_FIND_LINKS", "/y /z")
    found = pip_settings()
    assert found["index-url"] == ["https://d/simple"] and found["extra-index-url"] == [
        "https://b",
        "https://c",
    ]
    assert found["find-links"] == ["/y", "/z"]
