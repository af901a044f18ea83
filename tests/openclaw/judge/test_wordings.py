from __future__ import annotations

import pytest

from openclaw.judge.rules import wordings
from openclaw.judge.rules.wordings import LISTED, Wordings

FILES = {name: value for name, value in vars(wordings).items() if isinstance(value, Wordings)} | LISTED


def test_a_pattern_is_compiled_when_it_is_first_used() -> None:
    german = Wordings.read("de")
    assert german == {} and german.texts
    assert german["praise"] is german["praise"] and list(german) == ["praise"]
    with pytest.raises(KeyError):
        german["no such list"]


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_pattern_of_a_file_compiles(name: str) -> None:
    for key, text in FILES[name].texts.items():
        assert FILES[name][key].pattern == text
