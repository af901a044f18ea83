#!/usr/bin/env bash
# An agent at a screen on a laptop: GRPO of a tiny model on the accessibility tree of small pages in a real Chromium.
#   bash gui-rl/run_tiny_gui_rl.sh             ends with a table, a plot and one JSON line
#   DRY_RUN=1 bash gui-rl/run_tiny_gui_rl.sh   the plan and every argument; starts nothing
# Needs Chromium (Debian: apt-get install chromium). Any flag goes to the driver: python slime/train_async.py --help.
# Variables: RUN_DIR, MODEL_PATH, PARALLEL_ENVS, MAX_STEPS, SEED, and the strings CKPT_ARGS ROLLOUT_ARGS OPTIMIZER_ARGS.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/launch.sh
source "$ROOT/launch/launch.sh"
# shellcheck source=flags.sh
source "$ROOT/gui-rl/flags.sh"

for word in "$@"; do
  case $word in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;; esac
done
gui_environment
run_places tiny_gui_rl
MODEL_PATH=${MODEL_PATH:-$ROOT/gui-rl/tiny_model}
SEED=${SEED:-1}
[ -f "$MODEL_PATH/config.json" ] || die "MODEL_PATH=$MODEL_PATH holds no config.json"
default PARALLEL_ENVS 8
default MAX_STEPS 3
ensure_run_env "$ROOT/requirements.txt" "$ROOT/gui-rl/requirements-gui.txt"
"$PY" -m gui_rl.tiny.data "$TASKS" --seed "$SEED"

arguments=(
  ::script --hf-checkpoint "$MODEL_PATH" --train-backend fsdp --backend embedded --run-dir "$RUN_DIR"
  "${GUI[@]}" --prompt-data "$TASKS/train.jsonl" --reward-key score
  --gui-coordinate-type tags --gui-screen-width 800 --gui-screen-height 600
  --rollout-max-context-len 240 --rollout-max-response-len 32
  --num-rollout 17 --rollout-batch-size 12 --n-samples-per-prompt 8 --num-steps-per-rollout 4
  --disable-grpo-std-normalization --calculate-per-token-loss --eps-clip 0.2 --eps-clip-high 0.28 --clip-grad 0.3
  --lr 5e-4 --lr-decay-style linear --lr-decay-iters 80 --min-lr 1e-4 --weight-decay 0.0 --adam-beta1 0.9 --adam-beta2 0.98
  --eval-interval 17 --eval-prompt-data heldout "$TASKS/heldout.jsonl" --n-samples-per-eval-prompt 2 --eval-temperature 1.0
  --save "$RUN_DIR/checkpoints" --save-interval 1000 --seed "$SEED" --rollout-seed "$SEED"
)
marked_more "$@"
run_or_plan "$ROOT/slime/train_async.py" "${arguments[@]}"
"$PY" -m slime.agents.report "$RUN_DIR" --plot "$RUN_DIR/pass_at_1.svg"
"$PY" -m slime.agents.report "$RUN_DIR" --line --seconds "$SECONDS"
