"""The demo model among other agents: their speeches, handoffs, and the choice of a speaker.

The rules for teams and handoffs:

1. A speech of another agent is followed if its first line is a sentence that the demo knows.
2. After a handoff its reason counts, else what the person asked for.
3. An agent that cannot do the request hands off to an agent that it names, else to one that has not spoken; a question
   for the person goes to an agent with a name like `user`.
4. After speeches of others, the demo ends with the word in capitals that its instructions ask for, for example DONE.
5. Asked to choose from a list of names such as `['a', 'b']`, it names the one that has spoken least.

The rules for pages:

1. The design of a new page has the number after "option" in the message, or in a system prompt that asks for an option;
   the first design is the default.
2. A page is changed by exact text of the last written file, taken from the calls in the conversation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agenticx.llms.base import ModelRequest, ToolSchema
from agenticx.llms.demo.pages import (
    INDEX,
    NewPage,
    PageChange,
    design_words,
    edit_of,
    make_page,
    pages_in,
    title_of,
)
from agenticx.llms.demo.plan import HANDOFF, Plan, PlannedCall, make_plan
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from agenticx.untrusted_text import without_frames

__all__ = ["DemoConversation", "least_heard_choice"]

_SPEAKER = re.compile(r"\A([\w .-]{1,100}) said:\n")
_CONTEXT = re.compile(r"\A\[[\w .-]{1,100} called ")  # of a handoff
_TRANSFERRED = re.compile(r"\ATransferred to (\w+),")
_FRAME = re.compile(r"^\[(sub-agent [^\[\]\n]*), boundary .*", re.MULTILINE)
_REASON = "\nReason: "
_HANDOFF_TOOL = re.compile(r"(?:handoff|transfer)_to_(\w+)")
_EARLIER_HANDOFF = re.compile(r"\bused (?:handoff|transfer)_to_(\w{1,64})")
_ENDING = re.compile(r"\b(?:word|with|answer|say|reply)\s+[\"'`“]?([A-Z][A-Z_]{2,30})\b")
_CHOICE = re.compile(r"\['\w{1,100}'(?:, '\w{1,100}')*\]")
_PERSONS = ("person", "user", "human", "customer")
_SEARCHED_CHARS = 4_000
_PASSAGE = re.compile(r"\[passage (\d+): [^\n]*\n(.*?)\n\[end of passage \1: ", re.DOTALL)
_WORD = re.compile(r"\w{4,}")
_QUOTED_CHARS, _NOTES_CHARS = 500, 40_000
_MOST_HANDOFFS = 4  # in one request
_OPTION = re.compile(r"\boption[ #-](\d{1,6})\b", re.IGNORECASE)
_OWN_OPTION = re.compile(
    r"\b(?:are|is|as|make|build|write)\s+option[ #-](\d{1,6})\b|\boption[ #-](\d{1,6}) of \d", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class DemoConversation:
    """A request, seen from the last message that is not the engine's: `text`, of `speaker` or, if None, of the person.

    `task` is the person's last message, `later` are the messages after `text`, and `heard` the agents that have spoken
    since the task.
    """

    request: ModelRequest
    message: UserMessage
    text: str
    speaker: str | None
    task: str
    heard: frozenset[str]
    later: Sequence[Message]
    has_handed_over: bool

    @classmethod
    def of(cls, request: ModelRequest) -> DemoConversation:
        """Return the conversation of a request."""
        messages, last, heard, has_handed_over = request.messages, None, set[str](), False
        task = UserMessage(content="")
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            if isinstance(message, AssistantMessage) and last is not None:
                has_handed_over |= any(_HANDOFF_TOOL.fullmatch(call.name) for call in message.tool_calls)
            if not isinstance(message, UserMessage) or message.injected:
                continue
            if last is None:
                last = index
            if speaker := _SPEAKER.match(message.content):
                heard.add(speaker[1])
            elif not _CONTEXT.match(message.content):
                task = message
                break
        message = messages[last] if last is not None else task
        assert isinstance(message, UserMessage)
        speaker = _SPEAKER.match(message.content)
        return cls(
            request=request,
            message=message,
            text=without_frames(message.content if speaker is None else message.content[speaker.end() :]),
            speaker=None if speaker is None else speaker[1],
            task=task.content,
            heard=frozenset(heard),
            later=messages[last + 1 :] if last is not None else (),
            has_handed_over=has_handed_over,
        )

    @property
    def results(self) -> Sequence[ToolMessage]:
        """The results of the calls since the last message."""
        return [message for message in self.later if isinstance(message, ToolMessage)]

    @property
    def subagent_endings(self) -> Sequence[str]:
        """The endings of sub-agents that the engine has told of since the last message, each after its label."""
        injected = [message.content for message in self.later if isinstance(message, UserMessage) and message.injected]
        told = [text for text in injected if text.startswith("[sub-agent ")]
        return [without_frames(_FRAME.sub(r"[\1]\n\g<0>", text)) for text in told]

    def noted_line(self) -> str:
        """Return the line of the given passages that has most of the message's words, with its marker; "" for none.

        If none has any, it is the first line of the first passage that the message got.
        """
        wanted, best, found = {*_WORD.findall(self.text.lower())}, 0, ""
        for message in self.request.messages:
            if not (isinstance(message, UserMessage) and message.injected and message.sources):
                continue
            first = ""
            for passage in _PASSAGE.finditer(message.content[:_NOTES_CHARS]):
                for line in passage[2].splitlines():
                    if line.startswith(("#", "---")) or not _WORD.search(line):
                        continue
                    quoted = f"\u201c{line.strip()[:_QUOTED_CHARS]}\u201d [^{passage[1]}]"
                    first = first or quoted
                    hits = len(wanted & {*_WORD.findall(line.lower())})
                    if hits > best:
                        best, found = hits, quoted
            if best == 0:
                found = first or found
        return found

    @property
    def calls_made(self) -> int:
        """The number of calls since the last message."""
        return sum(len(message.tool_calls) for message in self.later if isinstance(message, AssistantMessage))

    @property
    def tools(self) -> Mapping[str, ToolSchema]:
        """The offered tools by name."""
        return {} if self.request.tool_choice == "none" else {tool.name: tool for tool in self.request.tools}

    def plan(self) -> Plan:
        """Return the plan for the reply, with handoffs as the tools that are offered for them."""
        plan = self._requested()
        cannot = plan.kind in {"other", "heard"} or plan.calls
        if cannot and not any(call.tool in self.tools or call.tool.startswith(HANDOFF) for call in plan.calls):
            return self._handed_over(plan) or plan
        return plan

    def due(self, planned: PlannedCall) -> PlannedCall | str:
        """Return a planned call as it is to be made now, with its exact arguments, or a sentence that says why not."""
        match planned.page:
            case None:
                return self._of_a_written_file(planned)
            case NewPage() as page:
                content = make_page(self._with_subject(page), self._design)
                return replace(planned, arguments={"path": INDEX, "content": content})
            case PageChange() as change:
                written = pages_in(self.request.messages)
                if not written:
                    return f"I could not {planned.intent}: I have made no page in this conversation yet."
                path, content = list(written.items())[-1]
                edit = edit_of(content, change)
                if edit is None:
                    return f"I could not {planned.intent}: {path} has no such text."
                return replace(planned, arguments={"path": path, **edit})

    def report(self, planned: PlannedCall) -> str:
        """Return the sentence that reports a call that has succeeded, "" if its result does."""
        if not isinstance(planned.page, NewPage):
            return planned.done
        title, look = title_of(self._with_subject(planned.page)), design_words(self._design)
        if planned.page.language == "de":
            return f"Die Seite „{title}“ steht in {INDEX}; als Skript habe ich Beispieltext verwendet."
        seen = " I am a script, so I did not look at the image." if self._has_image else ""
        return f"I have made the page “{title}” in {INDEX}, {look}; its text is an example.{seen}"

    def _of_a_written_file(self, planned: PlannedCall) -> PlannedCall:
        """Return the edit of a file that calls in the conversation have written as one of `edit_file`."""
        path = planned.arguments.get("path")
        if planned.tool != "file_edit" or "edit_file" not in self.tools or path not in pages_in(self.request.messages):
            return planned
        return replace(planned, tool="edit_file")

    @property
    def _has_image(self) -> bool:
        return any(attachment.kind == "image" for attachment in self.message.attachments)

    def _with_subject(self, page: NewPage) -> NewPage:
        """Return the page, about the name of the attached file if the request says no subject."""
        if page.subject or not self.message.attachments:
            return page
        return replace(page, subject=self.message.attachments[0].name.rpartition(".")[0])

    @property
    def _design(self) -> int:
        injected = [message.content for message in self.later if isinstance(message, UserMessage) and message.injected]
        for text in (self.message.content, *injected):
            if found := _OPTION.search(text[:_SEARCHED_CHARS]):
                return int(found[1])
        for message in self.request.messages:
            if isinstance(message, SystemMessage) and (found := _OWN_OPTION.search(message.content)):
                return int(found[1] or found[2])
        return 1

    def ending(self) -> str:
        """Return the word that ends an answer after others have spoken, "" if there is none."""
        system = next((message for message in self.request.messages if isinstance(message, SystemMessage)), None)
        if system is None or not self.heard or self.request.output_schema is not None:
            return ""
        found = _ENDING.search(system.content[:_SEARCHED_CHARS])
        return "" if found is None else found[1]

    def _requested(self) -> Plan:
        """Return the plan for what is asked for, by the last message or before a handoff."""
        if self.speaker is None:
            taken_over_by = self._taken_over_by()
            return self._resolved(make_plan(_addressed(self.text, taken_over_by) if taken_over_by else self.text))
        if transferred := _TRANSFERRED.match(self.text):
            reason = self.text.partition(_REASON)[2]
            plan = self._resolved(make_plan(reason)) if reason else Plan()
            if plan.kind == "other":
                plan = self._resolved(make_plan(_addressed(self.task, transferred[1])))
            is_answered = any(name.casefold() in _PERSONS for name in self.heard)
            return self._heard() if is_answered and any(call.tool == "ask_user" for call in plan.calls) else plan
        if make_plan(self.text.partition("\n")[0]).kind in {"other", "help"}:
            return self._heard()
        return self._resolved(make_plan(self.text))

    def _heard(self) -> Plan:
        return Plan(kind="heard", text=self.task.strip())

    def _resolved(self, plan: Plan) -> Plan:
        """Return the plan with the names of tools that are offered; of a handoff made before, what is left to do."""
        for _ in range(_MOST_HANDOFFS):
            calls = tuple(self._resolved_call(call) for call in plan.calls)
            if not calls or calls[0].tool in self.tools or not calls[0].tool.startswith(HANDOFF):
                return replace(plan, calls=calls)
            if not (rest := calls[0].arguments["reason"]):
                break
            plan = make_plan(rest)
        took_over = self.speaker is not None or self._taken_over_by()
        return Plan(kind="say", text="I have taken over.") if took_over else plan

    def _resolved_call(self, call: PlannedCall) -> PlannedCall:
        if not call.tool.startswith(HANDOFF):
            return call
        wanted = call.tool.removeprefix(HANDOFF).casefold()
        tool = next((tool for name, tool in self._handoffs() if name.casefold() == wanted), None)
        return call if tool is None else _handoff_call(call.tool.removeprefix(HANDOFF), tool, call.arguments["reason"])

    def _taken_over_by(self) -> str:
        """Return the name of the agent of the last handoff, "" without one."""
        for message in reversed(self.later):
            is_note = isinstance(message, UserMessage) and message.injected
            if is_note and (names := _EARLIER_HANDOFF.findall(message.content)):
                return names[-1]
        return ""

    def _handoffs(self) -> Iterator[tuple[str, ToolSchema]]:
        """Yield the targets of the handoff tools, with these."""
        for name, tool in self.tools.items():
            if found := _HANDOFF_TOOL.fullmatch(name):
                yield found[1], tool

    def _handed_over(self, plan: Plan) -> Plan | None:
        """Return the plan with a handoff in place of what the agent cannot do, None if it is to answer itself."""
        handoffs = dict(self._handoffs())
        request = self.text if self.speaker is None else self.task
        question = next((_question(call) for call in plan.calls if call.tool == "ask_user"), "")
        named = _named(request, handoffs)
        if question:
            target = next((name for name in handoffs if name.casefold() in _PERSONS), None)
        elif named is not None and named not in self.heard:
            target = named
        elif self.heard and self.ending():
            target = None
        else:
            unheard = [name for name in handoffs if name not in self.heard]
            target = next(iter(unheard or (() if self.has_handed_over else handoffs)), None)
        if target is None:
            return None
        rest = _addressed(request, target)
        reason = question or (rest if rest != request else "")
        return Plan((_handoff_call(target, handoffs[target], reason),), plan.thinking_topic, "calls")


def _question(call: PlannedCall) -> str:
    options = ", ".join(call.arguments.get("options", ()))
    return f"{call.arguments['text']} ({options})" if options else call.arguments["text"]


def _handoff_call(target: str, tool: ToolSchema, reason: str) -> PlannedCall:
    takes_reason = "reason" in tool.parameters.get("properties", {})
    return PlannedCall(tool.name, {"reason": reason} if reason and takes_reason else {}, f"hand over to {target}")


def _addressed(request: str, name: str) -> str:
    """Return a request without the name of the addressed agent."""
    return re.sub(rf"\A\s*+{re.escape(name)}\b[\s,:]*+", "", request, flags=re.IGNORECASE)


def _named(request: str, names: Mapping[str, object]) -> str | None:
    """Return the first of the names that stands in the beginning of a request as a word."""
    words = {word.casefold() for word in re.findall(r"\w+", request[:_SEARCHED_CHARS])}
    return next((name for name in names if name.casefold() in words), None)


def least_heard_choice(request: ModelRequest) -> str | None:
    """Return the name from a list to choose from that begins the fewest lines, None if nothing is to be chosen.

    >>> from agenticx.messages import UserMessage
    >>> words = "writer: Draft.\\n\\nChoose the next role to speak from ['writer', 'critic']."
    >>> least_heard_choice(ModelRequest(messages=[UserMessage(content=words)]))
    'critic'
    """
    last = request.messages[-1] if request.messages else None
    if request.tools or not isinstance(last, UserMessage):
        return None
    text = last.content
    listed = [found[0] for found in _CHOICE.finditer(text)]
    if not listed or not re.search(r"\b(?:choose|select)\b", text, re.IGNORECASE):
        return None
    spoken = Counter(line.partition(":")[0] for line in text.splitlines())
    return min(re.findall(r"\w+", listed[-1]), key=lambda name: spoken[name])
