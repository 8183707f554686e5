"""`agx permissions explain` and `agx doctor`, which run nothing and change nothing."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from agenticx.cli.client.studio_file import StudioAddress
from agenticx.llms.model_catalog import ModelFacts
from agenticx.sandbox import SandboxOptions, find_sandbox
from agenticx.sessions import SqliteStore
from tests.support.database_versions import set_version
from tests.support.timeouts import PATIENCE


@pytest.mark.parametrize(
    ("tool", "arguments", "mode", "decision"),
    [
        ("file_read", {"path": "a.txt"}, "default", "allow"),
        ("file_write", {"path": "a.txt", "content": "x"}, "default", "ask"),
        ("file_write", {"path": "a.txt", "content": "x"}, "accept_edits", "allow"),
        ("file_write", {"path": "a.txt", "content": "x"}, "plan", "deny"),
        ("bash_exec", {"command": "git -c core.pager=x log"}, "default", "ask"),
        ("bash_exec", {"command": "rm -rf ."}, "auto", "ask"),
        ("bash_exec", {"command": "rm -rf build"}, "auto", "allow"),
        ("bash_exec", {"command": f"echo {'a' * 300} | base64 -d"}, "auto", "allow"),
        ("bash_exec", {"command": f"echo {'a' * 300}"}, "default", "allow"),
        ("bash_exec", {"command": f"echo {'a' * 5_000}"}, "auto", "ask"),
        ("bash_exec", {"command": f"echo {'a ' * 50_000}"}, "auto", "ask"),
    ],
)
def test_explain_prints_the_verdict_on_a_call(
    agx: Any, tool: str, arguments: dict[str, str], mode: str, decision: str
) -> None:
    done = agx("permissions", "explain", tool, json.dumps(arguments), "--permission-mode", mode, "--json")
    row = json.loads(done.stdout)
    assert (done.returncode, row["decision"]) == (0, decision)
    assert sorted(row) == ["decision", "reasons", "rule"]
    assert all(isinstance(reason, str) for reason in row["reasons"])
    assert list(agx.folder.iterdir()) == []


def test_explain_without_json_prints_text(agx: Any) -> None:
    done = agx("permissions", "explain", "file_write", '{"path": "a.txt", "content": "x"}')
    assert (done.returncode, done.stdout.split("\n")[0]) == (0, "ask (rule: default)")


@pytest.mark.parametrize(
    ("command", "sentences"),
    [
        (
            "git -c core.pager=x diff",
            ["`git -c core.pager=x diff` asks; no kind of it can be remembered: `git -c` changes any setting of git"],
        ),
        (
            "git add a && git commit -m 'x y' | cat",
            [
                '`git add a` is allowed by a rule: allow bash_exec command="git add".',
                "`git commit -m 'x y'` asks: ",
                "`cat` only looks at files",
                "A yes can be remembered for this kind: git commit ….",
            ],
        ),
        ("mkdir src; cd src && pytest", ["`cd src` changes the folder", "only for exactly this call"]),
        ("pytest > $OUT", ["It has a redirection to a file: ", "mode default does"]),
        ("PAGER=./x man ls", ["It has an assignment before its program: "]),
        (
            "cat ../x | sort -o x",
            ["`cat ../x` asks: `../x` is not plainly a path of the workspace", "with these arguments `sort`"],
        ),
        ("cat ../x *", ["`cat ../x '*'` asks: `*` may stand for"]),
        ("git status", ["`git status` asks: the workspace is not the top of a git repository"]),
        ("cat .env", ["It names .env, a file that usually holds keys or passwords.", "asked about in every mode"]),
        ("grep -rn TODO .", ["It would also read `.env`, which usually holds keys", "asked about in every mode"]),
        ("rm -rf ~", ["A yes counts once"]),
        ("x=1; sudo git push", ["The rule is about `git push`."]),
    ],
)
@pytest.mark.cases(quick=2)
def test_explain_says_what_each_part_of_a_command_is(agx: Any, command: str, sentences: list[str]) -> None:
    (agx.folder / ".env").write_text("KEY=secret")
    agx("permissions", "add", "allow", "bash_exec", "command=git add")
    agx("permissions", "add", 'deny bash_exec command="git push"', "--user")
    done = agx("permissions", "explain", "bash_exec", json.dumps({"command": command}), "--json")
    row = json.loads(done.stdout)
    assert row["decision"] == ("deny" if "push" in command else "ask")
    found = [next((reason for reason in row["reasons"] if sentence in reason), None) for sentence in sentences]
    assert None not in found, row["reasons"]
    assert not any("decides what runs" in reason for reason in row["reasons"])


def test_explain_says_why_mode_plan_takes_a_command_for_no_read(agx: Any) -> None:
    (agx.folder / ".env").write_text("KEY=secret")
    done = agx("permissions", "explain", "bash_exec", '{"command": "cat .env"}', "--permission-mode", "plan")
    assert done.stdout.startswith("deny (rule: plan)\n")
    assert done.stdout.endswith("  It is not taken for a read: `.env` usually holds keys or passwords.\n")


def test_explain_refuses_an_unknown_tool_and_bad_arguments(agx: Any) -> None:
    unknown = agx("permissions", "explain", "file_raed", "{}")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "unknown tool 'file_raed'; known tools: " in unknown.stderr
    for arguments in ("[1]", "{", '{"wrong": 1}'):
        done = agx("permissions", "explain", "file_read", arguments)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr


@pytest.mark.promise("E4")
def test_doctor_reports_versions_settings_files_models_and_the_sandbox(agx: Any, tmp_path: Any) -> None:
    agx.environment |= {
        "AGX_MAX_TOOL_ROUNDS": "12",
        "OPENAI_API_KEY": "sk-canary-canary-canary",
        "HTTPS_PROXY": "http://me:canary@proxy:3128",
        "NO_PROXY": "[::1],10.0.0.0/99",
    }
    done = agx("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert {finding["topic"] for finding in report["findings"]} >= {
        "agenticx", "python", "settings", "home", "token", "store", "keys", "servers", "sandbox",
    }  # fmt: skip
    assert report["settings"]["max_tool_rounds"] == {"value": 12, "source": "AGX_MAX_TOOL_ROUNDS"}
    assert report["settings"]["permission_mode"] == {"value": "default", "source": "default"}
    texts = " ".join(finding["text"] for finding in report["findings"])
    assert "OPENAI_API_KEY" in texts
    assert "HTTPS_PROXY is http://proxy:3128" in texts
    assert "NO_PROXY has '10.0.0.0/99', which is ignored: " in texts
    assert ("Commands run in bubblewrap (" in texts) is (find_sandbox(SandboxOptions()).kind == "bubblewrap")
    agx.environment["AGX_SANDBOX"] = "off"
    bare = "none, so an approved shell command runs with all your permissions and could read the server's token. "
    assert f"--  sandbox      {bare}The setting AGX_SANDBOX is off.\n" in agx("doctor").stdout
    assert "canary" not in done.stdout + done.stderr
    assert not (tmp_path / "home").exists()


def test_doctor_reports_files_that_others_can_read_and_how_to_repair_them(agx: Any, tmp_path: Any) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "token").write_text("x" * 43)
    (home / "token").chmod(0o644)
    (home / "settings.toml").write_text('permission_mode = "plan"\n')
    done = agx("doctor")
    assert done.returncode == 1
    sentence = f"'{home / 'token'}' with mode 0644; only its owner may read it: chmod 600\n"
    assert f"!!  token        The server's token is kept in {sentence}" in done.stdout
    assert f"permission_mode = plan from {home / 'settings.toml'}\n" in done.stdout


@pytest.mark.parametrize("command", ["run hi", "serve --port 0", "chat", "sessions list", "models", "doctor"])
@pytest.mark.cases(quick=2)
def test_every_command_refuses_a_home_that_others_may_change(agx: Any, tmp_path: Any, command: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    done = agx(*command.split())
    sentence = f"'{home}' has mode 0777, so every user may change it; only you may: chmod 700 {home}\n"
    if command == "doctor":
        assert (done.returncode, f"!!  settings     {sentence}" in done.stdout) == (1, True)
    else:
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"agx: {sentence}")


@pytest.mark.ci_lane
def test_what_a_group_may_change_is_logged_and_reported_by_doctor(agx: Any, tmp_path: Any) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "settings.toml").touch()
    (home / "settings.toml").chmod(0o660)
    sentence = f"'{home / 'settings.toml'}' has mode 0660, so its group may change it: chmod 600 {home}/settings.toml"
    done = agx("run", "say hi")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert done.stderr.count("AGX_HOME is not private") == 1
    assert sentence in done.stderr
    assert f"home         {sentence}\n" in agx("doctor").stdout
    (home / "settings.toml").chmod(0o600)
    home.chmod(0o770)
    found = [line for line in agx("doctor").stdout.splitlines() if "chmod" in line]
    assert found == [f"!!  home         '{home}' has mode 0770, so its group may change it: chmod 700 {home}"]


def test_doctor_names_an_unknown_tool(agx: Any) -> None:
    agx.environment["AGX_ENABLED_TOOLS"] = "file_read,nope"
    done = agx("doctor")
    assert done.returncode == 1
    assert "!!  tools        AGX_ENABLED_TOOLS names the unknown tool 'nope'; known tools: " in done.stdout


def test_doctor_still_works_with_invalid_settings(agx: Any) -> None:
    agx.environment["AGX_PERMISSION_MODE"] = "bold"
    done = agx("doctor")
    assert done.returncode == 1
    assert "!!  settings     AGX_PERMISSION_MODE is 'bold'" in done.stdout


def short_token(home: Path) -> None:
    (home / "token").write_text("x\n")
    (home / "token").chmod(0o600)


def missing_token_file(home: Path) -> None:
    (home / "settings.toml").write_text(f'token_file = "{home / "elsewhere"}"\n')


def text_as_database(home: Path) -> None:
    (home / "sessions.db").write_bytes(b"hello")


def folder_as_database(home: Path) -> None:
    (home / "sessions.db").mkdir()


def database_of_another_version(home: Path) -> None:
    asyncio.run(SqliteStore(home / "sessions.db").aclose())
    set_version(home / "sessions.db", 99)


DAMAGES = [database_of_another_version, short_token, missing_token_file, text_as_database, folder_as_database]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.cases(quick=2)
def test_doctor_reports_what_prevents_a_server_from_starting_with_the_same_message(
    agx: Any, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    damage(home)
    before = sorted(home.iterdir())
    checked = agx("doctor")
    assert (checked.returncode, sorted(home.iterdir())) == (1, before)
    (problem,) = [line for line in checked.stdout.splitlines() if line.startswith("!!")]
    refused = agx("serve", "--port", "0")
    assert refused.returncode != 0
    assert refused.stderr.removeprefix("agx: ").strip() == problem[17:]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, where no folder can be created")
def test_doctor_and_serve_report_a_home_that_cannot_be_created(agx: Any) -> None:
    agx.environment["AGX_HOME"] = "/proc/agx/home"
    sentence = "AGX_HOME is '/proc/agx/home', which cannot be created: No such file or directory\n"
    checked, refused = agx("doctor"), agx("serve", "--port", "0")
    assert (checked.returncode, f"!!  home         {sentence}" in checked.stdout) == (1, True)
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", f"agx: {sentence}")


def test_doctor_leaves_no_folder_behind(agx: Any, tmp_path: Path) -> None:
    agx.environment["AGX_HOME"] = str(tmp_path / "a" / "b")
    assert f"--  home         {tmp_path / 'a' / 'b'} is created at the first start\n" in agx("doctor").stdout
    assert not (tmp_path / "a").exists()


@pytest.mark.ci_lane
def test_doctor_checks_the_database_without_changing_it(agx: Any, tmp_path: Path) -> None:
    agx("run", "say hi")
    home, database = tmp_path / "home", tmp_path / "home" / "sessions.db"
    before = sorted(home.iterdir())
    assert f"ok  store        {database} is intact\n" in agx("doctor").stdout
    assert sorted(home.iterdir()) == before
    log = home / "sessions.db-wal"
    log.write_bytes(b"copied without its index")
    assert (
        f"--  store        {database} has a write-ahead log that is applied at the next start\n" in agx("doctor").stdout
    )
    assert sorted(home.iterdir()) == sorted([*before, log])
    log.unlink()
    whole = database.read_bytes()
    for broken in (whole[:6000], whole[: len(whole) // 2], whole[:100] + b"\xff" * 8000 + whole[8100:]):
        database.write_bytes(broken)
        done = agx("doctor")
        assert (done.returncode, "!!  store        " in done.stdout) == (1, True), done.stdout
        assert database.read_bytes() == broken
        assert agx("serve", "--port", "0").returncode == 1


def test_doctor_reports_the_owner_of_the_store(agx: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    store, owner = SqliteStore(home / "sessions.db"), os.getpid()
    try:
        assert f"ok  store        {home / 'sessions.db'} belongs to process {owner}\n" in agx("doctor").stdout
    finally:
        asyncio.run(store.aclose())


@pytest.mark.ci_lane
def test_doctor_reports_a_server_that_does_not_answer(agx: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    store, owner = SqliteStore(home / "sessions.db"), os.getpid()
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:  # the kernel takes the connection, nobody answers
            address = StudioAddress("127.0.0.1", listening.getsockname()[1], "of a run", home / "token", owner)
            (home / "token").write_text("x" * 43)
            (home / "token").chmod(0o600)
            address.write_file(home)
            done = agx("doctor")
    finally:
        asyncio.run(store.aclose())
    (problem,) = [line for line in done.stdout.splitlines() if line.startswith("!!")]
    assert done.returncode == 1
    assert problem.startswith(f"!!  store        the server at {address.url} (process {owner}) ")


def test_doctor_keeps_its_exit_code_when_its_reader_closes_the_pipe(agx: Any) -> None:
    with agx.start("doctor", stdin=subprocess.DEVNULL) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait(PATIENCE)) == ("", 0)


# --- keys and models --------------------------------------------------------------------------------------------------

NOWHERE = "http://127.0.0.1:9/v1"
LISTED = {"data": [{"id": "gpt-5.4"}, {"id": "gpt-4o"}]}


@pytest.fixture
def start_server() -> Iterator[Callable[..., tuple[str, list[tuple[str, dict[str, str]]]]]]:
    """Return a function that starts a server with one answer to every GET, and returns its address and requests."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: object, status: int = 200) -> tuple[str, list[tuple[str, dict[str, str]]]]:
        seen: list[tuple[str, dict[str, str]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, format: str, *args: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", seen

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def doctor(agx: Any, *words: str, **environment: str) -> tuple[int, list[str]]:
    """Run `agx doctor` with no local servers but those named; return its exit code and lines."""
    local = {f"{name}_BASE_URL": NOWHERE for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM")}
    agx.environment |= {**local, **environment}
    done = agx("doctor", *words)
    assert "canary" not in done.stdout + done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("variable", "moved", "path", "header"),
    [
        ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1/models", ("authorization", "Bearer sk-canary-long-enough-4711")),
        ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "/v1/models", ("x-api-key", "sk-canary-long-enough-4711")),
        ("GEMINI_API_KEY", "GEMINI_BASE_URL", "/v1beta/models", ("x-goog-api-key", "sk-canary-long-enough-4711")),
        (
            "OPENROUTER_API_KEY",
            "OPENROUTER_BASE_URL",
            "/v1/key",
            ("authorization", "Bearer sk-canary-long-enough-4711"),
        ),
    ],
)
def test_doctor_tests_a_key_if_its_provider_is_on_this_machine(
    agx: Any, start_server: Any, variable: str, moved: str, path: str, header: tuple[str, str]
) -> None:
    address, seen = start_server(LISTED)
    base_url = address if variable.startswith(("ANTHROPIC", "GEMINI")) else f"{address}/v1"
    code, lines = doctor(agx, **{variable: "sk-canary-long-enough-4711", moved: base_url})
    assert code == 0
    assert f"ok  keys         {variable} is accepted by {base_url}, which lists 2 models" in lines
    assert [(where, headers[header[0]]) for where, headers in seen] == [(path, header[1])]


@pytest.mark.parametrize("status", [401, 403])
def test_doctor_reports_a_refused_key(agx: Any, start_server: Any, status: int) -> None:
    address, _ = start_server({"error": {"message": "Incorrect API key provided: sk-canary-long-enough-4711"}}, status)
    code, lines = doctor(agx, OPENAI_API_KEY="sk-canary-long-enough-4711", OPENAI_BASE_URL=f"{address}/v1")
    (line,) = [line for line in lines if "OPENAI_API_KEY is" in line and " keys " in line]
    assert (code, line.startswith("!!  keys         OPENAI_API_KEY is refused: openai ")) == (1, True)


@pytest.mark.parametrize("status", [404, 500])
def test_doctor_notes_a_key_that_cannot_be_tested(agx: Any, start_server: Any, status: int) -> None:
    address, _ = start_server({}, status)
    code, lines = doctor(agx, OPENAI_API_KEY="sk-canary-long-enough-4711", OPENAI_BASE_URL=f"{address}/v1")
    assert code == 0
    (line,) = [line for line in lines if " keys " in line]
    assert line.startswith(f"--  keys         OPENAI_API_KEY could not be tested: openai answered with HTTP {status}")


def test_doctor_sends_keys_to_other_machines_only_with_online(agx: Any) -> None:
    _, lines = doctor(agx, XAI_API_KEY="sk-canary-long-enough-4711")
    assert "ok  keys         XAI_API_KEY is set; --online tests it at https://api.x.ai/v1" in lines
    _, lines = doctor(agx, "--online", XAI_API_KEY="sk-canary-long-enough-4711", XAI_BASE_URL=NOWHERE)
    (line,) = [line for line in lines if " keys " in line]
    assert line.startswith("--  keys         XAI_API_KEY could not be tested: xai at 127.0.0.1:9 could not be reached")


def test_doctor_lists_local_models_and_their_capabilities(agx: Any, start_server: Any) -> None:
    address, _ = start_server(
        {"data": [{"id": "mystery", "max_model_len": 32768}, {"id": "qwen", "max_model_len": 8192}]}
    )
    expected = {
        f"ok  servers      vllm: a local server answers at {address}/v1: vllm:mystery, vllm:qwen",
        "ok  capabilities vllm:mystery: calls tools, several at once, takes 32,768 tokens",
    }
    deadline = time.monotonic() + PATIENCE
    while not expected <= {*(lines := doctor(agx, VLLM_BASE_URL=f"{address}/v1")[1])}:  # it waits 0.3 s for an answer
        assert time.monotonic() < deadline, lines


def test_doctor_prints_the_assumptions_on_an_unknown_model_and_the_price_of_a_known_one(
    agx: Any, tmp_path: Any
) -> None:
    _, lines = doctor(agx, AGX_MODEL="vllm:mystery", ANTHROPIC_API_KEY="sk-canary-long-enough-4711")
    own = tmp_path / "home" / "models.toml"
    assert f"--  capabilities vllm:mystery: {ModelFacts().assumption} (add a row to {own})" in lines
    (line,) = [line for line in lines if "anthropic:claude-sonnet-4-5: " in line]
    assert line.endswith(
        "takes 200,000 tokens, costs $3.00 and $15.00 per million tokens in and out, read on 2026-10-03"
    )


def test_doctor_names_a_mistake_in_your_models_file(agx: Any, tmp_path: Any) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "models.toml").write_text('[models."openai:x"]\nwindow = "big"\n')
    code, lines = doctor(agx)
    assert code == 1
    where = f'[models."openai:x"] in {tmp_path / "home" / "models.toml"}'
    assert f"!!  models       {where}: window is 'big'; input should be a valid integer, unable to parse" in "\n".join(
        lines
    )


@pytest.mark.parametrize(("variable", "topic"), [("AGX_MODEL", "model"), ("AGX_FALLBACK_MODELS", "fallback")])
def test_doctor_reports_a_model_that_no_turn_could_use(agx: Any, variable: str, topic: str) -> None:
    agx.environment[variable] = "nope"
    done = agx("doctor")
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"!!  {topic} ")]
    assert f"nope (the setting {variable}): " in line
    assert "capabilities" not in done.stdout
