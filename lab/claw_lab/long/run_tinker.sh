#!/usr/bin/env bash
# tiny-claw learns through a real local server of Tinker's protocol: skyrl 0.4.0 with its JAX backend, on a CPU.
#   bash lab/claw_lab/long/run_tinker.sh [METHOD] [FOLDER] [FLAG...]     default: rl, a temporary folder; any method and flag of openclaw-tinker/run.py
# Installs what it needs into FOLDER once (tinker_server.sh). Prints the demo's result, and the largest distance of trainer and sampler. Takes about
# a quarter of an hour on two free cores.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
METHOD=${1:-rl}
# shellcheck disable=SC2034 # read by prepare_tinker
FOLDER=${2:-$(mktemp -d)}
shift $(($# < 2 ? $# : 2))
# shellcheck source=tinker_server.sh
source "$ROOT/lab/claw_lab/long/tinker_server.sh"
prepare_tinker
trap 'stop TERM "$RUN"; stop TERM "$SERVER"' EXIT
start_server
start_run "$METHOD" "$@"
status=0
"$PY" "$ROOT/openclaw-test/openclaw_test/loop/demo.py" --url "http://127.0.0.1:$PORT" --log "$STATE/run.log" --pid "$RUN" \
  --seconds "${DEMO_SECONDS:-600}" --problems 100 --target 0.8 --request-timeout 600 || status=$?
"$PY" - "$STATE/run/metrics.jsonl" <<'P'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
gaps = [row["train/train_rollout_logprob_abs_diff"] for row in rows if "train/train_rollout_logprob_abs_diff" in row]
print(f"{len(rows)} steps; trainer against sampler, mean of a step at most {max(gaps, default=float('nan')):.2g} nats")
P
exit "$status"
