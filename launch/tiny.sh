# shellcheck shell=bash
# Sourced by the run_tiny_*.sh scripts after ROOT is set: runs of a tiny model on the CPU, for all methods.
# A script sets these variables, then calls run_tiny "$@":
#   RUN_NAME       folder of the run below runs/
#   METHOD         flags of the method: hooks, loss, judge; they come after the shared ones, so they win
#   USAGE          the script's own first comment lines, for --help
#   PREPARE        optional function that creates the model; it runs after all checks and installations
#   PREPARE_JUDGE  optional function that installs models of the judge; it runs then too

# shellcheck source-path=SCRIPTDIR source=launch.sh
source "$ROOT/launch/launch.sh"

run_tiny() {
  local demo=0 talker=() flags=()
  while [ $# -gt 0 ]; do
    case $1 in
      --demo) demo=1 ;;
      --person) [ $# -gt 1 ] || die "--person needs a name: student, TA, teacher or dasher"; talker=(--person "$2"); shift ;;
      --person=*) talker=("$1") ;;
      -h | --help) sed -n '2,/^[^#]/s/^# //p' "$USAGE"; return ;;
      *) flags+=("$1") ;;
    esac
    shift
  done
  [ "$demo" = 1 ] || [ ${#talker[@]} = 0 ] || die "--person selects the demo's user: give --demo too"
  # shellcheck disable=SC2086  # exported strings, split into words on purpose
  named_by_flags ${CKPT_ARGS:-} ${ROLLOUT_ARGS:-} ${OPTIMIZER_ARGS:-} ${LORA_ARGS:-} ${flags[@]+"${flags[@]}"}
  tiny_places "$demo"
  local arguments words
  tiny_arguments
  arguments+=("${METHOD[@]}")
  marked_more ${flags[@]+"${flags[@]}"}
  if is_dry_run; then
    tiny_dry_run
    return
  fi
  tiny_prepare
  without_marks "${arguments[@]}"
  ensure_for "${words[@]}"
  if [ -n "${DATA_PATH:-}" ]; then
    "$PY" -m openclaw.store import "$DATA_PATH" --model-path "$MODEL_PATH" "${BUFFER[@]}"
  fi
  if [ "$demo" = 1 ]; then
    # shellcheck disable=SC2034  # read by run_driver_beside
    CLIENT=("$PY" "$ROOT/openclaw-test/openclaw_test/loop/demo.py" --url "$(local_url "$HOST" "$PORT")" --log "$RUN_DIR/driver.out"
      ${talker[@]+"${talker[@]}"} --pid)
    run_driver_beside "$RUN_DIR" "$ROOT/slime/train_async.py" "${words[@]}"
  else
    run_driver "$RUN_DIR" "$ROOT/slime/train_async.py" "${words[@]}"
  fi
}

# tiny_dry_run: prints the plan of `arguments`, and the reasons for which a start here would be rejected.
tiny_dry_run() {
  local status=0
  plan_python_for "${arguments[@]}"
  show_plan -- "${arguments[@]}" || status=$?
  [ "$status" != 2 ] || return 2
  show_missing "$REFUSED_HERE" "$(tiny_model_problem)" "$(data_path_problem)" "$(folders_problem)" "$(run_problem "$HOST" "$PORT")" || status=1
  return "$status"
}

# tiny_prepare: exits if the run cannot start here; then installs, calls PREPARE and PREPARE_JUDGE, and creates RUN_DIR.
tiny_prepare() {
  refuse_if "$(tiny_model_problem)" "$(data_path_problem)" "$(folders_problem)" "$(run_problem "$HOST" "$PORT")"
  check_words "${arguments[@]}"
  ensure_env "$ROOT/requirements.txt"
  ${PREPARE:-:}
  ${PREPARE_JUDGE:-:}
  # shellcheck disable=SC2034  # read by leave_nothing_empty
  [ -e "$RUN_DIR" ] || NEW_RUN=$RUN_DIR
  own_run_dir "$RUN_DIR" # conversations and weights: readable by this user only
}

# tiny_model_problem: as model_problem, unless the script itself creates the model.
tiny_model_problem() { [ -n "${PREPARE:-}" ] || model_problem "$MODEL_PATH" Qwen3-0.6B; }

# tiny_places DEMO: sets HOST, PORT, MODEL_PATH and RUN_DIR.
tiny_places() {
  local name
  for name in HOST PORT MODEL_PATH SERVED_MODEL_NAME JUDGE_BACKEND; do
    [ -n "${!name:-}" ] || DEFAULTED+="$name "
  done
  HOST=${HOST:-127.0.0.1}
  PORT=${PORT:-30000}
  check_port_number "$PORT"
  MODEL_PATH=${MODEL_PATH:-${HF_CKPT:-$ROOT/openclaw-test/tiny_claw/model}}
  if [ "$1" = 1 ]; then
    RUN_DIR=${RUN_DIR:-$ROOT/runs/demo-$(date +%Y%m%d-%H%M%S)}
  else
    RUN_DIR=${RUN_DIR:-$ROOT/runs/$RUN_NAME}
  fi
  absolute_places
  # shellcheck disable=SC2034  # read by tiny_arguments
  if [ -d "$MODEL_PATH" ]; then SERVED_AS=$(cd "$MODEL_PATH" && basename "$PWD"); else SERVED_AS=$(basename "$MODEL_PATH"); fi
  [ "$MODEL_PATH" != "$ROOT/openclaw-test/tiny_claw/model" ] || SERVED_AS=tiny-claw
}

# tiny_arguments: sets `arguments` to those of all methods.
tiny_arguments() {
  buffer_flags
  arguments=(
    "$(mark_of MODEL_PATH)" --hf-checkpoint "$MODEL_PATH" ::script --train-backend fsdp --backend embedded
    --run-dir "$RUN_DIR" --save "${SAVE_CKPT:-${CKPT_SAVE_DIR:-$RUN_DIR/checkpoints}}" --save-interval 1
    --disable-rollout-global-dataset --service-path openclaw.trainer_hooks.services.start
    --rollout-batch-size 4 --catch-up-batch-size 16 --reward-key score
    "${BUFFER[@]}" --batch-timeout 30
    --keep-versions 10
    --gate --on-weights-rejected-path openclaw.trainer_hooks.rejection.on_weights_rejected
    --gate-samples-path openclaw.trainer_hooks.gate_samples.gate_samples
    "$(mark_of HOST)" --host "$HOST" "$(mark_of PORT)" --port "$PORT"
    "$(mark_of SERVED_MODEL_NAME)" --served-model-name "${SERVED_MODEL_NAME:-$SERVED_AS}"
    "$(mark_of JUDGE_BACKEND)" --judge-backend "${JUDGE_BACKEND:-rules}" ::script --num-judge-workers 1
    --eps-clip 0.2 --eps-clip-high 0.28
    --lr 5e-4 --weight-decay 0.0 --adam-beta1 0.9 --adam-beta2 0.98
  )
  if [ "$MODEL_PATH" = "$ROOT/openclaw-test/tiny_claw/model" ]; then
    # Gate of this model: arithmetic, of which one of 192 questions may be lost, and explicit requests that it understands.
    arguments+=(--gate-data "$ROOT/openclaw-test/tiny_claw/gate.jsonl" --gate-max-wrong 0.008)
    arguments+=(--anchor-wishes "$ROOT/openclaw-test/tiny_claw/wishes.txt")
  else
    arguments+=("${EVERYDAY_GATE[@]}" "${STEADY_RATE[@]}")
  fi
}

local_url() {
  case $1 in 0.0.0.0 | ::) echo "http://127.0.0.1:$2" ;; *:*) echo "http://[$1]:$2" ;; *) echo "http://$1:$2" ;; esac
}
