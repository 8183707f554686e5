"""Logs: one redacted line for one event, with the ids, on stderr."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agenticx.logs import bound_ids, configure_logging, excerpt, get_logger, is_secret_field, redact
from tests.linear.growth import grows_linearly
from tests.support.secret_samples import SECRET_FIELDS, SECRET_PARTS, SECRETS
from tests.support.timeouts import PATIENCE


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    names = ("agenticx", "studio")
    before = (root.level, root.handlers[:], [logging.getLogger(name).level for name in names])
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    for name, level in zip(names, before[2], strict=True):
        logging.getLogger(name).setLevel(level)


def logged_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the logged lines without date and time."""
    captured = capsys.readouterr()
    assert captured.out == ""
    return [line.split(" ", 2)[2] for line in captured.err.splitlines()]


def test_a_line_has_the_event_then_the_ids_then_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    with bound_ids(session="ses_1", turn="turn_2", agent="meta"):
        get_logger("agenticx.some.module").bind(hook="audit").warning("hook failed", seconds=1.5)
    get_logger("agenticx.some.module").info("after")
    assert logged_lines(capsys) == [
        "WARNING agenticx.some.module hook failed session='ses_1' turn='turn_2' agent='meta' hook='audit' seconds=1.5",
        "INFO    agenticx.some.module after",
    ]


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "colored"), [(None, True), ("1", False)])
def test_lines_are_coloured_at_a_terminal_unless_no_color_is_set(
    monkeypatch: pytest.MonkeyPatch, no_color: str | None, colored: bool
) -> None:
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    configure_logging("info")
    get_logger("agenticx.runtime").info("tool_call", tool_name="add", tokens=3, text="a=[red]")
    _, line = stderr.getvalue().split("\x1b[32mINFO" if colored else "INFO", 1)
    plain = re.sub(r"\x1b\[[\d;]*m", "", line)
    assert plain == "    agenticx.runtime tool_call tool_name='add' tokens=3 text='a=[red]'\n"
    assert "\x1b[1mtool_call\x1b[0m" in line
    assert ("\x1b[36mtool_name\x1b[0m='add'" in line) == colored


