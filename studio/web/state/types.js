// The state of a session, as `applyEvents` makes it of the session's events. Times are RFC 3339, as in the events.
// Keys that begin with an underscore serve only to go on with the next event.
// @ts-check

/**
 * @typedef {object} SessionState
 * @property {Record<string, any>} session What `session_changed` told last: name, model, permission_mode, vaults, ….
 * @property {Turn[]} turns The turns of the user's messages, in order; those of other branches have `onPath` false.
 * @property {Record<string, Turn>} childTurns Turns below others, by id: of sub-agents, participants and options.
 * @property {Record<string, Agent>} agents The sub-agents, by id.
 * @property {Request[]} requests Confirmations and questions, open and answered, in order.
 * @property {Queued[]} queue Messages that wait: for the running turn, or for a turn of their own.
 * @property {Queued[]} handedBack Messages that were not delivered, as the turn that they waited for was stopped.
 * @property {Record<string, Record<string, Revision[]>>} artifacts Revisions by path, the oldest first, by the number
 *   of the option that has them; "0" are the session's own.
 * @property {string | null} runningTurnId The turn of the user's message that runs.
 * @property {Note[]} notesBefore What happened before the first message, for example a rewind to the beginning.
 * @property {MessageNode[]} messages The tree of messages; each with the one before it.
 * @property {string | null} lastMessageId The last message of the conversation, which the next one follows.
 * @property {string | null} lastEventTs
 * @property {number} lastSeq The number of the last event; events up to it are not applied again.
 * @property {boolean} _acceptsCalls Whether the next tool calls belong to the last message.
 */

/** @typedef {{key: string, previousId: string | null, turnId: string | null}} MessageNode `key` is the message's id. */

/** @typedef {{name: string, media_type: string, size: number, sha256?: string}} Attachment */

/**
 * @typedef {object} Turn
 * @property {string} key The id.
 * @property {string} id
 * @property {string} agentId
 * @property {string | null} parentTurnId
 * @property {TurnMessage} message
 * @property {string} model
 * @property {string | null} mode
 * @property {string | null} modeReason
 * @property {string | null} permissionMode "auto" if calls run without questions.
 * @property {string | null} startedAt
 * @property {string | null} endedAt
 * @property {"running" | "done" | "partial" | "stopped" | "failed" | "interrupted" | "paused"} status
 * @property {string | null} state The last `state`: planning, compacting, executing, observing, responding, done.
 * @property {number} round
 * @property {number} maxRounds
 * @property {string[]} speakers The participants of a team that speak now.
 * @property {Waiting | null} waiting What is waited for; null once output arrives.
 * @property {Item[]} items In the order in which they appeared.
 * @property {Note[]} notes What happened in the session after this turn and before the next one.
 * @property {Usage} usage
 * @property {string[]} steps The reasoning steps, a sentence each.
 * @property {End | null} end
 * @property {boolean} onPath Whether its message is part of the conversation, which a rewind can change.
 * @property {any} _reasoning
 * @property {string | null} _openText The key of the text that grows.
 * @property {string | null} _openThinking
 * @property {boolean} _isTalk Whether the team has chosen a speaker; what it says before is the task.
 * @property {Record<string, string>} _spoken The messages of child turns since then, with those turns.
 * @property {string[]} _paths The files that it has begun.
 * @property {string | null} _speech The last speech, which the answer repeats.
 */

/**
 * The message with which a turn begins. Of a sub-agent's it is the task, or has the messages that were waiting for it, of
 * which `senders` are agents by their ids, or null for the user; there are none if it begins with the task.
 * @typedef {{id: string, text: string, attachments: Attachment[], clientTurnId: string | null, senders: (string | null)[]}} TurnMessage
 */

/**
 * @typedef {object} Waiting
 * @property {string} phase "model" from the call of a model on, "compaction", or the phase of a `stall`.
 * @property {string | null} since
 * @property {number} elapsedSeconds As the last event said.
 * @property {number | null} limitSeconds
 * @property {string} action waiting, retrying or failed
 * @property {string | null} retryAt
 * @property {string | null} model The model of the next try.
 */

/** @typedef {{inputTokens: number | null, outputTokens: number | null, cachedTokens: number | null, reasoningTokens: number | null, costUsd: number | null}} Usage */

/**
 * @typedef {object} End
 * @property {string | null} reason Of a `final`: answer, resolved, not_resolved, handoff, partial.
 * @property {string | null} code Of a fatal `error`.
 * @property {string} text The answer, or the error in a sentence.
 * @property {string | null} messageId Of the answer.
 * @property {boolean} retryable
 * @property {string | null} retryAt
 * @property {any} output The object that was asked for.
 * @property {string | null} stopReason Why the run of a team stopped.
 */

/** @typedef {TextItem | ThinkingItem | CallItem | MessageItem | RequestItem | TurnItem | Note} Item */

/**
 * Of every item: `key` is unique in the turn and stays; `after` is the message that was the last one; `onPath` says
 * whether that is part of the conversation.
 * @typedef {{key: string, after: string | null, onPath: boolean}} Place
 */

