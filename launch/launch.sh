# shellcheck shell=bash
# Sourced by every launch script after ROOT is set. Gives it the environment, the checks before anything starts, and
# run_driver, which starts the supervisor that stops exactly what it started.

# shellcheck source-path=SCRIPTDIR source=env.sh
source "$ROOT/launch/env.sh"

# Variables with a second name, as openclaw/settings.py and openclaw/judge/settings.py declare them; the first wins.
ALIASES=(HOST:OPENCLAW_HOST PORT:OPENCLAW_PORT MODEL_PATH:BASE_MODEL_PATH PRM_M:MAJORITY_VOTE_N)

take_aliases() {
  local pair name other
  for pair in "${ALIASES[@]}"; do
    name=${pair%%:*} other=${pair#*:}
    if [ -z "${!name:-}" ] && [ -n "${!other:-}" ]; then
      printf -v "$name" '%s' "${!other}"
      export "${name?}"
    fi
  done
}
take_aliases

# buffer_flags: where the rollout buffer is, in the array BUFFER: RL_BUFFER_URL, RL_BUFFER_DIR, or a folder of the run.
buffer_flags() {
  BUFFER=()
  if [ -n "${RL_BUFFER_URL:-}" ]; then BUFFER+=(--rl-buffer-url "$RL_BUFFER_URL"); fi
  if [ -n "${RL_BUFFER_DIR:-}" ]; then BUFFER+=(--rl-buffer-dir "$RL_BUFFER_DIR"); fi
  if [ ${#BUFFER[@]} = 0 ]; then BUFFER=(--rl-buffer-dir "$RUN_DIR/buffer"); fi
}

# check_port_number NUMBER [VARIABLE]: refuses what is no port.
check_port_number() {
  local wrong="${2:-PORT}=$1 is not a port; give a number from 1 to 65535"
  case $1 in '' | *[!0-9]* | ??????* | 0*) die "$wrong" ;; esac
  [ "$1" -le 65535 ] || die "$wrong"
}

# run_problem [HOST PORT]: prints why no run can start in RUN_DIR, or why its gateway could not listen: a gateway of this very
# run may.
# shellcheck disable=SC2120  # tracks give no address
run_problem() { run_module claw_base.run_folder.start_check "$RUN_DIR" "$@" || [ $? -lt 128 ]; } # above: a signal ended it

# run_module MODULE ARG...: a program of the repository that needs no package. Ctrl-C ends it without a word.
run_module() {
  local python
  python=$(any_python)
  (set_python_path && exec "$python" -c 'import signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
del sys.argv[0]
import runpy
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)' "$@")
}

# any_python: one that runs what needs no package.
any_python() {
  local python=${VENV:-$ROOT/.venv}/bin/python
  if [ -x "$python" ]; then echo "$python"; else find_python; fi
}

# check_words WORD...: refuses words of the driver and variables that a start on MACHINES would refuse, before anything is
# installed or made; warns of variables that seem misspelt.
MACHINES=()
check_words() {
  local plan=()
  if is_dry_run; then plan=(--dry-run); fi
  check_first slime.plan.words ${plan[@]+"${plan[@]}"} ${MACHINES[@]+"${MACHINES[@]}"} --shell "${KNOWN_SHELL[@]}" -- "$@"
}

# check_first MODULE ARG...: a program of the repository that refuses with status 2; ends the script if it does.
check_first() {
  local status=0
  any_python >/dev/null || exit 2
  run_module "$@" || status=$?
  case $status in
    2 | 130 | 143) exit "$status" ;;
    10) exit 0 ;; # --help-all
  esac
}

# Scripts whose variables are known, to find misspelt ones: what launch scripts share, the one that runs, its folder's flags.
KNOWN_SHELL=("$ROOT/launch" "$0" "$(dirname "$0")/flags.sh")

# refuse_if PROBLEM...: ends with the first that is not empty.
refuse_if() {
  local problem
  for problem in "$@"; do
    [ -z "$problem" ] || die "$problem"
  done
}

# model_problem FOLDER EXAMPLE: prints what is wrong with the folder of the model.
model_problem() {
  [ ! -f "$1/config.json" ] || return 0
  echo "MODEL_PATH=$1 contains no config.json; give the folder of a Hugging Face model (MODEL_PATH or HF_CKPT)," \
    "for example from: hf download Qwen/$2 --local-dir $ROOT/models/$2"
}

