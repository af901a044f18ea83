// What pi makes of each error: its own transport, its own tables of overflow and of errors to try again.
// Usage: node pi.mjs PACKAGES < cases.json      PACKAGES: the node_modules that has @earendil-works/pi-ai
import { readFileSync } from "node:fs";

const place = `${process.argv[2]}/@earendil-works/pi-ai/dist`;
const { streamSimple } = await import(`${place}/compat.js`);
const { isContextOverflow } = await import(`${place}/utils/overflow.js`);
const { isRetryableAssistantError } = await import(`${place}/utils/retry.js`);
const APIS = { chat: "openai-completions", responses: "openai-responses", messages: "anthropic-messages" };

const found = {};
for (const one of JSON.parse(readFileSync(0, "utf8"))) {
  const baseUrl = one.api === "messages" ? one.url : `${one.url}/v1`;
  const model = {
    id: one.model, name: one.model, api: APIS[one.api], provider: "own", baseUrl, reasoning: false, input: ["text"],
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }, contextWindow: 1e6, maxTokens: 50,
  };
  const messages = [{ role: "user", content: one.prompt, timestamp: 0 }];
  const options = { apiKey: one.key, maxRetries: 0, temperature: one.temperature };
  const answer = await streamSimple(model, { messages }, options).result();
  found[one.name] = isContextOverflow(answer, model.contextWindow)
    ? "overflow" : isRetryableAssistantError(answer) ? "retry" : answer.stopReason;
  if (process.env.SHOW) console.error(one.name, answer.stopReason, answer.errorMessage);
}
console.log(JSON.stringify(found));
process.exit(0);
