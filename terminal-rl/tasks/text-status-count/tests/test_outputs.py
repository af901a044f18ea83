import re
from collections import Counter
from pathlib import Path


def test_counts_are_those_of_the_log():
    log = Path("/app/access.log").read_text()
    assert log.count("\n") == 60 and log.startswith("10.0.1.3 - - [12/May/2024:10:0")
    codes = Counter(re.findall(r'" ([0-9]{3}) [0-9]+$', log, re.MULTILINE))
    wanted = "".join(f"{code} {count}\n" for code, count in sorted(codes.items()))
    assert Path("/app/counts.txt").read_text() == wanted
