#!/usr/bin/env bash
# A tiny agent learns to repair one line of small repositories, on a laptop: GRPO in real sandboxes.
#   bash swe-rl/run_tiny_swe_rl.sh            ends with a table, a plot and one line of JSON
#   SEED=7 bash swe-rl/run_tiny_swe_rl.sh     other bugs to train on, other samples
#   DRY_RUN=1 bash swe-rl/run_tiny_swe_rl.sh  the plan and every argument; starts nothing
# Any other flag goes to the driver: see python slime/train_async.py --help, and instructions/settings.md for the variables.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/launch.sh
source "$ROOT/launch/launch.sh"

case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# //p' "${BASH_SOURCE[0]}"; exit ;; esac
SEED=${SEED:-1}
MODEL_PATH=${MODEL_PATH:-${HF_CKPT:-$ROOT/swe-rl/tiny_model}}
run_places tiny_swe_rl "$@"
default PARALLEL_ENVS 16
arguments=(
  ::script --hf-checkpoint "$MODEL_PATH" --train-backend fsdp --backend embedded --run-dir "$RUN_DIR" --save "$RUN_DIR/checkpoints"
  --custom-generate-function-path swe_rl.generate.generate --step-limit 4
  --input-key text --metadata-key metadata --rollout-shuffle --reward-key score --eval-reward-key acc
  --advantage-estimator grpo --prompt-data "$TASKS/train.jsonl"
  --eval-prompt-data heldout "$TASKS/heldout.jsonl" --eval-interval 18 --n-samples-per-eval-prompt 2
  --rollout-max-response-len 64 --rollout-max-context-len 320
  --num-rollout 36 --rollout-batch-size 24 --n-samples-per-prompt 8 --num-steps-per-rollout 2
  --disable-grpo-std-normalization --calculate-per-token-loss --eps-clip 0.2 --eps-clip-high 0.28 --clip-grad 0.1
  --lr 1e-3 --lr-warmup-iters 6 --lr-decay-style linear --lr-decay-iters 72 --min-lr 1e-4 --weight-decay 0.0 --adam-beta1 0.9 --adam-beta2 0.98
  --seed "$SEED" --rollout-seed "$SEED" --save-interval 1000
)
marked_more "$@"
begin_run "$ROOT/requirements.txt"
began=$(date +%s)
"$PY" -m claw_lab.tiny_models.swe.make_tasks "$TASKS" --seed "$SEED"
run_or_plan "$ROOT/slime/train_async.py" "${arguments[@]}"
"$PY" -m slime.agents.report "$RUN_DIR" --dataset heldout --plot "$RUN_DIR/curve.svg"
"$PY" -m slime.agents.report "$RUN_DIR" --dataset heldout --line --seconds "$(($(date +%s) - began))"
