// Rules about calls, in words.

import { escapeHidden } from "./hidden_characters.js";
import { wantedKind, wantedVerb } from "./tool_words.js";

/** Return which calls a rule is about, to go on a sentence: "edit files in src/", "run git commit with any arguments". */
export function ruleSentence(rule) {
  const { tool, path, command, host, server, network } = rule;
  const net = !network ? "" : network === true ? ", with the network" : `, with the hosts ${network.join(", ")}`;
  if (command !== undefined) return escapeHidden(`${rule.exact ? `run exactly “${command}”` : `run ${command} with any arguments`}${net}`);
  const rest = rule.arguments || rule.exact ? " with exactly these arguments" : server ? ` of ${server}` : "";
  const about = path ? ` ${pathText(path)}` : "", at = host ? ` at ${host}` : "";
  if (tool === "edit") return escapeHidden(`edit${about || " any file"}`);
  const isAny = tool === "*" || (tool === "bash_exec" && !rule.arguments);
  const called = tool === "*" ? "make any call" : isAny ? "run any command" : about ? wantedVerb(tool) : wantedKind(tool);
  return escapeHidden(`${called}${isAny && about ? " about" : ""}${about}${at}${rest}${net}`);
}

/** Return the files of a glob in words. */
function pathText(glob) {
  if (glob === "*") return "files in the folder itself";
  if (glob === "**") return "files of the folder";
  return /^[^*?]*\/\*\*$/.test(glob) ? `files in ${glob.slice(0, -2)}` : glob;
}

/** Return a rule in words, as the command line takes it. */
export function ruleText(rule) {
  const parts = [rule.decision, rule.tool];
  for (const name of ["path", "command", "host", "server"]) if (rule[name] !== undefined) parts.push(`${name}=${rule[name]}`);
  if (rule.network) parts.push(`network=${rule.network}`);
  if (rule.arguments) parts.push("with exactly these arguments");
  else if (rule.exact) parts.push("exactly");
  return escapeHidden(parts.join(" "));
}

/**
 * Return an offered rule in words; one about commands as the studio describes its kind, if it does. A command that it allows
 * exactly is the one that is asked about, and stands there.
 * @param {any} rule @param {string | undefined} kind
 */
export function rememberedText(rule, kind) {
  if (!kind || rule.command === undefined) return ruleSentence(rule);
  if (!rule.exact) return escapeHidden(kindText(kind));
  const end = `: ${rule.command}`;
  return escapeHidden(kind.endsWith(end) ? kind.slice(0, -end.length) : kind);
}

/** Return a kind of calls as the studio describes it, without an ellipsis, which would look like a text that was cut. */
export const kindText = (/** @type {string} */ kind) =>
  kind.replace(/ …(?=$| \()/, " with any arguments").replace(/ …(?= with )/, " with any arguments,");
