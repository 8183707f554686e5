/** An application in TypeScript with the client that openapi-typescript generates: a turn, its events, an error. */
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

type Schemas = components["schemas"];

const [baseUrl, token] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

// Only what a route needs has to be sent: no field with a default is required.
const { data: session } = await client.POST("/api/sessions", { body: {} });
if (session === undefined) throw new Error("no session");
const changes: Schemas["ChangeSessionBody"] = { pinned: true };
const path = { session_id: session.id };
await client.PATCH("/api/sessions/{session_id}", { params: { path }, body: changes });
const turn: Schemas["StartTurnBody"] = { input: "hello" };
await client.POST("/api/sessions/{session_id}/turns", { params: { path }, body: turn });

// `type` narrows an event, so that its data is typed.
function text(event: Schemas["Event"]): string {
  switch (event.type) {
    case "token":
      return event.data.text;
    case "tool_result":
      return event.data.outcome satisfies "ok" | "error" | string;
    default:
      return "";
  }
}

const { response } = await client.GET("/api/sessions/{session_id}/events", { params: { path }, parseAs: "stream" });
const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
let [buffer, answer, ended] = ["", "", false];
while (!ended) {
  const { value, done } = await reader.read();
  if (done) throw new Error("the stream ended");
  const frames = (buffer + value).split("\n\n");
  buffer = frames.pop()!;
  for (const frame of frames) {
    const data = frame.split("\n").find((line) => line.startsWith("data: "));
    if (data === undefined) continue;
    const event = JSON.parse(data.slice("data: ".length)) as Schemas["Event"];
    answer += text(event);
    ended ||= event.type === "final" || (event.type === "error" && event.data.fatal);
  }
}
await reader.cancel();

// A page of the stored events: the same route answers with JSON if it is asked for one, and with a stream otherwise.
const { data: turns } = await client.GET("/api/sessions/{session_id}/turns", { params: { path } });
const last = turns?.turns.at(-1);
if (last === undefined) throw new Error("no turn");
const query = { from: last.cursor, until: last.last_cursor };
const { data: page } = await client.GET("/api/sessions/{session_id}/events", { params: { path, query } });
if (typeof page !== "object") throw new Error("no page");
const types = page.events.map((event) => event.type);
const ofTurn = { outcome: last.outcome, first: types[0], last: types.at(-1), all: types.length === last.events };

// The codes of an error are a union by status, so that a misspelt one does not compile.
const { error } = await client.GET("/api/sessions/{session_id}", { params: { path: { session_id: "none" } } });
const isMissing = error !== undefined && "code" in error && error.code === "session_not_found";

// Rules are replaced all at once; warnings are by the id of a rule. A call is explained without being made.
const rules = [{ decision: "deny", tool: "bash_exec", command: "git push --force", scope: "user" }];
const { data: stored } = await client.PUT("/api/permissions", { body: { rules } });
const [rule] = stored?.rules ?? [];
if (rule?.id === undefined) throw new Error("no rule");
const warnings = (stored?.warnings[rule.id] ?? []).length;
const call: Schemas["ExplainBody"] = { tool: "note", arguments: { text: "x" }, session_id: session.id };
const { data: verdict } = await client.POST("/api/permissions/explain", { body: call });
await client.DELETE("/api/permissions/{rule_id}", { params: { path: { rule_id: rule.id } } });
const { data: left } = await client.GET("/api/permissions", { params: { query: { session_id: session.id } } });

// The content of an AGENTS.md is trusted by its digest.
const { data: instructions } = await client.GET("/api/sessions/{session_id}/trust", { params: { path } });
const [file] = instructions?.files ?? [];
if (file === undefined) throw new Error("no file");
const body: Schemas["TrustBody"] = { sha256: file.sha256 };
const { data: trusted } = await client.POST("/api/sessions/{session_id}/trust", { params: { path }, body });

const permissions = { origin: rule.origin, warnings, decision: verdict?.decision, left: left?.rules.length };
const trust = [file.trusted, trusted?.files[0]?.trusted];
console.log(JSON.stringify({ answer, ofTurn, isMissing, permissions, trust }));
