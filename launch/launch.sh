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

check_port_number() {
  case $1 in '' | *[!0-9]* | ??????*) die "PORT=$1 is not a port; give a number from 1 to 65535" ;; esac
  [ "$1" -ge 1 ] && [ "$1" -le 65535 ] || die "PORT=$1 is not a port; give a number from 1 to 65535"
}

# check_port HOST PORT RUN_DIR: a taken port is an error before anything starts. Ctrl-C ends it without a word.
check_port() {
  check_port_number "$2"
  "$PY" -c 'import signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL)
from openclaw.errors import ConfigError; from openclaw.trainer_hooks.services import check_port
try: check_port(sys.argv[1], int(sys.argv[2]), sys.argv[3])
except ConfigError as error: sys.exit(f"error: {error}")' "$@" || exit 2
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
  { has_module fastapi && has_module sqlalchemy && has_module torch; } || ensure_env "$ROOT/requirements.txt"
}

# show_plan OPTION... -- WORD...: what the words of the driver would start. Words are marked with their source (::script,
# ::variable NAME, ::command line): a plan shows it, a run drops the marks.
show_plan() {
  local all=()
  if [ "$DRY_RUN" = full ]; then all=(--all); fi
  "$PY" -m slime.plan.dry_run ${all[@]+"${all[@]}"} --script-variables "$DEFAULTED" "$@"
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

# run_places NAME: RUN_DIR below runs/, and TASKS in it for what the script makes before a run. With DRY_RUN=1 TASKS is
# elsewhere and goes with the script, and the run's folder is left alone.
run_places() {
  RUN_DIR=${RUN_DIR:-$ROOT/runs/$1-$(date +%Y%m%d-%H%M%S)}
  TASKS=$RUN_DIR/tasks
  if ! is_dry_run; then own_run_dir "$RUN_DIR" && return; fi
  TASKS=$(mktemp -d)
  trap 'rm -rf -- "$TASKS"' EXIT
}

# own_run_dir DIR: makes it for this user alone. One of another user but root is refused, who could put links there. Who owns a
# file is asked of one that is made now: some file systems give all files one owner.
own_run_dir() {
  local probe ours theirs
  (umask 077 && mkdir -p "$1")
  probe=$(mktemp "$1/.owner.XXXXXX") || die "RUN_DIR=$1 cannot be written"
  ours=$(owner_of "$probe")
  rm -f "$probe"
  theirs=$(owner_of "$1")
  [ "$theirs" = "$ours" ] || [ "$theirs" = 0 ] || die "RUN_DIR=$1 belongs to another user, who could change what is written there: choose another," \
    "or make it yours (chown)"
}

owner_of() { stat -c %u "$1" 2>/dev/null || stat -f %u "$1"; }

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