# data_path_problem: prints that the conversations to begin with are not there.
data_path_problem() {
  [ -z "${DATA_PATH:-}" ] || [ -e "$DATA_PATH" ] || echo "DATA_PATH=$DATA_PATH does not exist: give a file of conversations, or unset it"
}

# folders_problem: prints why a folder that a start writes to cannot be.
folders_problem() {
  local name
  for name in RUN_DIR SAVE_CKPT CKPT_SAVE_DIR RL_BUFFER_DIR; do
    if [ -n "${!name:-}" ]; then folder_problem "$name" "${!name}"; fi
  done
}

# whole NAME LEAST [OF]: refuses a variable that is set to something else than a whole number (" of seconds") of LEAST or more.
whole() {
  local value=${!1:-$2}
  case $value in
    *[!0-9]* | 0?* | ????????*) die "$1=$value: give a whole number${3:-}, $2 to 9999999, without leading zeros" ;;
  esac
  [ "$value" -ge "$2" ] || die "$1=$value: give $2 or more"
}

# default NAME VALUE: exports NAME, with VALUE where it is not set.
DEFAULTED=' '
default() {
  [ -n "${!1:-}" ] || DEFAULTED+="$1 "
  printf -v "$1" '%s' "${!1:-$2}"
  export "${1?}"
}

# is_dry_run: a value that is neither yes nor no never starts anything.
is_dry_run() {
  local status=0
  [ "${DRY_RUN:-}" != full ] || return 0
  is_yes "${DRY_RUN:-}" || status=$?
  [ "$status" != 2 ] || die "DRY_RUN=$DRY_RUN: give 1 for the plan, full for the plan and every default, 0 to start"
  return "$status"
}

# is_yes WORD: 0 for yes, 1 for no or empty, 2 for anything else.
is_yes() {
  case $1 in
    1 | true | yes | on) return 0 ;;
    '' | 0 | false | no | off) return 1 ;;
    *) return 2 ;;
  esac
}

# What a language model answers before an update goes live: 48 questions, of which seven may be lost, 65 explicit wishes,
# of which a tenth of what the best version obeyed may be, and 16 of the facts of a pool that it knew.
# shellcheck disable=SC2034  # read by tiny.sh and gpu.sh
EVERYDAY_GATE=(--gate-data "$ROOT/launch/gate_everyday.jsonl" --gate-facts "$ROOT/launch/gate_facts.jsonl"
  --gate-max-wrong 0.15 --gate-min-obeyed 0.9 --gate-answer-tokens 120)

# The learning rate of a language model follows the KL of its updates, and is lower for a batch of few conversations.
# shellcheck disable=SC2034  # read by tiny.sh and gpu.sh
STEADY_RATE=(--gate-adapt-lr --lr-batch-reference 16)

# plan_python: PY for a plan, which needs no more than what an environment has; a fresh clone gets one.
plan_python() {
  PY=${VENV:-$ROOT/.venv}/bin/python
  [ -x "$PY" ] || PY=$(find_python)
  set_python_path
  plans "$PY" || ensure_env "$ROOT/requirements.txt"
}

# plan_python_for WORD...: the same. A fresh clone checks the words before it installs; a plan with an environment checks them
# itself.
plan_python_for() {
  plans "$(any_python)" || check_words "$@"
  plan_python
}

# plans PYTHON: whether it has what a plan needs.
plans() {
  [ -x "$1" ] && "$1" -c 'import sys; from importlib.util import find_spec
sys.exit(not all(map(find_spec, ("fastapi", "sqlalchemy", "torch"))))'
}

# show_plan OPTION... -- WORD...: what the words of the driver would start. Words are marked with their source (::script,
# ::variable NAME, ::command line): a plan shows it, a run drops the marks.
show_plan() {
  local all=()
  if [ "$DRY_RUN" = full ]; then all=(--all); fi
  "$PY" -m slime.plan.dry_run ${all[@]+"${all[@]}"} ${MACHINES[@]+"${MACHINES[@]}"} --script-variables "$DEFAULTED" --shell "${KNOWN_SHELL[@]}" "$@"
}

# mark_of VARIABLE: what follows is from there, or from the script where the variable was not set.
mark_of() {
  case $DEFAULTED in *" $1 "*) echo ::script ;; *) echo "::variable $1" ;; esac
}

