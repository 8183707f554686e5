// @ts-check
// The turns of the person as a participant of a team.

const TURN_TO_SPEAK = "It is your turn to speak."; // with which the studio ends the question to a participant of a team

/** Return whether a team waits for what the person says as one of its participants. @param {import("./types.js").Request} request */
export const isTeamTurn = ({ kind, toolCallId, question }) => kind === "question" && !toolCallId && question.endsWith(TURN_TO_SPEAK);

/** Return what a question asks; that of a team is what was said last. @param {import("./types.js").Request} request */
export const askedText = (request) => isTeamTurn(request) ? request.question.slice(0, -TURN_TO_SPEAK.length).trimEnd() : request.question;
