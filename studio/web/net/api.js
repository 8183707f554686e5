// @ts-check
// Requests to the studio with the token of this browser tab, and whether the tab is signed in.

import { signal } from "../vendor/preact.js";

// Of the studio, also below a path of another server: what is before the assets and their version.
const ROOT = import.meta.url.replace(/assets\/(?:[\da-f]{32}\/)?net\/api\.js$/, "");
const TOKEN_KEY = "agenticx.token"; // in the session storage
const CHANNEL = "agenticx.token"; // on which tabs of this browser ask each other for it
const ASK_MS = 300;

export const UNREACHABLE = "The studio does not answer.";

/** An answer of the studio that is no success: `code` is for programs, the message for people. */
export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} detail */
  constructor(status, code, detail) {
    super(detail);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.detail = detail;
  }
}

/** @type {import("../vendor/preact.js").Signal<"unknown"|"in"|"out">} */
export const signedIn = signal("unknown");
/** Why the tab is signed out, a sentence, or "". */
export const signedOutReason = signal("");

/** How often the studio has answered after it did not. */
export const reconnects = signal(0);

/** Return the absolute address of a path below the studio's root. */
export const url = (/** @type {string} */ path) => new URL(path, ROOT).href;

/** Return the path of a file as it stands in an address. */
export const encodedPath = (/** @type {string} */ path) => path.split("/").map(encodeURIComponent).join("/");

export const token = () => sessionStorage.getItem(TOKEN_KEY);

/** Exchange a ticket for the token, or take the one that this tab or another tab of the browser has. */
export async function signIn(/** @type {string|null} */ ticket) {
  let reason = "";
  if (signedIn.peek() === "unknown" && isOpenedElsewhere() && /** @type {any} */ (performance.getEntriesByType("navigation")[0])?.type !== "reload") {
    heldToken = token();
    sessionStorage.removeItem(TOKEN_KEY);
  }
  if (ticket) {
    const response = await fetch(url("api/ticket"), jsonRequest("POST", { ticket }));
    if (response.ok) {
      sessionStorage.setItem(TOKEN_KEY, (await response.json()).token);
      const tabs = new BroadcastChannel(CHANNEL);
      tabs.postMessage({ signedIn: token() }); // those that wait to be signed in
      tabs.close();
    } else reason = "This ticket was used already or has expired.";
  }
  if (!token() && !isOpenedElsewhere()) await askOtherTabs();
  if (token()) signedIn.value = "in";
  else signOut(reason);
}

/** The token that this tab had before another site opened the page in it. @type {string|null} */
let heldToken = null;

/** Whether another site opened the page: then it signs in only by a ticket, or if the person wants that. */
export const isOpenedElsewhere = () => Boolean(document.documentElement.dataset.openedBy);

/** Remove the token; the page shows how to sign in. */
export function signOut(reason = "") {
  sessionStorage.removeItem(TOKEN_KEY);
  signedOutReason.value = reason;
  signedIn.value = "out";
}

/**
 * Return the JSON or text of a response, null if it has none.
 * Throws an `ApiError` if the studio refuses, with status 0 and code "unreachable" if there is no answer.
 * @param {string} path @param {{method?: string, body?: unknown, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function api(path, options) {
  const response = await send(path, options);
  if (response.status === 204) return null;
  return isJson(response) ? response.json() : response.text();
}

/** Return the bytes of a response; throws as `api` does. */
export async function blob(/** @type {string} */ path) {
  return (await send(path)).blob();
}

/** @param {string} path @param {{method?: string, body?: unknown, signal?: AbortSignal}} [options] */
async function send(path, { method = "GET", body, signal } = {}) {
  const request = body === undefined ? { method, headers: {} } : jsonRequest(method, body);
  let response;
  try {
    response = await fetchWithToken(path, { ...request, signal });
  } catch (error) {
    if (error instanceof TypeError) throw new ApiError(0, "unreachable", UNREACHABLE);
    throw error;
  }
  if (response.status === 401) signOut("This tab's token is not valid: the studio was restarted with another one.");
  if (!response.ok) throw await problemOf(response);
  return response;
}

let isReached = true; // as far as the last request could tell
let isStudio = true; // what answers at this address; unknown once something there did not

/**
 * Fetch with the token, which no other program gets: once the studio did not answer, it has to prove first that it is
 * the studio. Throws as fetch does, a TypeError also if another program answers.
 * @param {string} path @param {RequestInit & {headers: Record<string, string>}} request
 */
