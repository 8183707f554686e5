// A desktop app without its windows: it starts the studio, talks to it, kills it, starts it again and ends.
// AGX_COMMAND is the command line of `agx` as JSON, AGX_HOME its folder. Prints "done" when all has been checked, and
// then waits, with the studio running, to be ended itself.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

const HOME = process.env.AGX_HOME;
const COMMAND = JSON.parse(process.env.AGX_COMMAND);
const STUDIO_FILE = join(HOME, "studio.json");

// --- the life cycle ----------------------------------------------------------------------------------------------

/** Start a studio that ends with this process, and return it once it accepts turns. */
async function startStudio(...options) {
  const [program, ...words] = [...COMMAND, "serve", "--json", "--port", "0", "--exit-with-parent", ...options];
  const child = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(child, "exit").then(([code, signal]) => ({ code, signal }));
  const line = once(createInterface({ input: child.stdout }), "line").then(([text]) => JSON.parse(text));
  const ready = await Promise.race([line, exited]);
  if (!("ticket" in ready)) throw new Error(`the studio ended with ${JSON.stringify(ready)}; see its stderr`);
  return { child, exited, ready, token: await redeem(ready) };
}

/** Exchange the ticket for the token, which works once. */
async function redeem({ url, ticket }) {
  const answer = await post(url, "/api/ticket", { ticket });
  assert.equal((await post(url, "/api/ticket", { ticket })).status, 401);
  return (await answer.json()).token;
}

/** Return what the discovery file says, or null if no studio runs: none wrote it, or one that was killed. */
async function findStudio() {
  if (!existsSync(STUDIO_FILE)) return null;
  const found = JSON.parse(readFileSync(STUDIO_FILE, "utf8"));
  try {
    process.kill(found.pid, 0);
    const health = await (await fetch(`${found.url}/api/health`)).json();
    return health.instance === found.instance ? found : null;
  } catch {
    return null;
  }
}

// --- requests and the stream -------------------------------------------------------------------------------------

function post(url, path, body, token) {
  const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  return fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
}

async function postJson({ ready, token }, path, body) {
  const answer = await post(ready.url, path, body, token);
  assert.ok(answer.ok, `${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.json();
}

/** Yield {cursor, event} for each event of a session after a cursor, until the server closes the connection. */
async function* events({ ready, token }, sessionId, cursor) {
  const path = `${ready.url}/api/sessions/${sessionId}/events`;
  const headers = { Authorization: `Bearer ${token}`, ...(cursor && { "Last-Event-ID": cursor }) };
  const decoder = new TextDecoder();
  let buffer = "";
  try {
    for await (const chunk of (await fetch(path, { headers })).body) {
      buffer += decoder.decode(chunk, { stream: true });
      const frames = buffer.split("\n\n");
      buffer = frames.pop();
      for (const frame of frames) {
        const fields = Object.fromEntries(frame.split("\n").map((line) => line.split(/: ?(.*)/s, 2)));
        if (fields.data) yield { cursor: fields.id, event: JSON.parse(fields.data) };
      }
    }
  } catch (error) {
    if (error.cause?.code !== "UND_ERR_SOCKET" && error.code !== "ECONNRESET") throw error; // the server was killed
  }
}

/** Read a session's events into `log` until one of this type has come, and return it. */
async function readUntil(studio, sessionId, log, type) {
  for await (const received of events(studio, sessionId, log.at(-1)?.cursor)) {
    log.push(received);
    if (received.event.type === type) return received.event;
  }
  throw new Error(`the stream ended without ${type}: ${log.map(({ event }) => event.type)}`);
}

async function answer(studio, question, approved) {
  await postJson(studio, `/api/confirms/${question.data.id}`, { approved, digest: question.data.digest });
}

// --- what happens ------------------------------------------------------------------------------------------------

// Start and handshake.
let studio = await startStudio();
const { ticket, ...announced } = studio.ready;
assert.deepEqual(JSON.parse(readFileSync(STUDIO_FILE, "utf8")), announced);
assert.deepEqual(await findStudio(), announced);
assert.equal(announced.pid, studio.child.pid);
assert.equal(announced.api, 1);
assert.equal(readFileSync(announced.token_file, "utf8").trim(), studio.token);

// A second app would find it, or be told so.
await assert.rejects(startStudio(), /"code":1/);

// A turn that asks, and an answer.
const session = await postJson(studio, "/api/sessions", { workspace: process.cwd() });
const log = [];
await postJson(studio, `/api/sessions/${session.id}/turns`, { input: "Write note.txt with the text hello" });
await answer(studio, await readUntil(studio, session.id, log, "confirm_required"), true);
await readUntil(studio, session.id, log, "final");
assert.equal(readFileSync("note.txt", "utf8"), "hello");

// The studio crashes while it answers; its file is known as stale, and the next studio goes on where it was.
await postJson(studio, `/api/sessions/${session.id}/turns`, { input: "count to 999" });
await readUntil(studio, session.id, log, "token");
studio.child.kill("SIGKILL");
assert.deepEqual(await studio.exited, { code: null, signal: "SIGKILL" });
assert.ok(existsSync(STUDIO_FILE));
assert.equal(await findStudio(), null);
studio = await startStudio();
assert.notEqual(studio.ready.instance, announced.instance);
assert.equal((await findStudio()).instance, studio.ready.instance);
const interrupted = await readUntil(studio, session.id, log, "error");
assert.equal(interrupted.data.code, "interrupted");

// It crashes while a question is open, which is answered after the restart.
await postJson(studio, `/api/sessions/${session.id}/turns`, { input: "Write note.txt with the text again" });
const question = await readUntil(studio, session.id, log, "confirm_required");
studio.child.kill("SIGKILL");
await studio.exited;
studio = await startStudio();
await answer(studio, question, true);
await readUntil(studio, session.id, log, "final");
assert.equal(readFileSync("note.txt", "utf8"), "again");
assert.deepEqual(
  log.map(({ event }) => event.seq),
  log.map((_, index) => index + 1),
);

// A newer version of the app takes over from an older one that still runs.
const newer = await startStudio("--take-over");
assert.deepEqual(await studio.exited, { code: 0, signal: null });
assert.equal((await findStudio()).pid, newer.child.pid);

console.log("done");
await once(process.stdin.resume(), "end"); // the end of this process ends the studio
process.exit();
