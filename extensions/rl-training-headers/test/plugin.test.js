import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import plugin from "../index.js";
import { headerValue, lastUserText } from "../turns.js";

/** The plug-in as OpenClaw sees it: its provider, its hooks, and what a wrapped call sends. */
function load(pluginConfig, config = {}) {
  const hooks = {};
  const loaded = { hooks, warnings: [] };
  plugin.register({
    pluginConfig,
    config,
    logger: { warn: (line) => loaded.warnings.push(line) },
    registerProvider: (provider) => (loaded.provider = provider),
    on: (name, handler) => (hooks[name] = handler),
  });
  loaded.send = (options, messages = [], model = {}) => {
    let sent;
    const stream = loaded.provider.wrapStreamFn({ streamFn: (prepared) => ((sent = prepared), "stream") });
    assert.equal(stream(model, { messages }, options), "stream");
    return sent.headers;
  };
  return loaded;
}

const user = (text) => ({ role: "user", content: [{ type: "text", text }] });

test("a user's turn and the tool continuation after it are main turns of their session", () => {
  const { hooks, send } = load();
  hooks.before_prompt_build({}, { sessionId: "s1", sessionKey: "agent:main:main", trigger: "user" });
  assert.deepEqual(send({ sessionId: "s1" }, [user("hi")]), { "X-Session-Id": "s1", "X-Turn-Type": "main" });
  assert.equal(send({ sessionId: "s1" }, [user("hi"), { role: "toolResult" }])["X-Turn-Type"], "main");
});

for (const trigger of ["heartbeat", "cron", "memory", "overflow"]) {
  test(`a run triggered by ${trigger} is a side turn`, () => {
    const { hooks, send } = load();
    hooks.before_prompt_build({}, { sessionId: "s1", trigger });
    assert.equal(send({ sessionId: "s1" })["X-Turn-Type"], "side");
  });
}

test("subagents and messages of other sessions are side turns although their trigger is a user's", () => {
  const { hooks, send } = load();
  hooks.before_prompt_build({}, { sessionId: "s1", sessionKey: "agent:main:subagent:1", trigger: "user" });
  hooks.before_prompt_build({}, { sessionId: "s2", trigger: "user", inputProvenance: { kind: "inter_session" } });
  assert.equal(send({ sessionId: "s1" })["X-Turn-Type"], "side");
  assert.equal(send({ sessionId: "s2" })["X-Turn-Type"], "side");
});

test("a memory flush is a side turn of its session, with or without a time stamp", () => {
  const { hooks, send } = load();
  hooks.before_prompt_build({}, { sessionId: "s1", trigger: "user" });
  for (const stamp of ["", "[Sat 2026-11-21 02:27 UTC] "]) {
    assert.equal(send({ sessionId: "s1" }, [user(`${stamp}Pre-compaction memory flush. Store`)])["X-Turn-Type"], "side");
  }
});

test("a call without a session, such as a compaction, is a side turn without a session header", () => {
  assert.deepEqual(load().send({}), { "X-Turn-Type": "side" });
});

test("two sessions at once do not take each other's type", () => {
  const { hooks, send } = load();
  hooks.before_prompt_build({}, { sessionId: "s1", trigger: "user" });
  hooks.before_prompt_build({}, { sessionId: "s2", trigger: "heartbeat" });
  assert.equal(send({ sessionId: "s1" })["X-Turn-Type"], "main");
  assert.equal(send({ sessionId: "s2" })["X-Turn-Type"], "side");
});

test("headers have the configured names and never replace what the request carries", () => {
  const { hooks, send } = load({ sessionIdHeader: "X-Talk", turnTypeHeader: "X-Kind" });
  hooks.before_prompt_build({}, { sessionId: "s1", trigger: "user" });
  const sent = send({ sessionId: "s1" }, [], { headers: { "x-kind": "side", other: "1" } });
  assert.deepEqual(sent, { "x-kind": "side", other: "1", "X-Talk": "s1" });
});

test("ids that no header may hold are left out", () => {
  assert.equal(headerValue("a\nb"), undefined);
  assert.equal(headerValue(""), undefined);
  assert.equal(headerValue("6c2427f5-e9c2"), "6c2427f5-e9c2");
});

test("the provider of another name is wrapped too", () => {
  assert.deepEqual(load({ providerId: "home" }).provider.hookAliases, ["home"]);
});

test("the text of the last user message is found in parts and in plain strings", () => {
  assert.equal(lastUserText([user("one"), { role: "assistant", content: "x" }]), "one");
  assert.equal(lastUserText([{ role: "user", content: "two" }]), "two");
  assert.equal(lastUserText(undefined), "");
});

async function server(status = 200) {
  const seen = [];
  const listening = createServer((request, response) => {
    seen.push({ url: request.url, headers: request.headers });
    response.writeHead(status).end("{}");
  });
  await new Promise((ready) => listening.listen(0, "127.0.0.1", ready));
  return { seen, url: `http://127.0.0.1:${listening.address().port}/v1`, close: () => listening.close() };
}

function provider(url) {
  return { models: { providers: { "openclaw-rl": { baseUrl: url, apiKey: "secret", models: [{ id: "m" }] } } } };
}

test("the end of a session is told to the server once, with the key", async () => {
  const { seen, url, close } = await server();
  const { hooks } = load({}, provider(url));
  await hooks.session_end({ sessionId: "s1", reason: "new" });
  close();
  assert.equal(seen.length, 1);
  assert.equal(seen[0].url, "/v1/chat/completions");
  assert.equal(seen[0].headers["x-session-done"], "1");
  assert.equal(seen[0].headers["x-session-id"], "s1");
  assert.equal(seen[0].headers["x-turn-type"], "side");
  assert.equal(seen[0].headers.authorization, "Bearer secret");
});

test("a session that goes on after a compaction or a restart is not ended", async () => {
  const { seen, url, close } = await server();
  const { hooks } = load({}, provider(url));
  for (const reason of ["compaction", "restart", "shutdown", "unknown", undefined]) {
    await hooks.session_end({ sessionId: "s1", reason });
  }
  close();
  assert.equal(seen.length, 0);
});

test("a server that refuses or is gone is a warning, not an error", async () => {
  const { url, close } = await server(500);
  const loaded = load({}, provider(url));
  await loaded.hooks.session_end({ sessionId: "s1", reason: "reset" });
  close();
  await loaded.hooks.session_end({ sessionId: "s2", reason: "reset" });
  assert.equal(loaded.warnings.length, 2);
});
