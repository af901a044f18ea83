"""Fetches the source archive of a package without running its code.

pip would build the source to get its metadata, which runs the package's code. Instead, the index is read (PEP 503 and
691), the archive is fetched, and its digest is compared. Index, certificates and proxy are those of pip's
configuration.
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

import httpx

from slime.errors import ConfigError

SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
PAGES = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
SECONDS = 600
LARGEST = 1 << 30  # bytes of an archive; its content may have four times as many
PYPI = "https://pypi.org/simple"


@dataclass(frozen=True)
class Link:
    """A file in an index; `digests` by name of the algorithm."""

    url: str
    digests: dict[str, str]

    @property
    def name(self) -> str:
        return unquote(urlsplit(self.url).path).rpartition("/")[2]


def fetch_source(package: str, folder: Path) -> Path:
    """Returns the archive of `name==version`, in `folder`.

    Raises:
        ConfigError: no index has it, or its digest is wrong.
    """
    name, version = package.split("==")
    settings, problem = pip_settings(), f"no index has its source as {', '.join(SUFFIXES)}"
    with _client(settings) as http:
        for place in places(name, settings):
            try:
                for link in links_of(place, http):
                    if is_source(link.name, name, version):
                        return _download(link, folder / link.name, http)
            except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
                problem = f"{place}: {str(error) or type(error).__name__}"
    raise ConfigError(f"{package} could not be fetched: {problem}")


def _client(settings: dict[str, list[str]]) -> httpx.Client:
    """Returns a client with pip's certificates and proxy, and with the credentials in ~/.netrc."""
    first = {name: values[0] for name, values in settings.items() if values}
    netrc = Path("~/.netrc").expanduser()
    return httpx.Client(
        verify=first.get("cert", True),
        proxy=first.get("proxy"),
        auth=httpx.NetRCAuth(str(netrc)) if netrc.is_file() else None,
        timeout=SECONDS,
        follow_redirects=True,
    )


def unpack(archive: Path, folder: Path) -> None:
    """Extracts the files and folders of an archive that stay below `folder`. Raises ConfigError."""
    try:
        with tarfile.open(archive) as files:
            total = 0
            for member in files:
                total += member.size
                if total > 4 * LARGEST:
                    raise ConfigError(f"{archive.name} holds more than {4 * LARGEST} bytes")
            files.extractall(folder, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ConfigError(f"{archive.name} cannot be unpacked: {error}") from error


def pip_settings() -> dict[str, list[str]]:
    """Returns pip's settings by name. Environment variables take precedence over a command's settings, and these over
    global ones."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    settings: dict[str, tuple[int, list[str]]] = {}
    ranks = {"global": 0, "install": 1, "download": 2, ":env:": 3}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        rank = ranks.get(section, -1)
        if rank >= settings.get(name, (-1, []))[0] and rank >= 0:
            settings[name] = rank, str(ast.literal_eval(value)).split()
    return {name: values for name, (_, values) in settings.items()}


def places(name: str, settings: dict[str, list[str]]) -> Iterator[str]:
    """Yields pages and folders that may list the files of a package."""
    yield from settings.get("find-links", [])
    if settings.get("no-index", ["0"])[0].lower() in ("1", "true", "yes", "on"):
        return
    indexes = [*settings.get("index-url", [PYPI]), *settings.get("extra-index-url", [])]
    for index in indexes:
        yield f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', name).lower()}/"


def is_source(file: str, name: str, version: str) -> bool:
    """Returns whether a file name is that of a source archive of this package version."""
    stem = next((file.removesuffix(suffix) for suffix in SUFFIXES if file.endswith(suffix)), "")
    project, _, number = stem.rpartition("-")
    plain = re.sub(r"[-_.]+", "-", project).lower() == re.sub(r"[-_.]+", "-", name).lower()
    return plain and _version(number) == _version(version)


def _version(text: str) -> str:
    return re.sub(r"(\.0)+$", "", re.sub(r"[-_.]+", ".", text.lower().removeprefix("v")))


def links_of(place: str, http: httpx.Client) -> list[Link]:
    """Returns the files that a page or a local folder lists. A missing page or folder lists none."""
    here = _path(place)
    if here is not None:
        if here.is_dir() and not (here / "index.html").is_file():
            return [Link(path.as_uri(), {}) for path in sorted(here.iterdir()) if path.is_file()]
        page = here / "index.html" if here.is_dir() else here
        return _of_html(page.read_text(), f"{here.as_uri()}/") if page.is_file() else []
    answer = http.get(place, headers={"Accept": PAGES})
    if answer.status_code in (403, 404):
        return []
    answer.raise_for_status()
    if "json" in answer.headers.get("content-type", ""):
        listed = [
            Link(urljoin(str(answer.url), str(file["url"])), dict(file.get("hashes") or {}))
            for file in answer.json()["files"]
        ]
    else:
        listed = _of_html(answer.text, str(answer.url))
    # a page from the network must not refer to local files
    return [link for link in listed if urlsplit(link.url).scheme in ("http", "https")]


def _path(place: str) -> Path | None:
    if place.startswith("file:"):
        return Path(url2pathname(urlsplit(place).path))
    return None if "://" in place else Path(place).expanduser().absolute()


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.hrefs.append(href)


def _of_html(text: str, base: str) -> list[Link]:
    page = _Anchors()
    page.feed(text)
    links = []
    for href in page.hrefs:
        url, fragment = urldefrag(urljoin(base, href))
        kind, _, digest = fragment.partition("=")
        links.append(Link(url, {kind: digest} if digest else {}))
    return links


def _download(link: Link, to: Path, http: httpx.Client) -> Path:
    known = {name: hashlib.new(name) for name in link.digests if name in hashlib.algorithms_guaranteed}
    size = 0
    with to.open("wb") as file:
        for part in _parts(link.url, http):
            size += len(part)
            if size > LARGEST:
                raise ValueError(f"{link.name} is larger than {LARGEST} bytes")
            for digest in known.values():
                digest.update(part)
            file.write(part)
    for name, digest in known.items():
        if digest.hexdigest() != link.digests[name].lower():
            raise ValueError(f"{link.name} differs from its index: another {name}")
    return to


def _parts(url: str, http: httpx.Client) -> Iterator[bytes]:
    here = _path(url)
    if here is not None:
        with here.open("rb") as file:
            while part := file.read(1 << 20):
                yield part
        return
    with http.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer:
        answer.raise_for_status()
        yield from answer.iter_raw(1 << 20)
