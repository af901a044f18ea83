from pathlib import Path

WANTED = ["ada", "bob2", "bob", "carl", "dan_7", "zoe"]


def test_every_address_is_there_once_in_order():
    wanted = sorted(f"{name}@example.org" for name in WANTED)
    assert Path("/app/all.txt").read_text().splitlines() == wanted


def test_the_lists_are_still_there_beside_the_result():
    assert Path("/app/all.txt").is_file() and not Path("/app/all.txt").is_symlink()
    assert len(list(Path("/app/lists").rglob("*.txt"))) == 4
