// How OpenClaw classifies each error, as its transport words it: "STATUS MESSAGE" of OpenAI's and Anthropic's packages.
// Usage: node openclaw.mjs PACKAGES < cases.json      PACKAGES: the node_modules that has openclaw
import { readFileSync, readdirSync } from "node:fs";

const place = `${process.argv[2]}/openclaw/dist`;

async function exported(file, name) {
  for (const entry of readdirSync(place)) {
    if (!entry.startsWith(file) || !entry.endsWith(".mjs")) continue;
    const own = Object.values(await import(`${place}/${entry}`)).find((one) => one.name === name);
    if (own) return own;
  }
  throw new Error(`openclaw has no ${name}`);
}

const isContextOverflowError = await exported("classify-", "isContextOverflowError");
const isLikelyContextOverflowError = await exported("classify-", "isLikelyContextOverflowError");
const classifyFailoverReason = await exported("classify-", "classifyFailoverReason");

const found = {};
for (const { name, status, body } of JSON.parse(readFileSync(0, "utf8"))) {
  const text = body.type === "error" ? `${status} ${JSON.stringify(body)}` : `${status} ${body.error.message}`;
  const overflow = isContextOverflowError(text) && isLikelyContextOverflowError(text);
  found[name] = overflow ? "overflow" : classifyFailoverReason(text);
  if (process.env.SHOW) console.error(name, text.slice(0, 200), found[name]);
}
console.log(JSON.stringify(found));
process.exit(0);
