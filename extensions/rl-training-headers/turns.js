// Which session a model call belongs to, and whether its turn is the user's own (main) or OpenClaw's (side).

/** Triggers of runs that nobody asked for. A run without a trigger, or with "user", is a person's. */
const SIDE_TRIGGERS = new Set(["heartbeat", "cron", "memory", "overflow"]);
const MEMORY_FLUSH = "Pre-compaction memory flush";
const SUBAGENT_KEY = ":subagent:";
const MOST_RUNS = 1000;

/** Reasons of a session_end after which no further turn of the session can come. */
const FINAL_REASONS = new Set(["new", "reset", "idle", "daily", "deleted"]);

/** Remembers the run that each session is in; the oldest are forgotten beyond MOST_RUNS. */
export class Runs {
  #bySession = new Map();

  /** @param {{sessionId?: string, sessionKey?: string, trigger?: string, inputProvenance?: {kind?: string}}} context */
  note(context) {
    if (!context?.sessionId) return;
    this.#bySession.delete(context.sessionId);
    this.#bySession.set(context.sessionId, {
      trigger: context.trigger,
      sessionKey: context.sessionKey ?? "",
      provenance: context.inputProvenance?.kind,
    });
    if (this.#bySession.size > MOST_RUNS) this.#bySession.delete(this.#bySession.keys().next().value);
  }

  forget(sessionId) {
    this.#bySession.delete(sessionId);
  }

  /**
   * @param {string | undefined} sessionId of the call; without one it is a summary or another simple completion
   * @param {unknown[]} messages of the call
   * @returns {"main" | "side"}
   */
  turnType(sessionId, messages) {
    if (!sessionId) return "side";
    const run = this.#bySession.get(sessionId);
    const isSide =
      SIDE_TRIGGERS.has(run?.trigger) ||
      run?.sessionKey.includes(SUBAGENT_KEY) ||
      run?.provenance === "inter_session" ||
      lastUserText(messages).startsWith(MEMORY_FLUSH);
    return isSide ? "side" : "main";
  }
}

export function isFinal(reason) {
  return FINAL_REASONS.has(reason);
}

/** Text of the last message of the user, without the time stamp that OpenClaw puts before it. */
export function lastUserText(messages) {
  const message = (messages ?? []).findLast((one) => one?.role === "user");
  const content = message?.content;
  const text = Array.isArray(content)
    ? content.filter((part) => part?.type === "text").map((part) => part.text).join("\n")
    : String(content ?? "");
  return text.replace(/^\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? [^\]]+\] ?/, "");
}

/** Header values are printable ASCII; an id that is not cannot be sent, and transcripts tell the session then. */
export function headerValue(id) {
  return typeof id === "string" && /^[\x21-\x7e]{1,200}$/.test(id) ? id : undefined;
}
