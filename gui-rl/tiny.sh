# shellcheck shell=bash
# Sourced by the scripts that train a tiny model on a CPU, behind launch.sh and flags.sh.
# shellcheck disable=SC2034  # the scripts use some of the variables

# tiny_begin MODEL KIND ARG...: answers --help from the head of the script; settles RUN_DIR, MODEL_PATH and SEED; makes tasks
# of a kind (python -m gui_rl.tiny.data) in RUN_DIR/data; the flags that the scripts share are then in the array TINY.
tiny_begin() {
  local model=$1 kind=$2 word
  shift 2
  for word in "$@"; do
    case $word in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;; esac
  done
  gui_environment
  word=$(basename "$0" .sh)
  RUN_DIR=${RUN_DIR:-$ROOT/runs/${word#run_}-$(date +%Y%m%d-%H%M%S)}
  MODEL_PATH=${MODEL_PATH:-$ROOT/gui-rl/$model}
  SEED=${SEED:-1}
  [ -f "$MODEL_PATH/config.json" ] || die "MODEL_PATH=$MODEL_PATH holds no config.json"
  export PARALLEL_ENVS=${PARALLEL_ENVS:-8}
  ensure_env "$ROOT/requirements.txt" "$ROOT/gui-rl/requirements-gui.txt"
  mkdir -p "$RUN_DIR"
  "$PY" -m gui_rl.tiny.data "$RUN_DIR/data" --kind "$kind" --seed "$SEED"
  TINY=(
    --hf-checkpoint "$MODEL_PATH" --train-backend fsdp --backend embedded --run-dir "$RUN_DIR"
    "${GUI[@]}" --prompt-data "$RUN_DIR/data/train.jsonl" --reward-key score
    --rollout-batch-size 12 --n-samples-per-prompt 8 --num-steps-per-rollout 4
    --disable-grpo-std-normalization --calculate-per-token-loss --eps-clip 0.2 --eps-clip-high 0.28 --clip-grad 0.3
    --lr-decay-style linear --min-lr 1e-4 --weight-decay 0.0 --adam-beta1 0.9 --adam-beta2 0.98
    --eval-prompt-data heldout "$RUN_DIR/data/heldout.jsonl" --n-samples-per-eval-prompt 2 --eval-temperature 1.0
    --save "$RUN_DIR/checkpoints" --save-interval 1000 --seed "$SEED" --rollout-seed "$SEED"
  )
}

# tiny_train FLAG...: trains, with the shared flags first; then the table, the plot and the JSON line.
tiny_train() {
  "$PY" -m slime.processes.supervisor --run-dir "$RUN_DIR" -- "$PY" "$ROOT/slime/train_async.py" "${TINY[@]}" "$@"
  "$PY" -m slime.agents.report "$RUN_DIR" --plot "$RUN_DIR/pass_at_1.svg"
  "$PY" -m slime.agents.report "$RUN_DIR" --line --seconds "$SECONDS"
}
