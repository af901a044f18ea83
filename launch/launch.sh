# shellcheck shell=bash
# Sourced by every launch script after ROOT is set. Provides the environment, checks before a start, and run_driver, which
# starts a supervisor that stops only the processes that it has started.

# shellcheck source-path=SCRIPTDIR source=env.sh
source "$ROOT/launch/env.sh"

# Variables with a second name, as declared in openclaw/settings.py and openclaw/judge/settings.py; the first name wins.
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

# buffer_flags: sets the array BUFFER to the flags of the rollout buffer: RL_BUFFER_URL, RL_BUFFER_DIR, or a folder of the run.
buffer_flags() {
  BUFFER=()
  if [ -n "${RL_BUFFER_URL:-}" ]; then BUFFER+=(--rl-buffer-url "$RL_BUFFER_URL"); fi
  if [ -n "${RL_BUFFER_DIR:-}" ]; then BUFFER+=(--rl-buffer-dir "$RL_BUFFER_DIR"); fi
  if [ ${#BUFFER[@]} = 0 ]; then BUFFER=(--rl-buffer-dir "$RUN_DIR/buffer"); fi
}

# check_port_number NUMBER [VARIABLE]: exits unless NUMBER is a port.
check_port_number() {
  local wrong="${2:-PORT}=$1 is not a port; give a number from 1 to 65535"
  case $1 in '' | *[!0-9]* | ??????* | 0*) die "$wrong" ;; esac
  [ "$1" -le 65535 ] || die "$wrong"
}

# run_problem [HOST PORT]: prints the reason if no run can start in RUN_DIR, or if its gateway cannot listen at HOST:PORT. The
# port may be used by a gateway of this run.
# shellcheck disable=SC2120  # tracks give no address
run_problem() { run_module claw_base.run_folder.start_check "$RUN_DIR" "$@" || [ $? -lt 128 ]; } # above: a signal ended it

# run_module MODULE ARG...: runs a program of the repository that needs no packages. Ctrl-C ends it without a message.
run_module() {
  local python
  python=$(any_python)
  (set_python_path && exec "$python" -c 'import signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
del sys.argv[0]
import runpy
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)' "$@")
}

# any_python: prints a Python for programs that need no packages.
any_python() {
  local python=${VENV:-$ROOT/.venv}/bin/python
  if [ -x "$python" ]; then echo "$python"; else find_python; fi
}

# check_words WORD...: exits if a start on MACHINES would reject these driver arguments or the variables, before anything is
# installed or created; warns about variables that seem misspelt.
MACHINES=()
check_words() {
  local plan=()
  if is_dry_run; then plan=(--dry-run); fi
  check_first slime.plan.words ${plan[@]+"${plan[@]}"} ${MACHINES[@]+"${MACHINES[@]}"} --shell "${KNOWN_SHELL[@]}" -- "$@"
}

# check_first MODULE ARG...: runs a checking program of the repository; exits if it rejects its arguments with status 2.
check_first() {
  local status=0
  any_python >/dev/null || exit 2
  run_module "$@" || status=$?
  case $status in
    2 | 130 | 143) exit "$status" ;;
    10) exit 0 ;; # --help-all
  esac
}

# Scripts whose variables are known, to detect misspelt ones: shared scripts, the running script, flags of its folder.
KNOWN_SHELL=("$ROOT/launch" "$0" "$(dirname "$0")/flags.sh")

# refuse_if PROBLEM...: exits with the first problem that is not empty.
refuse_if() {
  local problem
  for problem in "$@"; do
    [ -z "$problem" ] || die "$problem"
  done
}

# model_problem FOLDER EXAMPLE: prints the problem of the model's folder, if any.
model_problem() {
  [ ! -f "$1/config.json" ] || return 0
  echo "MODEL_PATH=$1 contains no config.json; give the folder of a Hugging Face model (MODEL_PATH or HF_CKPT)," \
    "for example from: hf download Qwen/$2 --local-dir $ROOT/models/$2"
}

