#!/bin/bash
set -eu
python3 - <<'END'
import json

settings = json.load(open("/app/settings.json"))
for line in open("/app/changes.jsonl"):
    change = json.loads(line)
    *way, last = change.get("set") or change["drop"]
    at = settings
    for key in way:
        at = at.setdefault(key, {}) if "set" in change else at.get(key, {})
    if "set" in change:
        at[last] = change["to"]
    else:
        at.pop(last, None)
json.dump(settings, open("/app/settings.json", "w"))
END