/** @typedef {Place & {kind: "text", id: string, text: string, complete: boolean, speaker: string | null, citations: any[]}} TextItem */
/** @typedef {Place & {kind: "thinking", id: string, text: string, startedAt: string | null, endedAt: string | null}} ThinkingItem */
/** @typedef {Place & {kind: "message", id: string, text: string, attachments: Attachment[], fromAgentId: string | null}} MessageItem A message taken into the turn, of the user or of an agent. */
/** @typedef {Place & {kind: "request", id: string}} RequestItem Where a request of `requests` was made. */
/** @typedef {Place & {kind: "turn", id: string, agentId: string}} TurnItem A participant's or an option's turn of `childTurns`. */

/**
 * What happened, with the data of its event: `compaction`, `handoff`, `retrying` (a stall with a reason), `error` (one
 * that is not fatal), `speaker_selected` (with a `fallback`), `team_reset`, `rewound` ({rewound_to, undo}: rewinding to
 * `undo` reverses it), `picked` and `handed_back`.
 * @typedef {Place & {kind: "note", type: string, data: Record<string, any>, at: string | null}} Note
 */

/**
 * @typedef {object} CallFields
 * @property {"call"} kind
 * @property {string} id
 * @property {string} name
 * @property {Record<string, any> | string | null} args Null while they are written; a string if they are no object.
 * @property {string} argsText What is written of them.
 * @property {"written" | "requested" | "waiting" | "queued" | "running" | "done"} phase "waiting" for the person; "queued"
 *   behind another call of the reply, which is being written, waits or runs, or denied and not answered yet.
 * @property {string | null} startedAt When it was asked for, was allowed, or its turn came.
 * @property {string | null} outcome As in `tool_result`; "dropped" if the reply was cut before the call was made, "stopped" if by a stop.
 * @property {boolean} isError
 * @property {string | null} result
 * @property {string} output The end of what a running tool reported.
 * @property {number} elapsedSeconds
 * @property {number | null} durationMs
 * @property {boolean} truncated
 * @property {any[]} allowedBy The rules of the person that allowed it, so that nobody was asked.
 * @property {boolean} repaired
 * @property {boolean} edited Whether the person changed the arguments.
 * @property {any} data
 * @property {Attachment[]} attachments
 * @property {string | null} requestId The confirmation or question it waits or waited for.
 * @property {string | null} agentId The sub-agent that it began.
 * @typedef {Place & CallFields} CallItem
 */

/**
 * @typedef {object} Request
 * @property {string} key The id.
 * @property {string} id
 * @property {"confirm" | "question"} kind
 * @property {string | null} turnId
 * @property {string} agentId
 * @property {string[]} agentPath From the main agent to the one that asks; empty for the main agent.
 * @property {string | null} toolCallId
 * @property {string | null} tool
 * @property {string} question
 * @property {string[]} options
 * @property {Record<string, any>} context
 * @property {string | null} digest
 * @property {string | null} askedAt
 * @property {string | null} expiresAt
 * @property {Answer | null} answer
 * @property {boolean} isAskedAnew Whether it was closed, as its reasons changed, and another one asks about the call.
 */

/** @typedef {{approved: boolean | null, answer: string | null, by: string, reason: string | null, remember: string | null, rules: any[], arguments: Record<string, any> | null, at: string | null}} Answer */

/** @typedef {{messageId: string, turnId: string | null, clientTurnId: string | null, input: string, attachments: Attachment[], position: "into" | "after", at: string | null}} Queued `position`: into the running turn, or after it. */

/**
 * @typedef {object} Agent
 * @property {string} id
 * @property {string | null} parentId
 * @property {number} depth
 * @property {string} task
 * @property {"running" | "paused" | "completed" | "failed" | "cancelled"} status
 * @property {number} rounds Of all its runs.
 * @property {number} round
 * @property {number} maxRounds
 * @property {string | null} result
 * @property {{code: string, text: string} | null} error
 * @property {string | null} spawnCallId
 * @property {string[]} turnIds
 * @property {AgentMessage[]} waiting Messages for it that it has not taken: its turn takes them, or the next one begins with
 *   them, after a retry or another message.
 * @property {number} tokens
 * @property {string} activity
 * @property {string | null} startedAt
 * @property {string | null} endedAt
 * @property {(string | null)[]} _senders Of the messages with which its next turn begins.
 */

/** @typedef {{id: string, text: string, fromAgentId: string | null, at: string | null}} AgentMessage Of the user, or of an agent. */

/**
 * @typedef {object} Revision
 * @property {string} path
 * @property {number} number
 * @property {string | null} text Null if only the server has the content, and of a file that is no text.
 * @property {string} mediaType
 * @property {number | null} size
 * @property {string | null} sha256
 * @property {boolean} growing
 * @property {string | null} turnId
 * @property {string | null} toolCallId
 * @property {string | null} after
 * @property {boolean} onPath
 * @property {number} _characters The code points of `text`; -1 once something of it is missing.
 */

/** @typedef {{type: string, data?: any, agent_id?: string, turn_id?: string | null, session_id?: string, seq?: number, ts?: string}} Envelope */

export {};
