"""`agx serve` and `agx open` as a user runs them: processes, signals, one line on stderr."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import httpx
import pytest

from tests.support.server.agx_processes import agx, agx_serve, outcome
from tests.support.server.running_studio import frames_of, until
from tests.support.timeouts import PATIENCE, patient_client

pytestmark = pytest.mark.anyio


async def test_serve_prints_one_line_whose_ticket_works_once(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home") as served:
        async with patient_client(served.url) as stranger:
            answers = [await stranger.post("/api/ticket", json={"ticket": served.ticket}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 401]
        assert answers[0].json() == {"token": (tmp_path / "home" / "token").read_text().strip()}
        served.process.send_signal(signal.SIGTERM)
        assert await outcome(served.process) == (0, "", "")


@pytest.mark.promise("B6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.cases(quick=1)
async def test_a_signal_ends_streams_turns_and_questions_without_a_traceback(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with agx_serve(tmp_path / "home") as served, served.client() as client:
        sessions = [(await client.post("/api/sessions", json={})).json()["id"] for _ in range(3)]
        for session_id, text in zip(
            sessions, ("Write a.txt with the text x", "count to 9999", "run sleep 60"), strict=True
        ):
            await client.post(f"/api/sessions/{session_id}/turns", json={"input": text})

        async def watch(session_id: str, awaited: str) -> list[str]:
            async with client.stream("GET", f"/api/sessions/{session_id}/events") as answer:
                frames = frames_of(answer)
                seen = await until(frames, awaited)
                watched.release()
                seen += [frame async for frame in frames]
                return [frame.type for frame in seen if frame.type != "comment"]

        watched = asyncio.Semaphore(0)
        awaited = ("confirm_required", "turn_started", "confirm_required")
        watching = [asyncio.create_task(watch(*one)) for one in zip(sessions, awaited, strict=True)]
        for _ in sessions:
            await watched.acquire()
        started = asyncio.get_running_loop().time()
        served.process.send_signal(number)
        code, _, err = await outcome(served.process)
        assert (code, err) == (0, "")
        assert asyncio.get_running_loop().time() - started < 30  # on an idle machine a fraction of a second
        asking, counting, running = await asyncio.gather(*watching)
        assert counting[-2:] == ["error", "server_closing"]
        for log in (asking, running):  # their turns stay pending for the next start
            assert log[-2:] == ["confirm_required", "server_closing"]
        left = {path.name for path in (tmp_path / "home").iterdir()}
        assert left == {"sessions.db", "sessions.db.owner", "studio.json.owner", "token"}


@pytest.mark.ci_lane
async def test_a_pending_question_is_answered_after_a_restart_and_the_call_runs(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    workspace.mkdir()
    for end in (signal.SIGTERM, signal.SIGKILL):
        async with agx_serve(home) as served, served.client() as client:
            made = await client.post("/api/sessions", json={"workspace": str(workspace)})
            events = f"/api/sessions/{made.json()['id']}/events"
            turn = {"input": f"Write {end.name}.txt with the text x"}
            await client.post(events.replace("events", "turns"), json=turn)
            async with client.stream("GET", events) as answer:
                asked = (await until(frames_of(answer), "confirm_required"))[-1]
            served.process.send_signal(end)
            await outcome(served.process)
        async with agx_serve(home) as served, served.client() as client:
            (question,) = (await client.get("/api/confirms")).json()["confirms"]
            assert question["id"] == asked.data["data"]["id"]
            yes = {"approved": True, "digest": question["digest"]}
            assert (await client.post(f"/api/confirms/{question['id']}", json=yes)).status_code == 200
            async with client.stream("GET", events, headers={"Last-Event-ID": asked.id or ""}) as answer:
                after = [frame.type for frame in await until(frames_of(answer), "final")]
            assert after[:2] == ["confirm_response", "tool_result"]
            assert (workspace / f"{end.name}.txt").read_text() == "x"


async def test_open_prints_the_running_studios_page_with_a_new_ticket(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as served:
        code, out, err = await outcome(await agx(home, "open", "--print"))
        assert (code, err) == (0, "")
        url, _, ticket = out.strip().partition("/#")
        assert url == served.url
        assert ticket != served.ticket
        async with patient_client(served.url) as stranger:
            assert (await stranger.post("/api/ticket", json={"ticket": ticket})).status_code == 200


async def lines_in(path: Path, count: int) -> list[str]:
    """Wait until the file has `count` lines and return them."""
    async with asyncio.timeout(PATIENCE):
        while not path.exists() or len(lines := path.read_text().splitlines()) < count:
            await asyncio.sleep(0.02)
    return lines


async def test_a_browser_is_opened_without_a_ticket_among_its_arguments(tmp_path: Path) -> None:
    home, browser, seen = tmp_path / "home", tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {seen}\n')
    browser.chmod(0o755)
    async with agx_serve(home, "--open", BROWSER=str(browser)) as served:
        page = home / f"open-{served.port}.html"
        await lines_in(seen, 1)
        assert f"{served.url}/#{served.ticket}" in page.read_text()
        code, out, _ = await outcome(await agx(home, "open", BROWSER=str(browser)))
        assert await lines_in(seen, 2) == [page.as_uri()] * 2
        assert (code, out.strip() in page.read_text(), page.stat().st_mode & 0o777) == (0, True, 0o600)
        served.process.send_signal(signal.SIGTERM)
        assert await outcome(served.process) == (0, "", "")
        assert not page.exists()


@pytest.mark.promise("A5")
async def test_a_second_studio_for_the_same_folder_exits_at_once_and_names_the_first(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as first:
        code, out, err = await outcome(await agx(home, "serve", "--port", "0"))
        assert (code, out) == (1, "")
        assert f"(process {first.process.pid})" in err
        assert "AGX_HOME" in err
        first.process.kill()
        await outcome(first.process)
    async with agx_serve(home) as again:
        code, out, _ = await outcome(await agx(home, "open", "--print"))
        assert (code, out.partition("/#")[0]) == (0, again.url)


async def test_open_says_when_no_studio_runs(tmp_path: Path) -> None:
    code, out, err = await outcome(await agx(tmp_path / "home", "open", "--print"))
    assert (code, out) == (1, "")
    assert "agx serve" in err


@pytest.mark.parametrize(
    ("arguments", "more", "words"),
    [
        (["--host", "0.0.0.0"], {}, "--allow-remote"),
        (["--host", "::"], {}, "--allow-remote"),
        (["--host", "192.0.2.1"], {}, "--allow-remote"),
        (["--host", "0.0.0.0", "--allow-remote"], {}, "AGX_ALLOWED_HOSTS"),
        (["--port", "70000"], {}, "70000"),
        ([], {"AGX_TOKEN_FILE": "/nonexistent/token"}, "/nonexistent/token"),
        ([], {"AGX_ENABLED_TOOLS": "nope"}, "unknown tool 'nope'"),
        ([], {"AGX_CONFIRM_TIMEOUT_SECONDS": "never"}, "AGX_CONFIRM_TIMEOUT_SECONDS"),
    ],
)
async def test_invalid_options_and_settings_are_refused_with_a_sentence(
    tmp_path: Path, arguments: list[str], more: dict[str, str], words: str
) -> None:
    code, out, err = await outcome(await agx(tmp_path / "home", "serve", "--port", "0", *arguments, **more))
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.promise("G")
async def test_no_content_of_a_refused_body_is_logged(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home", AGX_LOG_LEVEL="info") as served, served.client() as client:
        session_id = (await client.post("/api/sessions", json={})).json()["id"]
        for path, body in (
            (f"/api/sessions/{session_id}/turns", {"input": ["private words"]}),
            (f"/api/sessions/{session_id}/turns", {"input": "x", "model": "private words" * 100}),
            ("/api/ticket", {"ticket": "private words" * 20}),
        ):
            assert (await client.post(path, json=body)).status_code == 422
        served.process.send_signal(signal.SIGTERM)
        _, _, err = await outcome(served.process)
    assert err.count("invalid request body") == 3
    assert "private words" not in err


async def test_the_server_logs_each_turn_by_default(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home", AGX_LOG_LEVEL="") as served, served.client() as client:
        session_id = (await client.post("/api/sessions", json={})).json()["id"]
        begun = await client.post(f"/api/sessions/{session_id}/turns", json={"input": "say private words"})
        async with client.stream("GET", f"/api/sessions/{session_id}/events") as answer:
            await until(frames_of(answer), "final")
        served.process.send_signal(signal.SIGTERM)
        _, _, err = await outcome(served.process)
    ids = f"session='{session_id}' turn='{begun.json()['turn_id']}' agent='meta'"
    assert [line.partition(" model=")[0].split(" ", 2)[2] for line in err.splitlines()] == [
        f"INFO    agenticx.runtime.turn_log llm_call {ids}",
        f"INFO    agenticx.runtime.turn_log turn {ids}",
    ]
    assert "private words" not in err


async def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        code, _, err = await outcome(await agx(tmp_path / "home", "serve", "--port", port))
    assert code == 2
    assert f"port {port}" in err


async def test_a_remote_studio_accepts_its_allowed_hosts(tmp_path: Path) -> None:
    arguments, hosts = (
        ("--host", "0.0.0.0", "--allow-remote"),
        {"AGX_ALLOWED_HOSTS": "studio.test, named.test:1234, tls.test:443"},
    )
    async with agx_serve(tmp_path / "home", *arguments, **hosts) as served, served.client() as client:
        for host, status in (
            (f"studio.test:{served.port}", 200),
            ("named.test:1234", 200),
            ("studio.test", 421),
            ("tls.test", 200),
            (f"tls.test:{served.port}", 421),
            (f"other.test:{served.port}", 421),
            (f"127.0.0.1:{served.port}", 200),
        ):
            assert (await client.get("/api/tools", headers={"Host": host})).status_code == status
        for origin, status in (("https://tls.test", 200), ("http://tls.test", 403), ("https://studio.test", 403)):
            headers = {"Host": "tls.test", "Origin": origin}
            assert (await client.get("/api/tools", headers=headers)).status_code == status


@pytest.mark.promise("G")
async def test_five_hundred_half_open_sockets_do_not_slow_the_others(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home") as served, served.client() as client:
        alone = min([await second_slowest_request(client) for _ in range(3)])
        opening = (asyncio.open_connection("127.0.0.1", served.port) for _ in range(500))
        halves = [writer for _, writer in await asyncio.gather(*opening)]
        for number, writer in enumerate(halves):
            writer.write(b"POST /api/sessions HTTP/1.1\r\nHost: 127.0.0.1"[: number % 40])
        assert min([await second_slowest_request(client) for _ in range(3)]) < 0.2 + 10 * alone
        for writer in halves:
            writer.transport.abort()


async def second_slowest_request(client: httpx.AsyncClient) -> float:
    """Return the seconds of the second slowest of thirty requests."""
    durations: list[float] = []
    for _ in range(30):
        started = asyncio.get_running_loop().time()
        assert (await client.get("/api/tools")).status_code == 200
        durations.append(asyncio.get_running_loop().time() - started)
    return sorted(durations)[-2]
