#!/usr/bin/env bash
# A tiny agent learns when to use Python, on a laptop: GRPO on sums and products that it cannot do in its head.
#   bash toolcall-rl/run_tiny_toolcall_rl.sh            ends with a table, a plot and one line of JSON
#   SEED=7 bash toolcall-rl/run_tiny_toolcall_rl.sh     other problems, other samples
#   DRY_RUN=1 bash toolcall-rl/run_tiny_toolcall_rl.sh  the plan and every argument; starts nothing
# Any other flag goes to the driver: see python slime/train_async.py --help, and instructions/settings.md for the variables.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/launch.sh
source "$ROOT/launch/launch.sh"
# shellcheck source=flags.sh
source "$ROOT/toolcall-rl/flags.sh"

case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# //p' "${BASH_SOURCE[0]}"; exit ;; esac
SEED=${SEED:-1}
MODEL_PATH=${MODEL_PATH:-${HF_CKPT:-$ROOT/toolcall-rl/tiny_model}}
run_places tiny_toolcall_rl "$@"
arguments=(
  ::script --hf-checkpoint "$MODEL_PATH" --train-backend fsdp --backend embedded --run-dir "$RUN_DIR" --save "$RUN_DIR/checkpoints"
  "${TOOLCALL[@]}" --reward-key score --prompt-data "$TASKS/train.jsonl"
  --eval-prompt-data heldout "$TASKS/heldout.jsonl" by_heart "$TASKS/by_heart.jsonl"
  --eval-interval 8 --n-samples-per-eval-prompt 1 --eval-temperature 0
  --max-turns 3 --no-tool-encouragement --tool-call-price 0.2 --answer-check strict
  --rollout-max-response-len 72 --rollout-max-context-len 400
  --num-rollout 24 --rollout-batch-size 24 --n-samples-per-prompt 8 --num-steps-per-rollout 1
  --disable-grpo-std-normalization --calculate-per-token-loss --eps-clip 0.2 --eps-clip-high 0.28
  --lr 1.5e-3 --lr-decay-style linear --lr-decay-iters 24 --min-lr 1e-4 --weight-decay 0.0 --adam-beta1 0.9 --adam-beta2 0.98
  --seed "$SEED" --rollout-seed "$SEED" --save-interval 12
)
marked_more "$@"
begin_run "$ROOT/requirements.txt"
began=$(date +%s)
"$PY" -m claw_lab.tiny_models.toolcall.make_tasks "$TASKS" --seed "$SEED"
run_or_plan "$ROOT/slime/train_async.py" "${arguments[@]}"
"$PY" -m slime.agents.report "$RUN_DIR" --dataset by_heart
"$PY" -m slime.agents.report "$RUN_DIR" --dataset heldout --plot "$RUN_DIR/curve.svg"
"$PY" -m slime.agents.report "$RUN_DIR" --dataset heldout --line --seconds "$(($(date +%s) - began))"