# marked_more "$@": adds to `arguments` what ROLLOUT_ARGS and its like hold, and the command line; what comes last wins.
marked_more() {
  local name
  for name in CKPT_ARGS ROLLOUT_ARGS OPTIMIZER_ARGS LORA_ARGS; do
    # shellcheck disable=SC2206  # exported strings, split into words on purpose
    if [ -n "${!name:-}" ]; then arguments+=("::variable $name" ${!name}); fi
  done
  arguments+=("::command line" "$@")
}

# Flags that decide what a script checks, makes and counts, each with the variable of the same meaning.
NAMED=(--hf-checkpoint:MODEL_PATH --run-dir:RUN_DIR --save:SAVE_CKPT --host:HOST --port:PORT)

# named_by_flags WORD...: the variable of each of these flags gets the flag's value, unless lists of GPUs give the counts.
named_by_flags() {
  local word before='' pair
  for word in "$@"; do
    for pair in "${NAMED[@]}"; do
      case ${TRAIN_GPUS:+$pair} in *_GPUS) continue ;; esac
      case ${pair%:*} in
        "$before") printf -v "${pair#*:}" '%s' "$word" ;;
        "${word%%=*}") [ "$word" = "${word%%=*}" ] || printf -v "${pair#*:}" '%s' "${word#*=}" ;;
      esac
    done
    before=$word
  done
}

# absolute_places: RUN_DIR from the root of the file system, since other processes have other working folders.
absolute_places() {
  case $RUN_DIR in
    /*) ;;
    \~ | \~/*) RUN_DIR=$HOME${RUN_DIR#\~} ;;
    *) RUN_DIR=$PWD/$RUN_DIR ;;
  esac
}

# run_places NAME WORD...: RUN_DIR below runs/ unless it is given, and TASKS in it for what the script makes before a run. With
# DRY_RUN=1 TASKS is elsewhere and goes with the script, and the run's folder is left alone.
run_places() {
  local name=$1
  shift
  # shellcheck disable=SC2086  # exported strings, split into words on purpose
  named_by_flags ${CKPT_ARGS:-} ${ROLLOUT_ARGS:-} ${OPTIMIZER_ARGS:-} ${LORA_ARGS:-} "$@"
  RUN_DIR=${RUN_DIR:-$ROOT/runs/$name-$(date +%Y%m%d-%H%M%S)}
  absolute_places
  TASKS=$RUN_DIR/tasks
  refuse_if "$(folders_problem)"
  if ! is_dry_run; then return; fi
  TASKS=$(mktemp -d)
  trap 'rm -rf -- "$TASKS"' EXIT
}

# begin_run REQUIREMENTS...: checks the words in `arguments`, with others in place of the tasks that are not made yet; then
# installs, and makes the run's folder.
begin_run() {
  local words
  refuse_if "$(model_problem "$MODEL_PATH" Qwen3-0.6B)"
  check_words "${arguments[@]/#"$TASKS"\/*/$ROOT/launch/gate_everyday.jsonl}"
  # shellcheck disable=SC2119  # no gateway
  refuse_if "$(run_problem)"
  ensure_run_env "$@"
  if is_dry_run; then return; fi
  without_marks "${arguments[@]}"
  ensure_for "${words[@]}"
  own_run_dir "$RUN_DIR"
}

# own_run_dir DIR: makes it for this user alone.
own_run_dir() {
  refuse_if "$(folder_problem RUN_DIR "$1")"
  (umask 077 && mkdir -p "$1")
}

