"""Teams from files: their configuration, and the runs of such a team as turns of a session.

A team is a TOML file: `NAME.toml` in the folder `teams` of AGX_HOME (`~/.agenticx`), or one of those that come with
AgenticX, which a file of the user with the same name replaces. `agx team list` shows all, with their paths and
problems; `agx team run NAME "task"`, `POST /api/sessions {"team": NAME}` and `hub.create(team=NAME)` use them. A file
is read at the beginning of each run. For example:

    kind = "swarm"
    description = "A desk answers, or has a clerk look the order up; both may ask the customer."
    max_turns = 12

    [[participants]]
    name = "desk"
    description = "Talks to the customer."
    system_message = "Answer politely. For facts about an order hand over to clerk. End with DONE."
    handoffs = ["clerk", "customer"]

    [[participants]]
    name = "clerk"
    description = "Finds orders in the files."
    model = "demo"
    system_message = "Look the order up in the files, then hand over to desk."
    tools = ["file_read", "file_search"]
    handoffs = ["desk"]

    [[termination]]
    type = "handoff"
    target = "customer"

    [[termination]]
    type = "text_mention"
    text = "DONE"
    sources = ["desk"]

    [[termination]]
    type = "stuck"

Keys marked with ? may be left out. Keys of the team:

    kind           round_robin: the participants speak in their order; selector: a model chooses who speaks;
                   swarm: the target of the last handoff speaks, else who spoke last, else the first
    participants   1 to 100 of them, see below
    termination?   conditions, see below; a run ends when one of them is met
    max_turns?     the most speeches of a run, 1 to 10,000; without it AGX_TEAM_MAX_TURNS, 100
    description?   a sentence for lists

Keys of a selector only:

    model?                    the model that chooses; by default the session's
    selector_prompt?          its prompt, in which {roles} becomes a line `NAME: description` for each participant,
                              {participants} the list of the names that may be chosen now, and {history} the last 40
                              messages, of at most 24,000 characters; without any of these it is the system
                              message before the built-in prompt
    allow_repeated_speaker?   true if a participant may speak twice in a row; false by default

Keys of a participant, which is an agent, or with `kind = "user"` the user, who is asked when it is their turn:

    name             an identifier of at most 64 characters, other than meta; an agent's also other than user
    description?     what a selector's model reads about it
    kind?            assistant (the default) or user; a user has no further keys
    system_message   the instructions; the AGENTS.md files of the workspace follow them
    model?           by default the session's
    tools?           names of the session's tools; none by default
    handoffs?        participants to which it may hand over, by tools `handoff_to_NAME` with a `reason`; also a name
                     that is nobody's in the team if a condition `handoff` has it as its target: the run ends then,
                     and the next message of the user goes to the agent that handed over

Conditions, by `type`, with their keys:

    max_messages     max_messages, include_agent_event?: of the run, with the task; events count too if that is true
    text_mention     text, sources?: a text in a message of one of these participants, by default in any but the user's
    text_message     source?: a text, as opposed to a handoff, of that participant, by default of any
    stop_message     a `StopMessage`, which participants of the application's own can send
    source_match     sources: a message of one of these participants
    handoff          target: a handoff to that participant, or to somebody outside
    function_call    function_name: a result of that tool
    token_usage      max_total_token?, max_prompt_token?, max_completion_token?: of all participants; at least one
    cost             max_cost_usd: of all participants; a model without a known price ends the run
    timeout          timeout_seconds: of work, without waiting for a person
    stuck            repeats?: participants that only repeat themselves, by default three times

`sources` and `source` may also name `user`, who gives the task. A key that is not listed here is a problem, which names
the file and the place. A file that is a link to one outside of its folder is refused. A session whose file is gone or
has a problem ends its turns with the error `team_unavailable`.
"""
