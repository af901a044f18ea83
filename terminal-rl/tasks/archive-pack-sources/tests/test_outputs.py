import tarfile
from pathlib import Path

WANTED = ["project/lib/deep/er.py", "project/lib/tools.py", "project/main.py", "project/my notes.py"]


def test_the_archive_holds_the_sources_and_nothing_else():
    with tarfile.open("/app/sources.tar.gz", "r:gz") as archive:
        assert sorted(archive.getnames()) == WANTED
        content = archive.extractfile("project/lib/tools.py").read()
    assert content == b"TOOLS = 3\n" == Path("/app/project/lib/tools.py").read_bytes()
