#!/usr/bin/env bash
# Evaluates a model folder, such as a checkpoint: conversation, coding, tool use.
#   bash openclaw-test/run_eval.sh --model-path runs/.../checkpoints/checkpoint-latest --eval-tasks "conversation,coding,tool-use"
# A checkpoint's own Hugging Face folder is found. Further flags: bash openclaw-test/run_eval.sh --help-all
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/launch.sh
source "$ROOT/launch/launch.sh"
case ${1:-} in -h | --help) sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
if is_dry_run; then die "DRY_RUN=$DRY_RUN: an evaluation has no plan"; fi
check_first openclaw_test.evaluation.flags "${@/#--help-all/--help}"
ensure_env "$ROOT/requirements.txt"
exec "$PY" "$ROOT/openclaw-test/openclaw_test/evaluation/evaluate.py" "$@"
