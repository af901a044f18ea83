from pathlib import Path

WANTED = {
    "index.html": 0o644, "run.sh": 0o755, "tools": 0o755, "tools/clean up.sh": 0o755, "keys": 0o755, "keys/id": 0o600,
    "keys/old": 0o755, "keys/old/make.sh": 0o600, "css": 0o755, "css/main.css": 0o644,
}  # fmt: skip


def test_all_permissions_are_as_asked_for():
    site = Path("/app/site")
    found = {path.relative_to(site).as_posix(): path.stat().st_mode & 0o7777 for path in site.rglob("*")}
    assert found == WANTED
    assert (site / "keys" / "id").read_text() == "secret\n"
