from pathlib import Path

WANTED = ["damaged parts/c", "damaged parts/h", "missing parts/a", "missing parts/f"]


def test_the_report_names_what_is_damaged_and_missing():
    assert Path("/app/report.txt").read_text().splitlines() == WANTED


def test_nothing_was_repaired():
    assert Path("/app/report.txt").exists()
    assert sorted(path.name for path in Path("/app/parts").iterdir()) == ["b", "c", "d", "e", "g", "h"]
    assert Path("/app/SHA256SUMS").read_text().count("parts/") == 8
