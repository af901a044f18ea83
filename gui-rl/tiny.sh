# shellcheck shell=bash
# Sourced by the scripts that train a tiny model on a CPU, behind launch.sh and flags.sh.

# tiny_begin MODEL KIND ARG...: answers --help from the head of the script; settles RUN_DIR, MODEL_PATH, SEED and the KIND of
# tasks (bash lab/run.sh tiny_models.gui.data); what the scripts share is then in the array `arguments`.
tiny_begin() {
  local model=$1 kind=$2 word
  shift 2
  for word in "$@"; do
    case $word in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;; esac
  done
  gui_environment
  word=$(basename "$0" .sh)
  run_places "${word#run_}" "$@"
  MODEL_PATH=${MODEL_PATH:-$ROOT/gui-rl/$model}
  SEED=${SEED:-1}
  default PARALLEL_ENVS 8
  KIND=$kind
  arguments=(
    ::script --hf-checkpoint "$MODEL_PATH" --train-backend fsdp --backend embedded --run-dir "$RUN_DIR"
    "${GUI[@]}" --prompt-data "$TASKS/train.jsonl" --reward-key score
    --rollout-batch-size 12 --n-samples-per-prompt 8
    --disable-grpo-std-normalization --calculate-per-token-loss --eps-clip 0.2 --eps-clip-high 0.28 --clip-grad 0.3
    --lr-decay-style linear --min-lr 1e-4 --weight-decay 0.0 --adam-beta1 0.9 --adam-beta2 0.98
    --eval-prompt-data heldout "$TASKS/heldout.jsonl" --n-samples-per-eval-prompt 2 --eval-temperature 1.0
    --save "$RUN_DIR/checkpoints" --save-interval 1000 --seed "$SEED" --rollout-seed "$SEED"
  )
}

# tiny_train ARG...: makes tasks in TASKS and trains with `arguments` and those of the command line; then the table, the plot and the JSON line.
tiny_train() {
  marked_more "$@"
  begin_run "$ROOT/requirements.txt" "$ROOT/gui-rl/requirements-gui.txt"
  "$PY" -m claw_lab.tiny_models.gui.data "$TASKS" --kind "$KIND" --seed "$SEED"
  run_or_plan "$ROOT/slime/train_async.py" "${arguments[@]}"
  "$PY" -m slime.agents.report "$RUN_DIR" --plot "$RUN_DIR/pass_at_1.svg"
  "$PY" -m slime.agents.report "$RUN_DIR" --line --seconds "$SECONDS"
}
