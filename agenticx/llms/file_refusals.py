"""Attached files that a server refuses: recognised in errors, and replaced by notes in requests.

A server that cannot read an image, or finds it too large, refuses each request that has it. So a refusal is recorded in
the message of its turn (`UserMessage.refused_files`), for the model that refused: another model gets the file, and a
rewind to an earlier message removes the record.

Some servers refuse a file without a reason ("Request contains an invalid argument."). A file that is new in a request
refused in such words is suspected: its mark says so, and is removed if the next request, without it, is refused too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agenticx.errors import ModelError, ModelErrorCode
from agenticx.lazy_patterns import lazy_compile
from agenticx.messages import Attachment, Message, RefusedFile, ToolMessage, UserMessage

__all__ = [
    "SentFile",
    "data_at_path",
    "find_refused",
    "find_suspected",
    "find_too_large",
    "is_undecodable",
    "is_vague",
    "mark_refused",
    "note_for",
    "sent_files",
    "with_notes",
    "without_refused_files",
]

_CODES: frozenset[ModelErrorCode] = frozenset({"provider.bad_request", "provider.content_filter"})
_SERVER_ERROR = 500
"""Some servers refuse a file that their model code cannot use with this status; it counts if a kind is named."""

_MAX_CHARS = 2_000
_FORMAT = "png|jpe?g|gif|webp|bmp|tiff|heic"
_IMAGE = (
    rf"images?|pictures?|photos?|pixels?|image_url|input_image|multi-?modal data|图片|图像|{_FORMAT}|aspect ratio"
    r"|visual|vision (?:inputs?|content|data)|process inputs"
)
_DOCUMENT = r"pdf|documents?|pages?"
_FILE = (
    r"files?(?! an? )|attachments?|media|inline[_ ]?data|input_file|file_data|mime|media_?type|base64|data[ -]ur[il]s?"
    r"|文件|附件"
)
_NAMED = lazy_compile(rf"(?<![a-z])(?:(?P<image>{_IMAGE})|(?P<document>{_DOCUMENT})|(?P<file>{_FILE}))(?![a-z])", re.I)
_COMPLAINT = lazy_compile(
    r"exceed|too (?:large|big|small|many|long|wide|high)|larger|smaller|maximum|at most|at least|limit|invalid|illegal"
    r"|(?:not|un)[- ]?(?:be )?(?:valid|support|allow|accept|readable)|unknown|unrecogni|n[o']t (?:be )?(?:read|load)"
    r"|unable|fail|can ?not|can't|could(?: not|n't)|corrupt|decod|process|dimension|encrypt|password|empty|truncat"
    r"|broken|malformed|mismatch|(?:does|do|is|are|was|has) no(?:t|n)?\b|must be|should be"
    r"|flagged|violat|safety|inappropriate|moderation|identified|(?:image|decoding) error"
    r"|超|过大|过小|太大|太小|无法|不能|不支持|不合法|无效|非法|错误|失败|损坏",
    re.IGNORECASE,
)
_OTHER = lazy_compile(
    r"(?<![a-z])(?:tools?|functions?|schema|response_format)(?![a-z])|_search|_generation", re.IGNORECASE
)
"""Words of errors about tools: their names and descriptions may name files. Such an error names a file by its path."""

_NO_MODEL = lazy_compile(
    r"model\b.{0,120}?(?:not[ _]?found|not exist)|(?:unknown|invalid|no such) model", re.IGNORECASE
)
"""Errors about a model: its name may contain `image`."""

_UNDECODABLE = lazy_compile(
    rf"(?<![a-z])(?:images?|pdf|documents?|{_FORMAT})\W.{{0,40}}"
    r"(?:unknown format|unsupported|invalid|corrupt|truncat|decod|identif|not enough|unexpected eof)"
    r"|(?:fail\w*|unable|not|n't) (?:to )?(?:be )?(?:load|process|decode|identify|open|read)\w* .{0,20}"
    r"(?:image|pdf|multi-?modal|picture)|illegal base64|invalid (?:base64|image)|UnidentifiedImage"
    r"|fail\w* to process inputs",
    re.IGNORECASE,
)
_WORD_IN_CAMEL_CASE = lazy_compile(r"(?<=[a-z])(?=[A-Z])")

_REASON = lazy_compile(r"answered with HTTP \d{3}:? ?")
_VAGUE_STATUSES = (400, 422)
_VAGUE_WORD = lazy_compile(
    "algo|an?|and|any|api|arguments?|bad|be|by|can|cannot|check|code|complete|contains?|content|could|entity|errors?|exception"
    "|fail|failed|failure|for|format|from|generate|handle|has|have|http|in|incorrect|inputs?|internal|invalid|is|it"
    "|malformed|more|not|of|one|or|our|param|params|parameters?|parse|please|process|processed|provided|provider|requests?"
    "|response|returned|server|some|something|status|submitted|that|the|this|to|try|again|type|unable|unknown"
    "|unprocessable|upstream|valid|validation|values?|was|we|went|with|wrong|you|your"
)
"""Words of an error that gives no reason; with any other word in it, it is about something."""
_VAGUE_CHINESE = lazy_compile(
    "请求|调用|参数|输入|内容|格式|错误|有误|无效|非法|异常|失败|请检查|文档|不合法|不正确|的"
)

_PATH = lazy_compile(r"\b(messages|input|contents)((?:[\s.\[\]\"',>-]{1,4}\w{1,32}){1,10})")
_ORDINAL = lazy_compile(
    r"(?<![a-z])(?:image|picture|file|document|pdf|attachment)s?(?: (?:number|no\.?|at))?"
    r"(?P<zero> (?:index|position) |\[)?[ #_-]{0,2}(?P<number>\d{1,3})\b(?! ?(?:[kmg]i?b|px|pixel|byte|x\b|\.\d))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SentFile:
    """An attachment that is sent to a model as a file: it is no text, and the model has not refused it."""

    message: UserMessage | ToolMessage
    index: int

    @property
    def key(self) -> tuple[str, int]:
        return self.message.message_id, self.index

    @property
    def attachment(self) -> Attachment:
        return self.message.attachments[self.index]


# --- notes in place of files ------------------------------------------------------------------------------------------


def without_refused_files(messages: Sequence[Message], model: str) -> list[Message]:
    """Return the messages with a note in the text in place of each attachment that `model` refused."""
    refused = _refused_by(messages, model)
    return with_notes(messages, refused, "your server refused it") if refused else list(messages)


def with_notes(messages: Sequence[Message], files: Container[tuple[str, int]], reason: str) -> list[Message]:
    """Return the messages with a note in the text in place of each of the `files`, given by `SentFile.key`."""
    return [_with_notes(message, files, reason) for message in messages]


def note_for(attachment: Attachment, reason: str) -> str:
    """Return the text that a model gets in place of a file."""
    description = f"{attachment.name!r} ({attachment.media_type}, {attachment.size} bytes)"
    return f"[attached file {description}: its content is not here, because {reason}]"


def _with_notes(message: Message, files: Container[tuple[str, int]], reason: str) -> Message:
    if not isinstance(message, UserMessage | ToolMessage):
        return message
    notes, kept = list[str](), list[Attachment]()
    for index, attachment in enumerate(message.attachments):
        if attachment.kind != "text" and (message.message_id, index) in files:
            notes.append(note_for(attachment, reason))
        else:
            kept.append(attachment)
    if not notes:
        return message
    text = "\n\n".join([*notes, message.content] if message.content else notes)
    return message.model_copy(update={"content": text, "attachments": tuple(kept)})


def _refused_by(messages: Sequence[Message], model: str) -> set[tuple[str, int]]:
    marks = (mark for message in messages if isinstance(message, UserMessage) for mark in message.refused_files)
    return {(mark.message_id, mark.index) for mark in marks if mark.model == model}


# --- files that an error names ----------------------------------------------------------------------------------------


def find_refused(messages: Sequence[Message], model: str, error: ModelError) -> list[SentFile]:
    """Return the files of the history that `error` refuses, empty if it is about something else.

    The error may give the path, the name or the number of a file. Otherwise it refuses the files of the newest message
    with files, because earlier ones were accepted; only files of the kind that it names, if there are any.
    """
    sent, kind = list(_sent_to(messages, model)), (error.provider_type or "").replace("_", " ")
    words = str(error).removeprefix(model)  # errors begin with the model's name, and that may contain `image`
    kind = kind if _NAMED.search(kind) else ""
    text = _WORD_IN_CAMEL_CASE.sub(" ", f"{kind} {error.param or ''} {words}"[:_MAX_CHARS])
    if not sent or not (error.code in _CODES or (error.status == _SERVER_ERROR and _of_named_kind(sent, text))):
        return []
    if error.named_files and _NAMED.search(text):
        return [file for file in sent if file.attachment.data in error.named_files]
    if not (_NAMED.search(text) and _COMPLAINT.search(text)) or _OTHER.search(text) or _NO_MODEL.search(text):
        return []
    if named := [file for file in sent if file.attachment.name in words[:_MAX_CHARS]]:
        return [file for file in named if file.message is named[-1].message]
    same_kind = _of_named_kind(sent, text) or sent
    if (number := _ordinal(text)) is not None and number < len(same_kind):
        return [same_kind[number]]
    return [file for file in same_kind if file.message is same_kind[-1].message]


def find_too_large(messages: Sequence[Message], model: str, error: ModelError) -> list[SentFile]:
    """Return the files to leave out of a request that is too large even after compaction.

    They are the files of the newest message with files: all if the body is too large, else its documents, because only
    documents can fill a context.
    """
    sent = list(_sent_to(messages, model))
    newest = [file for file in sent if file.message is sent[-1].message]
    return newest if error.status == 413 else [file for file in newest if file.attachment.kind == "document"]


def find_suspected(messages: Sequence[Message], model: str, error: ModelError) -> list[SentFile]:
    """Return the files of the current request if `error` gives no reason and no reply to them was begun."""
    sent = list(_sent_to(messages, model))
    if not sent or not is_vague(error):
        return []
    newest = sent[-1].message
    later = reversed(messages[messages.index(newest) + 1 :])
    if not all(message.role == "tool" or (message.role == "user" and message.injected) for message in later):
        return []
    return [file for file in sent if file.message is newest]


def is_vague(error: ModelError) -> bool:
    """Return whether an error refuses a request without any reason.

    >>> words = "m answered with HTTP 400: Request contains an invalid argument."
    >>> is_vague(ModelError(words, code="provider.bad_request", status=400))
    True
    """
    if error.code != "provider.bad_request" or error.status not in _VAGUE_STATUSES or error.param:
        return False
    reason = str(error)[:_MAX_CHARS]
    if found := _REASON.search(reason):
        reason = reason[found.end() :]
    text = _WORD_IN_CAMEL_CASE.sub(" ", _VAGUE_CHINESE.sub(" ", f"{error.provider_type or ''} {reason}"))
    words = re.findall(r"[^\W\d_]+", text.lower())
    return all(map(_VAGUE_WORD.fullmatch, words))


def mark_refused(files: Sequence[SentFile], model: str, *, suspected: bool = False) -> tuple[RefusedFile, ...]:
    """Return the marks of files that `model` refused, or is suspected to have refused."""
    return tuple(
        RefusedFile(model=model, message_id=file.message.message_id, index=file.index, suspected=suspected)
        for file in files
    )


def sent_files(messages: Iterable[Message]) -> Iterator[SentFile]:
    """Yield the images and documents of a history in its order."""
    for message in messages:
        if isinstance(message, UserMessage | ToolMessage):
            for index, attachment in enumerate(message.attachments):
                if attachment.kind != "text":
                    yield SentFile(message, index)


def is_undecodable(text: str) -> bool:
    """Return whether an error says that a file cannot be decoded; some servers report that as their own failure.

    >>> is_undecodable("llm predict error: failed to process inputs: image: unknown format")
    True
    """
    return _UNDECODABLE.search(text[:_MAX_CHARS]) is not None


def data_at_path(body: bytes, text: str) -> tuple[str, ...]:
    """Return the base64 data of the files at the first path in `text` that leads to some in the JSON of a request.

    >>> request = b'{"messages": [{"content": [{"source": {"data": "iVBORw0K"}}]}]}'
    >>> data_at_path(request, "messages.0.content.0.image.source: image exceeds 5 MB maximum")
    ('iVBORw0K',)
    """
    paths = [(found[1], re.findall(r"\w+", found[2])) for found in _PATH.finditer(text[:_MAX_CHARS])]
    if not any(key.isdigit() for _, keys in paths for key in keys[:1]):
        return ()
    try:
        request: Any = json.loads(body)
    except ValueError:
        return ()
    for root, keys in paths:
        if found := tuple(_data_in(_node_at(request.get(root), keys))):
            return found
    return ()


def _sent_to(messages: Sequence[Message], model: str) -> Iterator[SentFile]:
    refused = _refused_by(messages, model)
    return (file for file in sent_files(messages) if file.key not in refused)


def _of_named_kind(sent: Sequence[SentFile], text: str) -> list[SentFile]:
    kinds = {found.lastgroup for found in _NAMED.finditer(text)} - {"file"}
    return [file for file in sent if file.attachment.kind in kinds]


def _ordinal(text: str) -> int | None:
    """Return the position, from 0, of the file that `text` names by its number; `image 2` is the second one."""
    found = _ORDINAL.search(text)
    if found is None:
        return None
    number = int(found["number"])
    return number if found["zero"] or number == 0 else number - 1


def _node_at(value: Any, keys: Sequence[str]) -> Any:
    """Return the innermost value that the keys lead to; None if not even the first of them does."""
    node: Any = None
    for key in keys:
        items = cast("list[Any]", value) if isinstance(value, list) else []
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        if key.isdigit() and int(key) < len(items):
            value = node = items[int(key)]
        elif key in fields:
            value = node = fields[key]
        else:
            break
    return node


def _data_in(value: Any) -> Iterator[str]:
    """Yield the base64 in data URLs, and in the wires' fields for files."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        name, node = waiting.pop(0)
        if isinstance(node, dict):
            waiting += cast("dict[str, Any]", node).items()
        elif isinstance(node, list):
            waiting += [(name, item) for item in cast("list[Any]", node)]
        elif isinstance(node, str) and (name in ("data", "images") or node.startswith("data:")):
            yield node.partition(";base64,")[2] or node
