from __future__ import annotations

from pathlib import Path

import pytest

from slime.errors import ConfigError
from slime.plugins import load_attr, plugin_modules


def test_modules_and_attributes_are_found_in_both_spellings() -> None:
    import json.decoder

    assert load_attr("json.decoder.JSONDecoder") is json.decoder.JSONDecoder
    assert load_attr("json.decoder:JSONDecoder") is json.decoder.JSONDecoder


def test_a_file_is_loaded_once(tmp_path: Path) -> None:
    file = tmp_path / "my_plugin.py"
    file.write_text("loads = []\nloads.append(1)\n\ndef run():\n    return loads\n")
    assert load_attr(f"{file}:run")() == [1]
    assert load_attr(str(file), default_attr="run") is load_attr(f"{file}:run")
    assert len(plugin_modules([f"{file}:run", f"{file}:loads"])) == 1


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("nothing", "package.module.NAME"),
        ("", "package.module.NAME"),
        ("no_such_package.f", "PYTHONPATH"),
        ("json.no_such", "it has JSONDecodeError"),
        ("/nowhere/x.py:f", "does not exist"),
        ("/nowhere/x.py", "names a file but nothing in it"),
    ],
)
def test_errors_name_the_missing_part_and_a_remedy(path: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_attr(path)


def test_an_error_inside_a_plugin_is_shown(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            load_attr(f"{tmp_path}/broken.py:f")


def test_a_missing_dependency_of_a_plugin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="not_installed_anywhere"):
        load_attr("needs_more.f")
