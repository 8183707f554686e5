"""`agx` beside a server that owns the sessions: turns run in the server and are shown in both."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from agenticx.cli.client.http import ServerEndpoint, ServerUnresponsive
from agenticx.cli.client.studio_file import StudioAddress
from agenticx.sessions import SqliteStore
from agenticx.testing import check_grammar
from tests.support.server.cli_studio import CliStudio
from tests.support.timeouts import PATIENCE

PROMPT = "[e]dit: "
ENDS = ("turn_started", "final", "error", "handed_back")
WRITE = "Write note.txt with the text hi"


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.ci_lane
def test_a_turn_runs_in_the_server_in_the_folder_of_the_terminal(agx: Any, studio: CliStudio) -> None:
    (agx.folder / "a.txt").write_text("alpha\n")
    done = agx("run", "read a.txt", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    printed = rows(done.stdout)
    check_grammar(printed)
    (session,) = studio.call("GET", "/api/sessions")["sessions"]
    assert (session["id"], session["workspace"]) == (printed[0]["session_id"], str(agx.folder))
    assert agx("sessions", "export", "last").stdout.startswith(done.stdout)
    assert "alpha" in agx("run", "read a.txt", "--session", session["id"][:12]).stdout
    assert len(studio.call("GET", "/api/sessions")["sessions"]) == 1


@pytest.mark.ci_lane
def test_an_unknown_model_is_refused_before_a_chat_stores_it(
    agx: Any, studio: CliStudio, terminal: Callable[..., Any]
) -> None:
    refused = terminal("chat", "--model", "nope:one")
    refused.wait_for("the unknown provider 'nope'")
    assert refused.exit_code() == 2
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("/model nope:two\r")
    screen.wait_for("the unknown provider 'nope'")
    screen.type("/model ollama:any\r")
    screen.wait_for("model: ollama:any\n")
    screen.type("/model demo\r")
    screen.wait_for("model: demo\n")
    screen.type("say one\r")
    screen.wait_for("one\n")
    screen.type("/model nope:three\r")
    screen.wait_for("the unknown provider 'nope'")
    (session,) = studio.call("GET", "/api/sessions")["sessions"]
    assert session["model"] == "demo"


def test_sessions_are_listed_shown_replayed_and_deleted_through_the_server(agx: Any, studio: CliStudio) -> None:
    agx("run", "say the heron is grey")
    agx("run", "say two")
    assert [row["name"] for row in rows(agx("sessions", "list", "--json").stdout)] == [
        "say two",
        "say the heron is grey",
    ]
    assert "    user: say the heron is grey" in agx("sessions", "list", "heron").stdout
    assert (
        "turns   1; the last one ended with an answer\n\n› say two\n\ntwo\n" in agx("sessions", "show", "last").stdout
    )
    assert agx("sessions", "replay", "last").stdout == "two\n"
    assert "## Assistant\n\ntwo\n" in agx("sessions", "export", "last", "--format", "markdown").stdout
    assert agx("sessions", "delete", "last", "--yes").returncode == 0
    assert [row["name"] for row in studio.call("GET", "/api/sessions")["sessions"]] == ["say the heron is grey"]


@pytest.mark.ci_lane
def test_a_server_has_the_messages_and_snapshots_of_earlier_local_turns(agx: Any) -> None:
    agx("run", "Write a.txt with the text one", "--yes")
    agx("run", "Write a.txt with the text two", "--yes", "--session", "last")
    (whole,) = rows(agx("sessions", "show", "last", "--json").stdout)
    end_of_first = [message["message_id"] for message in whole["messages"] if message["role"] == "assistant"][1]
    served = CliStudio(agx)
    try:
        studio_says = served.call("GET", f"/api/sessions/{whole['id']}/messages")["messages"]
        served.call("POST", f"/api/sessions/{whole['id']}/rewind", {"message_id": end_of_first})
    finally:
        served.end()
    assert studio_says == whole["messages"]
    assert (agx.folder / "a.txt").read_text() == "one"


def test_a_question_of_the_server_is_answered_at_the_terminal(
    agx: Any, studio: CliStudio, terminal: Callable[..., Any]
) -> None:
    screen = terminal("run", WRITE)
    screen.wait_for("+hi\n")
    screen.wait_for(PROMPT)
    assert len(studio.call("GET", "/api/confirms")["confirms"]) == 1
    screen.type("y\n")
    screen.wait_for("allowed by you")
    assert screen.exit_code() == 0
    assert (agx.folder / "note.txt").read_text() == "hi"


@pytest.mark.ci_lane
def test_a_question_that_is_answered_elsewhere_closes_the_prompt(
    agx: Any, studio: CliStudio, terminal: Callable[..., Any]
) -> None:
    screen = terminal("run", WRITE)
    screen.wait_for(PROMPT)
    (question,) = studio.call("GET", "/api/confirms")["confirms"]
    studio.call("POST", f"/api/confirms/{question['id']}", {"approved": True, "digest": question["digest"]})
    screen.wait_for("\n  allowed elsewhere")
    screen.wait_for("← file_write ok")
    assert screen.exit_code() == 0
    assert (agx.folder / "note.txt").read_text() == "hi"


@pytest.mark.ci_lane
@pytest.mark.promise("E2")
def test_mode_auto_is_not_resumed_through_a_server_where_nobody_can_be_asked(agx: Any, studio: CliStudio) -> None:
    session = studio.call("POST", "/api/sessions", {"permission_mode": "auto", "workspace": str(agx.folder)})
    done = agx("run", WRITE, "--session", session["id"])
    assert "this turn runs in mode default, not auto: there is no terminal to ask at\n" in done.stderr
    assert "denied by policy: there is no terminal to ask at" in done.stderr
    assert not (agx.folder / "note.txt").exists()
    assert studio.call("GET", f"/api/sessions/{session['id']}")["permission_mode"] == "auto"
    assert '"data":{"permission_mode"' not in agx("sessions", "export", session["id"]).stdout
    assert agx("run", WRITE, "--session", session["id"], "--yes").returncode == 0
    assert (agx.folder / "note.txt").exists()


@pytest.mark.ci_lane
@pytest.mark.parametrize(
    ("options", "approved", "reason", "shown_as"),
    [
        (["--yes"], True, "allowed by --yes", "allowed by policy"),
        ([], False, "there is no terminal to ask at; --yes would allow it", "denied by policy"),
    ],
)
def test_an_automatic_answer_is_sent_to_the_server_as_that_of_a_policy_with_its_reason(
    agx: Any, studio: CliStudio, options: list[str], approved: bool, reason: str, shown_as: str
) -> None:
    printed = rows(agx("run", WRITE, "--json", *options).stdout)
    check_grammar(printed)
    answer = next(row["data"] for row in printed if row["type"] == "confirm_response")
    assert (answer["approved"], answer["by"], answer["reason"]) == (approved, "policy", reason)
    assert f"\n  {shown_as}: {reason}\n" in agx("sessions", "replay", "last").stderr
    result = next(row["data"]["result"] for row in printed if row["type"] == "tool_result")
    assert approved or result == f"Denied by policy. Reason: {reason}"  # the model must not read that a user denied it
    assert (agx.folder / "note.txt").exists() is approved


def test_ctrl_c_stops_the_turn_in_the_server(agx: Any, studio: CliStudio) -> None:
    process = agx.start("run", "count to 9999", "--json")
    printed = [json.loads(process.stdout.readline())]
    while printed[-1]["type"] != "token":
        printed.append(json.loads(process.stdout.readline()))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    printed += rows(out)
    check_grammar(printed)
    assert printed[-1]["data"]["code"] == "stopped"
    assert (process.returncode, err) == (130, "stopping … (Ctrl-C again exits at once)\n")


def test_an_option_that_only_a_local_turn_can_apply_is_refused(agx: Any, studio: CliStudio) -> None:
    done = agx("run", "say hi", "--max-tool-rounds", "20")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"agx: --max-tool-rounds cannot be used here: the server at http://127.0.0.1:{studio.port}" in done.stderr


@pytest.mark.ci_lane
def test_a_session_keeps_the_address_of_its_model_which_only_a_command_line_can_give(
    agx: Any, studio: CliStudio, provider: Any
) -> None:
    provider.events('{"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}', "[DONE]")
    del agx.environment["AGX_MODEL"]
    model = f"openai-chat:tiny@{provider.base_url}"
    refused = studio.call("POST", "/api/sessions", {"model": model})
    assert (refused["code"], "is not allowed" in refused["detail"]) == ("unknown_model", True)
    assert agx("run", "--base-url", provider.base_url, "one").stdout == "hi\n"
    assert agx("run", "-c", "two").stdout == "hi\n"
    (session,) = studio.call("GET", "/api/sessions")["sessions"]
    assert session["model"] == model
    studio.end()
    assert agx("run", "-c", "three").stdout == "hi\n"
    assert [json.loads(request)["model"] for request in provider.requests] == ["tiny", "tiny", "tiny"]
    started = [row["data"]["model"] for row in rows(agx("sessions", "export", "last").stdout) if row["type"] == "usage"]
    assert started == ["openai-chat:tiny"] * 3


def test_an_error_of_the_server_is_printed_unchanged(agx: Any, studio: CliStudio) -> None:
    refused = agx("run", "say hi", "--model", "nobody:x")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "'nobody'" in refused.stderr
    done = agx("run", "say hi", "--session", "ses_x")
    assert done.returncode == 2


def test_a_chat_follows_a_turn_that_was_started_on_the_page(
    agx: Any, studio: CliStudio, terminal: Callable[..., Any]
) -> None:
    session = studio.call("POST", "/api/sessions", {"workspace": str(agx.folder)})["id"]
    studio.call("POST", f"/api/sessions/{session}/turns", {"input": WRITE})
    screen = terminal("chat", "--session", session)
    screen.wait_for(PROMPT)
    screen.type("y\n")
    screen.wait_for("← file_write ok")
    screen.wait_for("› ")
    screen.type("say and on\n")
    screen.wait_for("\nand on\n")
    screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0
    assert (agx.folder / "note.txt").read_text() == "hi"


@pytest.mark.ci_lane
def test_a_chat_whose_session_is_busy_prints_how_to_show_the_running_turn(
    agx: Any, studio: CliStudio, terminal: Callable[..., Any]
) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("say one\n")
    screen.wait_for("\none\n")
    screen.wait_for("› ")
    (session,) = studio.call("GET", "/api/sessions")["sessions"]
    studio.call("POST", f"/api/sessions/{session['id']}/turns", {"input": WRITE})
    screen.type("say two\n")
    screen.wait_for("a turn of another window runs in this session: /stop ends it, /open last shows it here\n")
    screen.wait_for("› say two")
    screen.type("\x15/open last\n")
    screen.wait_for(PROMPT)
    screen.type("y\n")
    screen.wait_for("← file_write ok")
    screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0


@pytest.mark.ci_lane
def test_a_question_survives_a_server_that_is_killed_and_restarted(
    agx: Any, studio: CliStudio, terminal: Callable[..., Any]
) -> None:
    screen = terminal("run", WRITE)
    screen.wait_for(PROMPT)
    studio.end(signal.SIGKILL)
    screen.wait_for("lost the connection to the server; waiting for it to come back …")
    studio.start()
    screen.type("y\n")
    screen.wait_for("← file_write ok")
    assert screen.exit_code() == 0
    assert (agx.folder / "note.txt").read_text() == "hi"


@pytest.mark.ci_lane
def test_messages_queued_in_a_killed_server_are_returned_before_the_next_turn_and_shown(
    agx: Any, studio: CliStudio
) -> None:
    session = studio.call("POST", "/api/sessions", {"workspace": str(agx.folder)})["id"]
    studio.call("POST", f"/api/sessions/{session}/turns", {"input": "count to 9999"})
    studio.call("POST", f"/api/sessions/{session}/turns", {"input": "say two", "when_busy": "queue"})
    studio.call("POST", f"/api/sessions/{session}/turns", {"input": "say three", "when_busy": "queue"})
    studio.end(signal.SIGKILL)
    shown = agx("sessions", "show", session)
    assert shown.stdout.endswith("\n\nnot sent: say two\n\nnot sent: say three\n")
    assert agx("run", "say two", "--session", session).returncode == 0
    printed = [row["type"] for row in rows(agx("sessions", "export", session).stdout) if row["type"] in ENDS]
    assert printed == ["turn_started", "error", "handed_back", "handed_back", "turn_started", "final"]
    (whole,) = rows(agx("sessions", "show", session, "--json").stdout)
    assert [one["input"] for one in whole["not_said"]] == ["say three"]


@pytest.mark.ci_lane
def test_a_message_queued_behind_a_question_of_a_killed_server_stays_queued(agx: Any, studio: CliStudio) -> None:
    session = studio.call("POST", "/api/sessions", {"workspace": str(agx.folder)})["id"]
    studio.call("POST", f"/api/sessions/{session}/turns", {"input": WRITE})
    while not studio.call("GET", "/api/confirms")["confirms"]:
        pass
    studio.call("POST", f"/api/sessions/{session}/turns", {"input": "say two", "when_busy": "queue"})
    studio.end(signal.SIGKILL)
    assert "not sent" not in agx("sessions", "show", session).stdout
    assert "handed_back" not in agx("sessions", "export", session).stdout


@pytest.mark.ci_lane
def test_a_search_query_may_be_any_bytes(agx: Any) -> None:
    served = CliStudio(agx)
    try:
        there = agx("sessions", "list", "\udcff")
    finally:
        served.end()
    for done in (there, agx("sessions", "list", "\udcff")):
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "no session matches '\ufffd'\n")


def test_the_error_for_an_unresponsive_server_has_its_process_id() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = ServerEndpoint("127.0.0.1", port, "token", pid=7, response_timeout=0.05)
        sentence = rf"^the server at http://127\.0\.0\.1:{port} \(process 7\) does not answer; .*kill -CONT 7"
        with pytest.raises(ServerUnresponsive, match=sentence):
            asyncio.run(server.request_json("GET", "/api/models"))


def test_the_keys_of_a_terminal_are_sent_to_another_terminal_and_to_no_studio(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-terminal")
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def send() -> None:
        path = tmp_path / "terminal.sock"
        studio = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with studio, await asyncio.start_unix_server(answer, path):
            port = studio.sockets[0].getsockname()[1]
            for server in (ServerEndpoint("127.0.0.1", port, "token"), ServerEndpoint.of_terminal(path, 7)):
                await server.request_json("POST", "/api/sessions", {})

    asyncio.run(send())
    assert [b"sk-of-this-terminal" in head for head in heads] == [False, True]


@pytest.mark.ci_lane
def test_sessions_are_read_beside_a_suspended_server_and_the_note_names_its_process(
    agx: Any, studio: CliStudio
) -> None:
    agx("run", "say hi")
    studio.process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        listed, renamed = agx("sessions", "list", "--json"), agx("sessions", "rename", "last", "x")
        seconds = time.monotonic() - began
    finally:
        studio.process.send_signal(signal.SIGCONT)
    problem = (
        f"the server at http://127.0.0.1:{studio.port} (process {studio.process.pid}) does not answer; "
        f"if it is suspended, `kill -CONT {studio.process.pid}` resumes it"
    )
    assert (listed.returncode, len(rows(listed.stdout)), listed.stderr) == (
        0,
        1,
        f"{problem}; this is read from its database\n",
    )
    assert (renamed.returncode, renamed.stdout, renamed.stderr) == (1, "", f"agx: {problem}\n")
    assert seconds < 30  # a few on an idle machine


@pytest.mark.parametrize("announced", [pytest.param(True, marks=pytest.mark.ci_lane), False])
def test_open_names_the_process_that_owns_the_sessions_and_does_not_answer(agx: Any, announced: bool) -> None:
    home = Path(agx.environment["AGX_HOME"])
    home.mkdir(mode=0o700)
    store, owner = SqliteStore(home / "sessions.db"), os.getpid()
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:  # the kernel accepts the connection, nothing answers
            address = StudioAddress("127.0.0.1", listening.getsockname()[1], "of a run", home / "token", owner)
            if announced:
                address.write_file(home)
            done = agx("open", "--print")
    finally:
        asyncio.run(store.aclose())
    assert (done.returncode, done.stdout) == (1, "")
    hint = f"`kill -CONT {owner}` resumes it"
    if announced:
        what = f"the server at {address.url} (process {owner}) does not answer; if it is suspended, {hint}"
    else:
        has = f"process {owner} has the sessions: if it was stopped, {hint}; once it has ended, `agx serve` starts one"
        what = f"no studio is running for this AGX_HOME; {has}"
    assert done.stderr == f"agx: {what}\n"


@pytest.mark.parametrize("other_port", [False, True])
@pytest.mark.cases(quick=1)
def test_a_second_server_of_the_same_home_names_the_first_one(agx: Any, studio: CliStudio, other_port: bool) -> None:
    done = agx("serve", "--port", "0" if other_port else str(studio.port))
    assert (done.returncode, done.stdout) == (1, "")
    first = f"the studio at http://127.0.0.1:{studio.port} (process {studio.process.pid})"
    assert (
        done.stderr == f"agx: {first} has the sessions of this AGX_HOME; `agx open` opens it, --take-over replaces it\n"
    )


def test_a_port_in_use_by_another_program_is_named_without_an_error_number(agx: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        done = agx("serve", "--port", str(port))
    sentence = f"cannot listen on 127.0.0.1 port {port}: Address already in use; another --port may be free"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"agx: {sentence}\n")


def test_a_server_shuts_down_cleanly_on_sighup(agx: Any, studio: CliStudio) -> None:
    session = studio.call("POST", "/api/sessions", {"workspace": str(agx.folder)})["id"]
    studio.call("POST", f"/api/sessions/{session}/turns", {"input": "count to 9999"})
    connection = HTTPConnection("127.0.0.1", studio.port, timeout=PATIENCE)
    token = (studio.home / "token").read_text().strip()
    connection.request("GET", f"/api/sessions/{session}/events", headers={"Authorization": f"Bearer {token}"})
    stream = connection.getresponse()
    while b'"token"' not in stream.readline():
        pass
    studio.end(signal.SIGHUP)
    last_bytes = stream.read()
    connection.close()
    assert b'"server_closing"' in last_bytes[last_bytes.rindex(b"data: ") :]
    assert (studio.process.returncode, studio.announcement.exists()) == (0, False)


@pytest.mark.parametrize("variable", ["AGX_MODEL", "AGX_FALLBACK_MODELS"])
@pytest.mark.parametrize("name", ["bar", "nobody:x"])
@pytest.mark.cases(quick=1)
def test_an_unknown_model_is_refused_at_start_with_the_message_of_a_run(agx: Any, variable: str, name: str) -> None:
    agx.environment[variable] = name
    run, serve = agx("run", "say hi"), agx("serve", "--port", "0")
    assert (serve.returncode, serve.stdout, serve.stderr) == (2, "", run.stderr)


def test_a_server_starts_while_the_key_of_its_model_is_missing(agx: Any) -> None:
    served = CliStudio(agx, AGX_MODEL="openai-chat:gpt-4o")
    assert served.call("GET", "/api/models")["default"] == "openai-chat:gpt-4o"
    served.end()
    assert served.process.returncode == 0


@pytest.mark.ci_lane
def test_a_full_disk_is_reported_as_storage_error_until_there_is_room_again(agx: Any, studio: CliStudio) -> None:
    limits = pytest.importorskip("resource")
    if not hasattr(limits, "prlimit"):
        pytest.skip("needs prlimit")
    session = studio.call("POST", "/api/sessions", {"workspace": str(agx.folder)})["id"]
    _, hard = limits.prlimit(studio.process.pid, limits.RLIMIT_FSIZE, (1, limits.RLIM_INFINITY))
    for _ in range(2):
        refused = studio.call("POST", f"/api/sessions/{session}/turns", {"input": "say one"})
        assert (refused["status"], refused["code"]) == (503, "storage")
        assert studio.call("GET", "/api/ready")["code"] == "storage"
        health = studio.call("GET", "/api/health")
        assert (health["code"], len(health["server_instance"])) == ("storage", 32)
    limits.prlimit(studio.process.pid, limits.RLIMIT_FSIZE, (hard, hard))
    assert studio.call("GET", "/api/ready")["status"] == "ready"
    assert agx("run", "say two", "--session", session).stdout == "two\n"


@pytest.mark.ci_lane
def test_a_turn_of_a_killed_server_ends_as_interrupted(agx: Any, studio: CliStudio) -> None:
    process = agx.start("run", "count to 9999", "--json")
    printed = [json.loads(process.stdout.readline())]
    while printed[-1]["type"] != "token":
        printed.append(json.loads(process.stdout.readline()))
    studio.end(signal.SIGKILL)
    studio.start()
    out, err = process.communicate(timeout=PATIENCE)
    printed += rows(out)
    check_grammar(printed)
    assert [row["seq"] for row in printed] == list(range(1, len(printed) + 1))
    assert printed[-1]["data"]["code"] == "interrupted"
    assert process.returncode == 1
    lost = "lost the connection to the server; waiting for it to come back …\n"  # unless it is back at once
    assert re.fullmatch(f"({lost})?(agx serve now runs at .*, through which this goes on\n)?", err)


@pytest.mark.ci_lane
def test_a_cut_stream_resumes_without_loss_or_repetition(agx: Any) -> None:
    with cutting_proxy() as proxy:
        served = CliStudio(agx, AGX_ALLOWED_HOSTS=f"127.0.0.1:{proxy.port}")
        try:
            proxy.target = served.port
            announced = json.loads(served.announcement.read_text())
            served.announcement.write_text(json.dumps({**announced, "url": f"http://127.0.0.1:{proxy.port}"}))
            done = agx("run", "count to 50", "--json")
        finally:
            served.end()
    printed = rows(done.stdout)
    check_grammar(printed)
    assert (done.returncode, done.stderr) == (0, "")
    assert proxy.cuts > 1
    assert [row["seq"] for row in printed] == list(range(1, len(printed) + 1))


class Proxy:
    """Passes bytes to `target` and back, and cuts each event stream after 4 kB."""

    def __init__(self) -> None:
        self.target = 0
        self.cuts = 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self.target)) as server:
            head = client.recv(65_536)
            server.sendall(head)
            room = 4_096 if b"/events" in head else 1 << 30
            while room > 0 and (data := server.recv(min(room, 65_536))):
                client.sendall(data)
                room -= len(data)
            self.cuts += room <= 0


@contextmanager
def cutting_proxy() -> Generator[Proxy]:
    proxy = Proxy()
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    yield proxy
    proxy.listening.shutdown(socket.SHUT_RDWR)
    proxy.listening.close()
    thread.join()


@pytest.mark.ci_lane
def test_a_task_that_waits_can_be_given_to_the_running_turn_or_removed_by_the_page(
    agx: Any, studio: CliStudio, terminal: Callable[..., Any]
) -> None:
    asked = terminal("run", "Write a.txt with the text hi")
    asked.wait_for("[e]dit: ")
    (session,) = studio.call("GET", "/api/sessions")["sessions"]
    queue = f"/api/sessions/{session['id']}/queue"
    with agx.start("run", "-c", "say removed") as removed, agx.start("run", "-c", "say steered") as steered:
        for run in (removed, steered):
            assert run.stderr.readline().startswith("waiting for the turn that runs in this session")
        ids = {message["input"]: message["message_id"] for message in studio.call("GET", queue)["messages"]}
        studio.call("DELETE", f"{queue}/{ids['say removed']}")
        assert removed.communicate(timeout=PATIENCE) == ("", "removed: say removed\n")
        assert removed.returncode == 130
        studio.call("PATCH", f"{queue}/{ids['say steered']}", {"when_busy": "steer"})
        asked.type("y\n")
        out, err = steered.communicate(timeout=PATIENCE)
        assert (steered.returncode, out, err) == (0, "steered\n", "› say steered\n")
    assert asked.exit_code() == 0


@pytest.mark.ci_lane
def test_a_task_that_waits_is_sent_again_if_the_studio_closes(agx: Any, studio: CliStudio) -> None:
    with agx.start("run", "count to 9999") as counting:
        counting.stdout.read(20)
        with agx.start("run", "-c", "say on") as waiting:
            assert waiting.stderr.readline().startswith("waiting for the turn that runs in this session")
            studio.process.send_signal(signal.SIGTERM)
            counting.communicate(timeout=PATIENCE)
            out, err = waiting.communicate(timeout=PATIENCE)
            assert (waiting.returncode, out) == (0, "on\n")
            assert err == "no server has the sessions; this chat stores them and runs the turns itself\n"
