from pathlib import Path

MAIN = "# main settings\nname = demo\n\n  # indented comment\ncolor = #ff8800\npath = /srv/#shared\n\n# end\nlast = yes\n"


def test_comments_and_empty_lines_are_gone_and_values_are_whole():
    assert (
        Path("/app/clean.conf").read_text()
        == "name = demo\ncolor = #ff8800\npath = /srv/#shared\nlast = yes\n"
    )


def test_the_original_is_untouched_beside_the_result():
    assert Path("/app/clean.conf").exists() and Path("/app/main.conf").read_text() == MAIN
