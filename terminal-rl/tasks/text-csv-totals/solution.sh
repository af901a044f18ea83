#!/bin/bash
set -eu
python3 - <<'END'
import csv
from collections import defaultdict
from decimal import Decimal

totals = defaultdict(Decimal)
with open("/app/sales.csv", newline="") as file:
    for row in csv.DictReader(file):
        totals[row["region"]] += Decimal(row["amount"])
with open("/app/totals.csv", "w") as file:
    print("region,total", file=file)
    for region, total in sorted(totals.items(), key=lambda item: -item[1]):
        print(f"{region},{total:.2f}", file=file)
END