export async function fetchWithToken(path, request) {
  try {
    if (!isStudio) await checkIdentity(request.signal);
    const response = await fetch(url(path), { ...request, headers: { ...request.headers, Authorization: `Bearer ${token()}` } });
    if (!isReached) reconnects.value += 1;
    isReached = true;
    if (response.status >= 500) doubtStudio();
    return response;
  } catch (error) {
    if (error instanceof TypeError) {
      isReached = false;
      doubtStudio();
    }
    throw error;
  }
}

/** Ask for the proof before the next request of each tab of this browser: what was the studio may be another program now. */
export function doubtStudio() {
  isStudio = false;
  channel?.postMessage("doubt");
}

/**
 * Ask what answers at this address for the proof that it has the token; sign out if it has another one. Another machine
 * has a certificate for that, or it is not protected, as the browser has no cryptography then.
 * @param {AbortSignal|null} [signal]
 */
async function checkIdentity(signal) {
  const isLocal = ["127.0.0.1", "localhost", "[::1]"].includes(location.hostname);
  const secret = token();
  if (isLocal && crypto.subtle && secret) {
    const challenge = toHex(crypto.getRandomValues(new Uint8Array(32)));
    const response = await fetch(url(`api/identity?challenge=${challenge}`), { signal, cache: "no-store" });
    if (!response.ok || !isJson(response)) throw new TypeError("another program answers");
    const key = await crypto.subtle.importKey("raw", encode(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    const proof = toHex(new Uint8Array(await crypto.subtle.sign("HMAC", key, encode(`agenticx ${location.host} ${challenge}`))));
    if ((await response.json()).proof !== proof) {
      signOut("The program that answers here has not this tab's token: another one, or the studio with a new token.");
      throw new TypeError("another program answers");
    }
  }
  isStudio = true;
}

const encode = (/** @type {string} */ text) => new TextEncoder().encode(text);

const toHex = (/** @type {Uint8Array} */ bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {Response} response */
async function problemOf(response) {
  if (!isJson(response)) return new ApiError(response.status, "unknown", `The studio answered ${response.status}.`);
  const { code, detail } = await response.json();
  return new ApiError(response.status, code, inWords(detail));
}

/** Return what the studio says without ids of sessions and turns and names of fields, which a person does not know. */
const inWords = (/** @type {string} */ detail) => detail
  .replace(/^'[^']*': (.)/, (_, /** @type {string} */ first) => first.toUpperCase())
  .replace(/^session '[^']*' already runs .*$/, "A turn runs in this session. Stop it first, or wait for its end.")
  .replace(/^session '[^']*'/, "This session").replace(/\bof session '[^']*'/g, "of this session");

/** @param {string} method @param {unknown} body */
function jsonRequest(method, body) {
  return { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

const isJson = (/** @type {Response} */ response) => /json/.test(response.headers.get("Content-Type") ?? "");

/** Take the token of another tab that is signed in: a session opened in a new tab has none of its own. */
export function askOtherTabs() {
  if (heldToken) sessionStorage.setItem(TOKEN_KEY, heldToken);
  return new Promise((resolve) => {
    const channel = new BroadcastChannel(CHANNEL);
    const end = () => { channel.close(); resolve(undefined); };
    channel.onmessage = ({ data }) => {
      if (typeof data?.token !== "string") return;
      sessionStorage.setItem(TOKEN_KEY, data.token);
      end();
    };
    channel.postMessage("ask");
    setTimeout(end, ASK_MS);
  });
}

/** @type {BroadcastChannel|null} */
let channel = null;

/** Answer a tab that asks for the token, unless another program answers at this address: then the tab may be its page. */
async function answerTab() {
  isStudio = false;
  try {
    await checkIdentity();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return;
  }
  if (token()) channel?.postMessage({ token: token() });
}

/** Answer tabs that ask for the token, and hear what they say of the studio. */
export function shareToken() {
  channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = ({ data }) => {
    if (data === "ask" && token()) answerTab();
    if (data === "doubt") isStudio = false;
    if (typeof data?.signedIn === "string" && signedIn.peek() === "out" && !isOpenedElsewhere()) {
      sessionStorage.setItem(TOKEN_KEY, data.signedIn);
      signedIn.value = "in";
    }
  };
}