# folder_problem NAME DIR: prints why DIR cannot be a folder of a start, by making it; what was not there before is removed.
# A RUN_DIR of another user but root is refused, who could put links there. Who owns a file is asked of one that is made now: some
# file systems give all files one owner.
folder_problem() {
  local new=() top=$2 probe problem=''
  while [ ! -e "$top" ] && [ ! -L "$top" ]; do
    new+=("$top")
    top=$(dirname -- "$top")
  done
  if ! probe=$( (umask 077 && mkdir -p -- "$2") 2>&1); then
    problem="cannot be made (${probe##*: }): give a folder that this user can write to"
  elif ! probe=$(mktemp -- "$2/.owner.XXXXXX" 2>/dev/null); then
    problem="cannot be written: give a folder that this user can write to"
  else
    case $1:$(owner_of "$2") in
      RUN_DIR:0 | RUN_DIR:"$(owner_of "$probe")") ;;
      RUN_DIR:*) problem="belongs to another user, who could change what is written there: choose another, or change its owner (chown)" ;;
    esac
    rm -f "$probe"
  fi
  if [ ${#new[@]} != 0 ]; then rmdir -- "${new[@]}" 2>/dev/null || :; fi
  [ -z "$problem" ] || echo "$1=$2 $problem"
}

owner_of() { stat -c %u "$1" 2>/dev/null || stat -f %u "$1"; }

# show_missing TITLE PROBLEM...: those that are not empty, below the title; its status is 1 if there is one.
show_missing() {
  local title=$1 problem status=0
  shift
  for problem in "$@"; do
    [ -n "$problem" ] || continue
    [ "$status" != 0 ] || printf '\n%s\n' "$title"
    printf '  %s\n' "$problem"
    status=1
  done
  return "$status"
}
# shellcheck disable=SC2034  # read by tiny.sh and gpu.sh
REFUSED_HERE='problem  a start on this machine is refused'

# ensure_run_env REQUIREMENTS...: ensure_env, or with DRY_RUN=1 what a plan needs.
ensure_run_env() {
  if is_dry_run; then plan_python; else ensure_env "$@"; fi
}

# run_or_plan DRIVER WORD...: runs the driver to its end; with DRY_RUN=1 shows the plan of the words and ends the script.
run_or_plan() {
  local driver=$1 words text status=0
  shift
  if is_dry_run; then
    text=$(show_plan -- "$@") || status=$?
    [ -z "$text" ] || printf '%s\n' "${text//$TASKS/$RUN_DIR/tasks}"
    exit "$status"
  fi
  without_marks "$@"
  passing_signals run_driver "$RUN_DIR" "$driver" "${words[@]}"
}

# passing_signals COMMAND...: runs it as a child of this script, which passes TERM, INT and HUP on to it; returns its status.
passing_signals() {
  local pid status=0
  ("$@") &
  pid=$!
  trap 'kill -TERM "$pid" 2>/dev/null || :' TERM INT HUP
  while wait "$pid" || status=$?; kill -0 "$pid" 2>/dev/null; do status=0; done # a signal ends the wait, not the command
  trap - TERM INT HUP
  return "$status"
}

# without_marks WORD...: the words that are for the driver, in `words`.
without_marks() {
  local word
  words=()
  for word in "$@"; do
    case $word in ::script | '::command line' | '::variable '*) ;; *) words+=("$word") ;; esac
  done
}

# run_driver RUN_DIR DRIVER ARG...: runs until the driver is done or Ctrl-C; the driver is restarted if it dies.
run_driver() {
  local run_dir=$1
  shift
  exec "$PY" -m slime.processes.supervisor --run-dir "$run_dir" -- "$PY" "$@"
}

# run_driver_beside RUN_DIR DRIVER ARG...: the same in parallel with the command in the array CLIENT, which receives the supervisor's
# pid as its last argument; when the client or this script ends, all is stopped.
run_driver_beside() {
  local run_dir=$1 status=0
  shift
  CLIENT_PID='' SUPERVISOR=''
  trap 'stop_both' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  install -m 600 /dev/null "$run_dir/driver.out"
  "$PY" -m slime.processes.supervisor --run-dir "$run_dir" --parent $$ -- "$PY" "$@" >"$run_dir/driver.out" 2>&1 &
  SUPERVISOR=$!
  "${CLIENT[@]}" "$SUPERVISOR" &
  CLIENT_PID=$!
  wait "$CLIENT_PID" || status=$?
  return "$status"
}

stop_both() {
  local pid
  for pid in $CLIENT_PID $SUPERVISOR; do
    kill -TERM "$pid" 2>/dev/null || :
    wait "$pid" 2>/dev/null || :
  done
  leave_nothing_empty
}

# leave_nothing_empty: a run that was refused before it began (the driver writes arguments.json first) leaves no folder.
leave_nothing_empty() {
  [ -n "${NEW_RUN:-}" ] && [ -d "$NEW_RUN" ] && [ ! -e "$NEW_RUN/arguments.json" ] || return 0
  rm -f "$NEW_RUN/driver.out" "$NEW_RUN/supervisor.lock"
  rmdir "$NEW_RUN" 2>/dev/null || :
}
