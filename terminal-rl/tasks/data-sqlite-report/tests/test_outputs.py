import json
from pathlib import Path


def wanted():
    names = ["Ada", "Bob", "Carl", "Dan", "Eve", "Finn"]
    sums = dict.fromkeys(names, 0)
    for n in range(1, 41):
        if n % 2 == 0 and n % 4 != 1 and ["paid", "open", "paid", "void"][n % 4] == "paid":
            sums[names[n * 7 % 5]] += 100 + n * 137 % 1900
    return sums


def test_sums_of_paid_orders_of_all_customers():
    assert json.loads(Path("/app/report.json").read_text()) == wanted()
