#!/usr/bin/env bash
# The tiny tool-call agent learns when to use Python, from each seed: bash lab/claw_lab/long/toolcall_rl.sh [SEED...]   (5 to 10 minutes each)
# Bars on held-out problems: pass@1 at most .3 before and at least .8 after, no failure of infrastructure.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT
failed=0
for seed in "${@:-1}"; do
  SEED=$seed RUN_DIR=$FOLDER/$seed bash "$ROOT/toolcall-rl/run_tiny_toolcall_rl.sh" >"$FOLDER/$seed.log" 2>&1 || { tail -20 "$FOLDER/$seed.log"; failed=1; continue; }
  tail -1 "$FOLDER/$seed.log" | python3 -c '
import json, sys
found = json.loads(sys.stdin.read())
met = found["pass_at_1_before"] <= 0.3 and (found["pass_at_1_after"] or 0) >= 0.8 and found["infra_failures"] == 0
print("seed", sys.argv[1], "met" if met else "NOT MET", json.dumps(found))
sys.exit(not met)' "$seed" || failed=1
done
exit "$failed"