@pytest.mark.anyio
async def test_ids_follow_into_tasks_and_do_not_leak_between_them(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    log = get_logger("agenticx.turns")

    async def turn(name: str) -> None:
        with bound_ids(turn=name):
            await asyncio.sleep(0)
            log.info("ran")

    with bound_ids(session="s"):
        await asyncio.gather(turn("a"), turn("b"))
    assert logged_lines(capsys) == [
        "INFO    agenticx.turns ran session='s' turn='a'",
        "INFO    agenticx.turns ran session='s' turn='b'",
    ]


def test_no_value_can_add_a_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    get_logger("agenticx.x").info("odd\nevent 100% %s", text="a\nWARNING agenticx.x forged\x1b[31m")
    assert logged_lines(capsys) == [
        "INFO    agenticx.x 'odd\\nevent 100% %s' text='a\\nWARNING agenticx.x forged\\x1b[31m'"
    ]


def test_lines_below_the_level_are_dropped_and_other_libraries_log_from_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("info")
    configure_logging("info")
    get_logger("agenticx.x").debug("unseen")
    logging.getLogger("httpx").info("unseen")
    logging.getLogger("httpx").warning("seen once")
    assert logged_lines(capsys) == ["WARNING httpx seen once"]


@pytest.mark.promise("I1")
@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_redacted_in_every_position(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = SECRETS[kind]
    monkeypatch.setenv("HOUSE_API_KEY", "canary-0123456789")
    configure_logging("debug")
    log = get_logger("agenticx.x")
    log.info(f"said {secret}")
    log.info("field", url=secret, nested={"list": [secret, {"deep": secret}]}, error=ValueError(secret))
    try:
        raise ValueError(f"{secret} and canary-0123456789")
    except ValueError:
        log.exception("failed")
    logging.getLogger("httpcore").warning("%s", [("x", secret), (b"Authorization", b"Bearer 0123456789")])
    written = capsys.readouterr().err
    for part in SECRET_PARTS:
        assert part not in written.replace("127.0.0.1", "")
    assert written.count("[hidden]") >= 6


@pytest.mark.promise("I1")
@pytest.mark.parametrize("patterns", ["_SECRET_PATTERNS", "_LABELLED_SECRETS"])
def test_the_kinds_of_secrets_detect_patterns_that_are_missing(monkeypatch: pytest.MonkeyPatch, patterns: str) -> None:
    def shown() -> list[str]:
        texts = {kind: redact(f"said {secret}").replace("127.0.0.1", "") for kind, secret in SECRETS.items()}
        return [kind for kind, text in texts.items() if any(part in text for part in SECRET_PARTS)]

    assert shown() == []
    monkeypatch.setattr(f"agenticx.logs.{patterns}", re.compile(r"(?!)"))
    assert len(shown()) >= 10


@pytest.mark.promise("I1")
def test_a_field_with_a_secret_name_is_redacted_and_a_count_of_tokens_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("info")
    get_logger("agenticx.x").info("call", api_key="abc", headers={"Cookie": "a=b"}, input_tokens=7, token="t")
    assert logged_lines(capsys) == [
        "INFO    agenticx.x call api_key='[hidden]' headers={'Cookie': '[hidden]'} input_tokens=7 token='[hidden]'"
    ]


@pytest.mark.promise("I1")
@pytest.mark.parametrize("name", SECRET_FIELDS)
def test_other_secret_field_names_are_recognised(name: str) -> None:
    assert is_secret_field(name)
    assert is_secret_field(f"user.{name}")


def test_a_field_name_that_only_contains_a_secret_word_is_shown() -> None:
    assert not any(map(is_secret_field, ("pin_count", "spin", "spwd", "passphrases_read", "compass", "mot")))


@pytest.mark.promise("I1")
def test_a_value_is_redacted_if_a_neighbouring_field_names_a_secret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("info")
    pairs = [{"name": "Authorization", "value": "abc"}, {"Key": "api_key", "Value": ["abc"], "id": 7}]
    get_logger("agenticx.x").info("call", headers=pairs, pair=("password", "abc"), words=["--token", "abc", "x"])
    get_logger("agenticx.x").info("call", headers={"name": "Accept", "value": "abc"}, words=["name", "abc"])
    hidden, shown = logged_lines(capsys)
    assert hidden.count("abc") == 0
    assert hidden.endswith("'id': 7}] pair=['password', '[hidden]'] words=['--token', '[hidden]', 'x']")
    assert shown == "INFO    agenticx.x call headers={'name': 'Accept', 'value': 'abc'} words=['name', 'abc']"


def test_other_libraries_log_from_warning_at_level_debug_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug")
    get_logger("agenticx.x").debug("seen")
    get_logger("studio.x").debug("seen")
    logging.getLogger("sse_starlette.sse").debug("chunk: unseen")
    logging.getLogger("httpx").info("unseen")
    assert logged_lines(capsys) == ["DEBUG   agenticx.x seen", "DEBUG   studio.x seen"]


def test_ordinary_text_is_unchanged() -> None:
    text = (
        "GET https://a.example/v1/models?limit=5 took 12 ms; the token budget is 4000; ask-first; key: value; "
        "run_npm_install_packages; max_tokens=4000; the password is wrong; password: required; token: str; "
        "MODEL=gpt-5.2; ask user@host.example; lin_regression_of_many_points; grep -u; the token bucket holds 12345678"
    )
    assert redact(text) == text


@pytest.mark.parametrize(
    "pattern",
    [
        "a.",
        "a:",
        "a://",
        "a://b:",
        "eyJ-",
        "eyJ_",
        "_sk_",
        "_sk-",
        "password ",
        "password=",
        "password=\n",
        '"pw" : ',
        "eyJabcdefgh.",
        "eyJabcdefgh-eyJ.",
        "sk-",
        "-----BEGIN ",
        "-----END ",
        "cookie: ",
        "Bearer ",
        "?key=",
        "password 1",
        "password: ",
        "token token ",
        "cookie=a",
        " -u a",
        "SG.M",
        "1:AA",
        "key-a",
        " ",
        "x",
    ],
)
@pytest.mark.cases(quick=2)
def test_redacting_takes_linear_time(pattern: str) -> None:
    assert grows_linearly(lambda size: redact((pattern * size)[:size]))


@pytest.mark.promise("I1")
@pytest.mark.parametrize(
    "text",
    [
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "x-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl and eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.",
        "9+postgres://agx:c2lnbmF0dXJl@db/x HTTPS://u:c2lnbmF0dXJl@h:1 redis://:c2lnbmF0dXJl@h",
    ],
)
def test_tokens_and_logins_are_hidden_at_any_position(text: str) -> None:
    assert "eyJ" not in redact(text)
    assert "c2lnbmF0" not in redact(text)


@pytest.mark.promise("I1")
@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.cases(quick=1)
def test_an_excerpt_has_no_part_of_a_secret_at_any_cut(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_API_KEY", "canary-0123456789" * 20)
    pieces = {part[at : at + 6] for part in SECRET_PARTS for at in range(len(part) - 5)}
    for secret in (SECRETS[kind], "canary-0123456789" * 20):
        for text in (".", f"{SECRETS['github']} "):
            for before in range(0, 5_000 // len(text), 23):
                shown = excerpt(text * before + secret + "." * 9_000, 100)
                assert not [piece for piece in pieces if piece in shown.replace("127.0.0.1", "")]


def test_the_cost_of_an_excerpt_depends_on_its_limit() -> None:
    assert excerpt("a.eyJ-" * 200_000, 10) == "a.eyJ-a.ey… (1200000 characters)"
    assert excerpt("a.eyJ-", 10) == "a.eyJ-"
    text = "a.eyJ-" * 200_000
    assert grows_linearly(lambda size: [excerpt(text[:size], 200) for _ in range(5)], 10_000, 1_200_000)


def test_a_value_and_a_line_are_cut_where_they_are_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    get_logger("agenticx.x").info("long", error=ValueError("v" * 1_000_000))
    logging.getLogger("other").warning("w" * 1_000_000)
    one, two = logged_lines(capsys)
    assert one == f"INFO    agenticx.x long error='{'v' * 2_000}… (1000000 characters)'"
    assert two.endswith(" characters)")
    assert len(two) < 40_100


def test_a_placeholder_for_a_key_is_not_hidden_in_ordinary_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "lm-studio")
    monkeypatch.setenv("OTHER_API_KEY", "x")
    assert redact("lm-studio at 127.0.0.1:1234 is next") == "lm-studio at 127.0.0.1:1234 is next"


def test_a_logger_imports_structlog_only_when_it_writes() -> None:
    program = (
        "import sys; from agenticx.logs import get_logger; log = get_logger('agenticx.x'); log.debug('unseen');"
        "assert 'structlog' not in sys.modules; log.warning('seen'); assert 'structlog' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "seen\n"


@pytest.mark.ci_lane
def test_a_line_is_the_same_if_structlog_cannot_be_loaded() -> None:
    program = """
import resource
from agenticx.logs import bound_ids, configure_logging, get_logger
configure_logging()
if not {loaded}:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
with bound_ids(session="s1"):
    get_logger("agenticx.x").warning("it happened", token="0123456789", why="two\\nlines")
"""
    written = [
        subprocess.run([sys.executable, "-c", program.format(loaded=loaded)], capture_output=True, text=True)
        for loaded in (True, False)
    ]
    assert [run.returncode for run in written] == [0, 0], written[1].stderr
    one, other = (run.stderr.split(" WARNING ")[1] for run in written)
    assert one == other
    assert one == "agenticx.x it happened session='s1' token='[hidden]' why='two\\nlines'\n"


@pytest.mark.ci_lane
def test_lines_are_the_same_while_another_thread_fails_to_load_structlog() -> None:
    program = f"""
import asyncio, errno, sys, threading
from agenticx.logs import configure_logging, get_logger
configure_logging()
log, importing, go_on = get_logger("agenticx.x"), threading.Event(), threading.Event()
class TooManyOpenFiles:
    def find_spec(self, name, path, target=None):
        if name.startswith("structlog."):
            importing.set()
            assert go_on.wait({PATIENCE})
            raise OSError(errno.EMFILE, "Too many open files")
sys.meta_path.insert(0, TooManyOpenFiles())
async def log_on_loop(): log.warning("seen")
thread = threading.Thread(target=log.warning, args=("seen",))
thread.start()
importing.wait()
asyncio.run(log_on_loop())
log.warning("seen")
go_on.set()  # not before: the lines here must not wait for the thread
thread.join()
del sys.meta_path[0]
log.warning("seen")
assert "structlog.stdlib" in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert [line.split(" ", 2)[2] for line in ran.stderr.splitlines()] == ["WARNING agenticx.x seen"] * 4


@pytest.mark.ci_lane
def test_a_first_line_on_an_event_loop_does_not_block_it_with_the_import_of_structlog() -> None:
    source = (
        "import asyncio, sys; from agenticx.logs import configure_logging, get_logger; configure_logging('info')\n"
        "async def log(): get_logger('agenticx.x').info('ran', n=1); assert 'structlog' not in sys.modules\n"
        "asyncio.run(log()); get_logger('agenticx.x').info('ran', n=1); assert 'structlog' in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    lines = [line.split(" ", 2)[2] for line in ran.stderr.splitlines()]
    assert lines == ["INFO    agenticx.x ran n=1"] * 2
