from pathlib import Path


def test_the_errors_of_the_hour_in_order():
    lines = [line for path in Path("/app/logs").glob("*.log") for line in path.read_text().splitlines()]
    assert len(lines) == 75
    wanted = sorted(line for line in lines if line.split()[1] == "ERROR" and "T10:" in line)
    assert len(wanted) > 10 and Path("/app/errors.txt").read_text().splitlines() == wanted