# data_path_problem: prints a message if the initial conversations (DATA_PATH) do not exist.
data_path_problem() {
  [ -z "${DATA_PATH:-}" ] || [ -e "$DATA_PATH" ] || echo "DATA_PATH=$DATA_PATH does not exist: give a file of conversations, or unset it"
}

# folders_problem: prints the reason if a folder that a start writes to cannot be created.
folders_problem() {
  local name
  for name in RUN_DIR SAVE_CKPT CKPT_SAVE_DIR RL_BUFFER_DIR; do
    if [ -n "${!name:-}" ]; then folder_problem "$name" "${!name}"; fi
  done
}

# whole NAME LEAST [OF]: exits if a variable is set, but is not a whole number (of OF, such as " of seconds") of LEAST or more.
whole() {
  local value=${!1:-$2}
  case $value in
    *[!0-9]* | 0?* | ????????*) die "$1=$value: give a whole number${3:-}, $2 to 9999999, without leading zeros" ;;
  esac
  [ "$value" -ge "$2" ] || die "$1=$value: give $2 or more"
}

# default NAME VALUE: exports NAME, set to VALUE if it is unset.
DEFAULTED=' '
default() {
  [ -n "${!1:-}" ] || DEFAULTED+="$1 "
  printf -v "$1" '%s' "${!1:-$2}"
  export "${1?}"
}

# is_dry_run: whether DRY_RUN is set; an invalid value exits, so that it never starts anything.
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

# Questions that a language model must answer before an update goes live: 48 questions, of which seven may be lost; 65
# explicit requests, of which a tenth of those that the best version obeyed may be lost; and 16 known facts of a pool.
# shellcheck disable=SC2034  # read by tiny.sh and gpu.sh
EVERYDAY_GATE=(--gate-data "$ROOT/launch/gate_everyday.jsonl" --gate-facts "$ROOT/launch/gate_facts.jsonl"
  --gate-max-wrong 0.15 --gate-min-obeyed 0.9 --gate-answer-tokens 120)

# The learning rate of a language model follows the KL of its updates, and is lower for a batch of few conversations.
# shellcheck disable=SC2034  # read by tiny.sh and gpu.sh
STEADY_RATE=(--gate-adapt-lr --lr-batch-reference 16)

# plan_python: sets PY for a plan. A fresh clone gets an environment.
plan_python() {
  PY=${VENV:-$ROOT/.venv}/bin/python
  [ -x "$PY" ] || PY=$(find_python)
  set_python_path
  plans "$PY" || ensure_env "$ROOT/requirements.txt"
}

# plan_python_for WORD...: as plan_python. A fresh clone checks the arguments before it installs; with an environment, the plan
# checks them.
plan_python_for() {
  plans "$(any_python)" || check_words "$@"
  plan_python
}

# plans PYTHON: whether it has the packages of a plan.
plans() {
  [ -x "$1" ] && "$1" -c 'import sys; from importlib.util import find_spec
sys.exit(not all(map(find_spec, ("fastapi", "sqlalchemy", "torch"))))'
}

# show_plan OPTION... -- WORD...: prints what these driver arguments would start. Arguments are marked with their source
# (::script, ::variable NAME, ::command line): a plan shows it, a run removes the marks.
show_plan() {
  local all=()
  if [ "$DRY_RUN" = full ]; then all=(--all); fi
  "$PY" -m slime.plan.dry_run ${all[@]+"${all[@]}"} ${MACHINES[@]+"${MACHINES[@]}"} --script-variables "$DEFAULTED" --shell "${KNOWN_SHELL[@]}" "$@"
}

# mark_of VARIABLE: prints the mark of the next arguments: the variable, or the script if the variable was not set.
mark_of() {
  case $DEFAULTED in *" $1 "*) echo ::script ;; *) echo "::variable $1" ;; esac
}

