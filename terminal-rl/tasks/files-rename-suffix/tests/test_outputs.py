from pathlib import Path

NOTES = Path("/app/notes")
WANTED = {"monday.md": "buy milk\n", "trip to rome.md": "train at nine\n", "plan.v2.md": "second plan\n"}


def test_every_text_file_is_renamed_with_its_content():
    assert {path.name: path.read_text() for path in NOTES.glob("*.md")} == WANTED


def test_nothing_else_has_changed():
    assert (NOTES / "monday.md").exists()
    assert (NOTES / "photo.jpg").read_text() == "not a picture\n"
    assert (NOTES / "old.txt" / "keep.csv").read_text() == "a,b\n"
    assert [path.name for path in NOTES.glob("*.txt")] == ["old.txt"]
