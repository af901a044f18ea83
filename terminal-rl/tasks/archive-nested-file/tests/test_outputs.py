from pathlib import Path


def test_the_recipe_is_there_and_nothing_else():
    assert Path("/app/recipe.txt").read_text() == "flour\nwater\nsalt\n"
    assert sorted(path.name for path in Path("/app").iterdir()) == ["backup.tar.gz", "recipe.txt"]


def test_the_backup_is_untouched_beside_it():
    assert Path("/app/recipe.txt").stat().st_size == 17
    assert (
        Path("/app/backup.tar.gz").read_bytes()[:2] == bytes([31, 139])
        and Path("/app/backup.tar.gz").stat().st_size > 300
    )
