#!/bin/bash
set -eu
python3 - <<'END'
import csv
import json

with open("/app/users.json") as source, open("/app/users.csv", "w", newline="") as target:
    rows = csv.writer(target)
    rows.writerow(["id", "name", "city"])
    for user in sorted(json.load(source), key=lambda user: user["id"]):
        if user["active"]:
            rows.writerow([user["id"], user["name"], user.get("address", {}).get("city", "")])
END
