import csv
from pathlib import Path

WANTED = [
    ["id", "name", "city"],
    ["2", "Lovelace, Ada", "London"],
    ["3", "Carl", ""],
    ["5", "Eve", ""],
    ["7", "Zoe", "Bonn"],
    ["9", 'Dan "D" Doe', "New York, NY"],
]


def test_rows_are_those_of_the_active_users():
    with Path("/app/users.csv").open(newline="") as file:
        assert list(csv.reader(file)) == WANTED
