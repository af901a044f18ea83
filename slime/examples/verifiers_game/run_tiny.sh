#!/usr/bin/env bash
# GRPO with a tiny model on a game of verifiers and the reward that verifiers gives, on a CPU: some ten minutes.
#   bash slime/examples/verifiers_game/run_tiny.sh            ends with one line of JSON
# verifiers 0.4 and TextArena (400 MB) are installed in a Python of their own, or VERIFIERS_PYTHON names one that has them.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
# shellcheck source=launch/launch.sh
source "$ROOT/launch/launch.sh"
HERE=$ROOT/slime/examples/verifiers_game

if is_dry_run; then die "DRY_RUN=$DRY_RUN: this example has no plan; verifiers makes its tasks, and the run installs verifiers"; fi

# check_all WORD...: refuses what cannot work before anything is installed; a model and tasks stand in for what is made later.
check_all() {
  local words=("$@")
  if [ -n "$MADE" ]; then words=("${words[@]/#"$MADE"/$ROOT/openclaw-test/tiny_claw/model}"); fi
  if [ -z "$MADE" ]; then refuse_if "$(model_problem "$MODEL_PATH" Qwen3-0.6B)"; fi
  refuse_if "$(folders_problem)" "$(RUN_DIR=$RUN_DIR/run run_problem)"
  [ -z "${VERIFIERS_PYTHON:-}" ] || command -v "$VERIFIERS_PYTHON" >/dev/null || die "VERIFIERS_PYTHON=$VERIFIERS_PYTHON cannot be run"
  whole PARALLEL_ENVS 1
  check_words "${words[@]/#"$RUN_DIR"\/tasks\/*/$ROOT/launch/gate_everyday.jsonl}"
}

SEED=${SEED:-1} NUM_ROLLOUT=${NUM_ROLLOUT:-32}
RUN_DIR=${RUN_DIR:-$ROOT/runs/verifiers_game-$(date +%Y%m%d-%H%M%S)}
absolute_places
MADE=$RUN_DIR/model
if [ -n "${MODEL_PATH:-}" ]; then MADE=''; fi
MODEL_PATH=${MODEL_PATH:-$MADE}
arguments=(
  --hf-checkpoint "$MODEL_PATH" --train-backend fsdp --backend embedded --run-dir "$RUN_DIR/run" --save "$RUN_DIR/run/checkpoints"
  --input-key prompt --metadata-key metadata
  --reward-key score --eval-reward-key score --advantage-estimator grpo
  --prompt-data "$RUN_DIR/tasks/train.jsonl" --rollout-shuffle --eval-prompt-data heldout "$RUN_DIR/tasks/heldout.jsonl"
  --eval-interval 8 --n-samples-per-eval-prompt 2
  --rollout-max-response-len 8 --rollout-max-context-len 1000
  --num-rollout "$NUM_ROLLOUT" --rollout-batch-size 8 --n-samples-per-prompt 16 --num-steps-per-rollout 1
  --disable-grpo-std-normalization --calculate-per-token-loss --eps-clip 0.2 --eps-clip-high 0.28
  --lr 4e-3 --lr-warmup-iters 3 --lr-decay-style linear --lr-decay-iters "$NUM_ROLLOUT" --min-lr 8e-4
  --weight-decay 0.0 --adam-beta1 0.9 --adam-beta2 0.98
  --seed "$SEED" --rollout-seed "$SEED" --save-interval "$NUM_ROLLOUT"
)
# shellcheck disable=SC2206  # an exported string, split into words on purpose; what comes last wins
arguments+=(${ROLLOUT_ARGS:-} "$@")
game=(--custom-generate-function-path "$HERE/game.py:generate") # its module asks for verifiers, which may not be there yet
check_all ${VERIFIERS_PYTHON:+"${game[@]}"} "${arguments[@]}"
ensure_env "$ROOT/requirements.txt"
if [ -z "${VERIFIERS_PYTHON:-}" ]; then
  folder=${XDG_CACHE_HOME:-$HOME/.cache}/openclaw-rl/verifiers-0.4.0
  [ -e "$folder/done" ] || { "$PY" -m venv "$folder" && "$folder/bin/pip" install -q 'verifiers[ta]==0.4.0' && touch "$folder/done"; }
  VERIFIERS_PYTHON=$folder/bin/python
fi
export VERIFIERS_PYTHON NLTK_DATA=$RUN_DIR/nltk
began=$(date +%s)
"$PY" -m claw_lab.tiny_models.verifiers_game words "$NLTK_DATA"
"$PY" -m slime.agents.foreign "$HERE/game.py:environments" --count 1500 --out "$RUN_DIR/rows.jsonl"
"$PY" -m claw_lab.tiny_models.verifiers_game split "$RUN_DIR/rows.jsonl" "$RUN_DIR/tasks"
[ -z "$MADE" ] || [ -e "$MADE/config.json" ] || "$PY" -m claw_lab.tiny_models.verifiers_game model "$RUN_DIR/rows.jsonl" "$MADE"
(run_driver "$RUN_DIR/run" "$ROOT/slime/train.py" "${game[@]}" "${arguments[@]}")
"$PY" -m claw_lab.tiny_models.verifiers_game result "$RUN_DIR/run" $(($(date +%s) - began))
