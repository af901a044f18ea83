#!/usr/bin/env bash
# A shell agent on a laptop: GRPO of a tiny model on small chores in real sandboxes.
#   bash terminal-rl/run_tiny_terminal_rl.sh             ends with a table, a plot and one JSON line
#   DRY_RUN=1 bash terminal-rl/run_tiny_terminal_rl.sh   the plan and every argument; starts nothing
# Needs bubblewrap (Debian: apt-get install bubblewrap). Any flag goes to the driver: python slime/train_async.py --help.
# Variables: RUN_DIR, MODEL_PATH, PARALLEL_ENVS, MAX_STEPS, SEED, and the strings CKPT_ARGS ROLLOUT_ARGS OPTIMIZER_ARGS LORA_ARGS.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/launch.sh
source "$ROOT/launch/launch.sh"

for word in "$@"; do
  case $word in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;; esac
done
case ${ENV_TYPE:-terminal} in terminal) ;; *) die "ENV_TYPE=$ENV_TYPE: this script trains in terminals" ;; esac
run_places tiny_terminal_rl "$@"
MODEL_PATH=${MODEL_PATH:-${HF_CKPT:-$ROOT/terminal-rl/tiny_model}}
SEED=${SEED:-1}
default PARALLEL_ENVS 32
default MAX_STEPS 4
arguments=(
  ::script --hf-checkpoint "$MODEL_PATH" --train-backend fsdp --backend embedded --run-dir "$RUN_DIR"
  --prompt-data "$TASKS/train.jsonl" --input-key task --metadata-key metadata --rollout-shuffle
  --custom-generate-function-path terminal_rl.generate.generate --service-path terminal_rl.generate.start --no-terminal-system-prompt --reward-key score
  --rollout-max-context-len 240 --rollout-max-response-len 32
  --num-rollout 50 --rollout-batch-size 24 --n-samples-per-prompt 8 --num-steps-per-rollout 1
  --disable-grpo-std-normalization --calculate-per-token-loss --eps-clip 0.2 --eps-clip-high 0.28
  --lr 1e-3 --lr-warmup-iters 4 --lr-decay-style linear --lr-decay-iters 50 --min-lr 1e-4 --weight-decay 0.0 --adam-beta1 0.9 --adam-beta2 0.98
  --eval-interval 10 --eval-prompt-data heldout "$TASKS/heldout.jsonl" --eval-reward-key acc
  --n-samples-per-eval-prompt 4 --eval-temperature 1.0
  --save "$RUN_DIR/checkpoints" --save-interval 1000 --seed "$SEED" --rollout-seed "$SEED"
)
marked_more "$@"
begin_run "$ROOT/requirements.txt"
"$PY" -m claw_lab.tiny_models.terminal.data "$TASKS" --seed "$SEED"
run_or_plan "$ROOT/slime/train_async.py" "${arguments[@]}"
"$PY" -m slime.agents.report "$RUN_DIR" --plot "$RUN_DIR/pass_at_1.svg"
"$PY" -m slime.agents.report "$RUN_DIR" --line --seconds "$SECONDS"