# marked_more "$@": appends ROLLOUT_ARGS and similar variables, then the command line, to `arguments`; the last value wins.
marked_more() {
  local name
  for name in CKPT_ARGS ROLLOUT_ARGS OPTIMIZER_ARGS LORA_ARGS; do
    # shellcheck disable=SC2206  # exported strings, split into words on purpose
    if [ -n "${!name:-}" ]; then arguments+=("::variable $name" ${!name}); fi
  done
  arguments+=("::command line" "$@")
}

# Flags that the scripts themselves use, each with the variable of the same meaning.
NAMED=(--hf-checkpoint:MODEL_PATH --run-dir:RUN_DIR --save:SAVE_CKPT --host:HOST --port:PORT)

# named_by_flags WORD...: sets the variable of each of these flags to the flag's value, unless lists of GPUs give the counts.
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

# absolute_places: makes RUN_DIR absolute, because other processes have other working folders.
absolute_places() {
  case $RUN_DIR in
    /*) ;;
    \~ | \~/*) RUN_DIR=$HOME${RUN_DIR#\~} ;;
    *) RUN_DIR=$PWD/$RUN_DIR ;;
  esac
}

# run_places NAME WORD...: sets RUN_DIR (default: below runs/), and TASKS in it, the folder of data that the script creates
# before a run. With DRY_RUN=1 TASKS is a temporary folder, and the run's folder is not changed.
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

# begin_run REQUIREMENTS...: checks `arguments`, with placeholders for tasks that do not exist yet; then installs, and creates
# the run's folder.
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

# own_run_dir DIR: creates it with access for this user only.
own_run_dir() {
  refuse_if "$(folder_problem RUN_DIR "$1")"
  (umask 077 && mkdir -p "$1")
}

# folder_problem NAME DIR: prints the reason if DIR cannot be created or written; folders created for the test are removed.
# A RUN_DIR of another user except root is rejected, because that user could create links in it. This user's id is read from a
# new file, because some file systems report one owner for all files.
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

# show_missing TITLE PROBLEM...: prints the problems that are not empty, below the title; status 1 if there is one.
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

# ensure_run_env REQUIREMENTS...: ensure_env, or with DRY_RUN=1 the environment of a plan.
ensure_run_env() {
  if is_dry_run; then plan_python; else ensure_env "$@"; fi
}

# run_or_plan DRIVER WORD...: runs the driver to its end; with DRY_RUN=1 prints the plan and exits.
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

# passing_signals COMMAND...: runs it as a child of this script and forwards TERM, INT and HUP to it; returns its status.
passing_signals() {
  local pid status=0
  ("$@") &
  pid=$!
  trap 'kill -TERM "$pid" 2>/dev/null || :' TERM INT HUP
  while wait "$pid" || status=$?; kill -0 "$pid" 2>/dev/null; do status=0; done # a signal ends the wait, not the command
  trap - TERM INT HUP
  return "$status"
}

# without_marks WORD...: sets `words` to the arguments without marks, for the driver.
without_marks() {
  local word
  words=()
  for word in "$@"; do
    case $word in ::script | '::command line' | '::variable '*) ;; *) words+=("$word") ;; esac
  done
}

# run_driver RUN_DIR DRIVER ARG...: runs until the driver has finished, or until Ctrl-C; a driver that dies is restarted.
run_driver() {
  local run_dir=$1
  shift
  exec "$PY" -m slime.processes.supervisor --run-dir "$run_dir" -- "$PY" "$@"
}

# run_driver_beside RUN_DIR DRIVER ARG...: as run_driver, in parallel with the command in the array CLIENT, which gets the
# supervisor's pid as its last argument. When the client or this script ends, everything is stopped.
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

# leave_nothing_empty: removes the folder of a run that was rejected before it began (the driver first writes arguments.json).
leave_nothing_empty() {
  [ -n "${NEW_RUN:-}" ] && [ -d "$NEW_RUN" ] && [ ! -e "$NEW_RUN/arguments.json" ] || return 0
  rm -f "$NEW_RUN/driver.out" "$NEW_RUN/supervisor.lock"
  rmdir "$NEW_RUN" 2>/dev/null || :
}
