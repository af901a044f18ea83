// OpenClaw plug-in: tells an OpenClaw-RL server the session and the type of each turn, and when a session has ended.
// Only calls to the configured provider are touched; other hosts see nothing of it.

import { Runs, headerValue, isFinal } from "./turns.js";

const DONE_HEADER = "X-Session-Done";
const PING_TIMEOUT_MS = 5000;

/** Adds headers that the request does not have yet. */
function withHeaders(model, added) {
  const present = new Set(Object.keys(model.headers ?? {}).map((name) => name.toLowerCase()));
  const missing = Object.entries(added).filter(([name]) => !present.has(name.toLowerCase()));
  return { ...model, headers: { ...model.headers, ...Object.fromEntries(missing) } };
}

/** A key in the configuration may be written out, or name an environment variable. */
function keyOf(provider) {
  const key = provider?.apiKey;
  if (typeof key === "string") return key.replace(/^\$\{(\w+)\}$/, (_, name) => process.env[name] ?? "");
  return key?.source === "env" ? process.env[key.id] : undefined;
}

/** Tells the server that a session has ended, so that it need not wait for its idle limit. */
async function sendDone(provider, sessionId, names, logger) {
  const key = keyOf(provider);
  try {
    const answer = await fetch(`${provider.baseUrl.replace(/\/+$/, "")}/chat/completions`, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        ...(key ? { Authorization: `Bearer ${key}` } : {}),
        [names.session]: sessionId,
        [names.type]: "side",
        [DONE_HEADER]: "1",
      },
      body: JSON.stringify({
        model: provider.models?.[0]?.id ?? "default",
        messages: [],
      }),
      signal: AbortSignal.timeout(PING_TIMEOUT_MS),
    });
    await answer.body?.cancel();
    if (!answer.ok) logger?.warn?.(`rl-training-headers: the server answered ${answer.status} to the end of a session`);
  } catch (error) {
    logger?.warn?.(`rl-training-headers: the end of a session was not delivered: ${error.message}`);
  }
}

function register(api) {
  const config = api.pluginConfig ?? {};
  const providerId = config.providerId ?? "openclaw-rl";
  const names = { session: config.sessionIdHeader ?? "X-Session-Id", type: config.turnTypeHeader ?? "X-Turn-Type" };
  const runs = new Runs();

  function wrap({ streamFn }) {
    if (!streamFn) return undefined;
    return (model, context, options) => {
      const session = headerValue(options?.sessionId);
      const type = runs.turnType(options?.sessionId, context?.messages);
      const added = { ...(session ? { [names.session]: session } : {}), [names.type]: type };
      return streamFn(withHeaders(model, added), context, options);
    };
  }

  api.registerProvider({
    id: "openclaw-rl",
    label: "OpenClaw-RL",
    ...(providerId === "openclaw-rl" ? {} : { hookAliases: [providerId] }),
    auth: [],
    wrapStreamFn: wrap,
    wrapSimpleCompletionStreamFn: wrap,
  });
  api.on("before_prompt_build", (_event, context) => runs.note(context));
  api.on("session_end", async (event) => {
    runs.forget(event.sessionId);
    const provider = api.config?.models?.providers?.[providerId];
    const session = headerValue(event.sessionId);
    if (isFinal(event.reason) && provider?.baseUrl && session) await sendDone(provider, session, names, api.logger);
  });
}

export default {
  id: "rl-training-headers",
  name: "RL training headers",
  description: "Session and turn type headers for an OpenClaw-RL server",
  register,
};
