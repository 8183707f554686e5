// @ts-check
// What a session wants of the person, from its state (`reducer.js`).

/** @typedef {import("./types.js").SessionState} SessionState */

/** Return the requests that wait for the person, in their order. */
export const openRequests = (/** @type {SessionState} */ state) => state.requests.filter((request) => !request.answer);

/** Return the sub-agents that work, perhaps after the turn that began them. */
export const workingAgents = (/** @type {SessionState} */ state) => Object.values(state.agents).filter(({ status }) => status === "running");

/** Return whether a turn runs, or a sub-agent works or waits for the person. */
export const canStop = (/** @type {SessionState} */ state) =>
  state.runningTurnId !== null || openRequests(state).length > 0 || workingAgents(state).length > 0;
