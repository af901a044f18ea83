// The checks of python_clients.py with Node's openai client; prints one JSON line a check.
import OpenAI from "openai";

const t = JSON.parse(process.argv[2]);
const client = (apiKey) => new OpenAI({ baseURL: t.url, apiKey, maxRetries: 0 });
const ask = (options, key = t.key) =>
  client(key).chat.completions.create({
    model: t.model,
    messages: [{ role: "user", content: t.question }],
    max_tokens: t.maxTokens,
    ...options,
  });
const forced = { tools: [t.tool], tool_choice: { type: "function", function: { name: t.function } } };

function expect(condition, what) {
  if (!condition) throw new Error(what);
}

function expectCall(name, text, whole) {
  expect(name === t.function, `the call is to ${name}`);
  let sound = true;
  try {
    JSON.parse(text);
  } catch {
    sound = false;
  }
  expect(sound === whole, whole ? `a whole call with broken arguments: ${text}` : "a cut call looks whole");
}

async function collect(options) {
  const chunks = [];
  for await (const chunk of await ask({ ...options, stream: true })) chunks.push(chunk);
  return chunks;
}

async function refused(status, call) {
  try {
    await call();
  } catch (error) {
    expect(error.status === status && error.error?.message, `status ${error.status}, not ${status}`);
    return;
  }
  throw new Error("not refused");
}

const checks = {
  "answer": async () => {
    const found = await ask({});
    expect(["stop", "length"].includes(found.choices[0].finish_reason), "no finish reason");
    expect(found.usage.completion_tokens > 0, "no usage");
  },
  "stream": async () => {
    const chunks = await collect({ stream_options: { include_usage: true } });
    const reasons = chunks.filter((c) => c.choices.length).map((c) => c.choices[0].finish_reason);
    expect(["stop", "length"].includes(reasons.at(-1)), "finish reason not last");
    expect(chunks.at(-1).usage.completion_tokens > 0, "no usage at the end");
  },
  "tool": async () => {
    const choice = (await ask(forced)).choices[0];
    const calls = choice.message.tool_calls ?? [];
    expect(calls.length > 0 === (choice.finish_reason === "tool_calls"), "finish reason and calls disagree");
    for (const call of calls) expectCall(call.function.name, call.function.arguments, true);
  },
  "streamed-tool": async () => {
    const chunks = await collect(forced);
    const calls = chunks.flatMap((c) => c.choices[0]?.delta.tool_calls ?? []).filter((c) => c.index === 0);
    const text = calls.map((call) => call.function.arguments ?? "").join("");
    const whole = chunks.at(-1).choices[0].finish_reason === "tool_calls";
    if (calls.length) expectCall(calls[0].function.name, text, whole);
    else expect(!whole, "a call is announced that was not sent");
  },
  "wrong-field": () => refused(400, () => ask({ temperature: 99 })),
  "other-model": async () => {
    const answer = await ask({ model: t.noModel });
    expect(answer.model === t.model, `answered by ${answer.model}`);
  },
  "wrong-key": () => refused(401, () => ask({}, t.wrongKey)),
};

for (const [check, run] of Object.entries(checks)) {
  let error = "";
  try {
    await run();
  } catch (caught) {
    error = String(caught?.message ?? caught) || "failed";
  }
  console.log(JSON.stringify({ check, error }));
}
