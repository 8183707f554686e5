"""Tests that every route needs the token: headers, spellings of paths, tickets, the token file."""

from __future__ import annotations

import hmac
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from agenticx.errors import SettingsError
from agenticx.settings import load_settings
from agenticx.shared_state.values import MemorySharedValues
from studio.access import TICKET_SECONDS, MemoryTickets, SharedTickets, load_or_create_token
from studio.routes import page
from tests.support.server.raw_http import (
    AUTHORIZED,
    JSON,
    PROTECTED,
    raw_request,
    send_raw,
)
from tests.support.server.running_studio import TOKEN, RunningStudio

pytestmark = [pytest.mark.anyio, pytest.mark.promise("G")]


INVALID_TOKENS: dict[str, Sequence[str]] = {
    "none": (),
    "wrong": (f"Authorization: Bearer {'x' * len(TOKEN)}",),
    "short": (f"Authorization: Bearer {TOKEN[:-1]}",),
    "long": (f"Authorization: Bearer {TOKEN}x",),
    "empty": ("Authorization: Bearer ",),
    "without scheme": (f"Authorization: {TOKEN}",),
    "other scheme": (f"Authorization: Basic {TOKEN}",),
    "doubled header": (AUTHORIZED, AUTHORIZED),
    "doubled value": (f"Authorization: Bearer {TOKEN}, Bearer {TOKEN}",),
    "not ascii": ("Authorization: Bearer \xe4\xff",),
    "cookie": (f"Cookie: token={TOKEN}",),
}


@pytest.mark.parametrize("reason", INVALID_TOKENS)
async def test_every_route_without_the_valid_token_is_401(studio: RunningStudio, reason: str) -> None:
    for method, path in [*PROTECTED, ("GET", "/api"), ("GET", "/api/nothing"), ("TRACE", "/api/sessions")]:
        answer = await send_raw(studio, raw_request(method, path, *INVALID_TOKENS[reason]))
        assert (path, answer.status, answer.code) == (path, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_token_in_the_query_is_ignored(studio: RunningStudio) -> None:
    for name in ("token", "access_token", "authorization", "ticket"):
        assert (await send_raw(studio, raw_request("GET", f"/api/sessions?{name}={TOKEN}"))).status == 401


@pytest.mark.parametrize(
    "path",
    [
        "/API/sessions",
        "/api/Sessions",
        "/%61pi/sessions",
        "/api/%73essions",
        "/api%2Fsessions",
        "//api/sessions",
        "/api//sessions",
        "/api/sessions/",
        "/api/./sessions",
        "/x/../api/sessions",
        "/api/health/",
        "/api/health%00",
        "/api/health/../sessions",
        "/api/ticket%2f..%2fsessions",
        "/openapi.json",
        "/nothing",
        "http://127.0.0.1:PORT/api/sessions",
    ],
)
async def test_no_spelling_of_a_path_bypasses_the_token(studio: RunningStudio, path: str) -> None:
    assert (await send_raw(studio, raw_request("GET", path))).status == 401


@pytest.mark.parametrize(
    "path",
    [
        "/%61pi/ready",
        "/api%2Fready",
        "/api/read%79",
        "/API/ready",
        "/api/Ready",
        "/api/ready%00",
        "/api/confirms/cfm%5Fx",
        "/api/sessions/%ff",
        "/api/sessions/%c3%a9",
        "/api/sessions/%zz",
        "/%61pi/health",
        "/assets/%6dain.js",
        "/%2F",
    ],
)
async def test_only_the_canonical_spelling_of_a_path_is_served(studio: RunningStudio, path: str) -> None:
    answer = await send_raw(studio, raw_request("GET", path, AUTHORIZED))
    assert (answer.status, answer.code) == (404, "not_found")


@pytest.mark.parametrize("sign", "!$&'()*+,;=:@~")
async def test_signs_that_need_not_be_encoded_may_be(studio: RunningStudio, sign: str) -> None:
    for spelling in (sign, f"%{ord(sign):02X}", f"%{ord(sign):02x}"):
        answer = await send_raw(studio, raw_request("GET", f"/api/sessions/a{spelling}b", AUTHORIZED))
        assert (answer.status, answer.code) == (404, "session_not_found"), spelling


async def test_an_id_may_be_encoded_where_it_must_be(studio: RunningStudio) -> None:
    answer = await send_raw(studio, raw_request("GET", "/api/sessions/%C3%A9%20x", AUTHORIZED))
    assert (answer.status, answer.code) == (404, "session_not_found")
    session_id = (await studio.session()).replace("s", "%73")
    assert (
        await send_raw(studio, raw_request("GET", f"/api/confirms?session_id={session_id}", AUTHORIZED))
    ).status == 200


@pytest.mark.parametrize(
    "path", ["/assets/../api/sessions", "/assets/%2e%2e/api/sessions", "/assets/%2e%2e%2fserver.py"]
)
async def test_asset_paths_cannot_leave_the_assets_folder(studio: RunningStudio, path: str) -> None:
    assert (await send_raw(studio, raw_request("GET", path))).status in (401, 404)


@pytest.mark.parametrize(
    "path",
    [
        "/assets",
        "/assets/",
        "/assets/main.js/",
        "/assets//main.js",
        "/assets/./main.js",
        "/assets/vendor",
        "/assets/vendor/../main.js",
        "/assets/vendor//preact.js",
        "/assets/vendor%2Fpreact.js",
        "/assets/preact.js",
    ],
)
async def test_an_asset_has_one_path(studio: RunningStudio, path: str) -> None:
    assert (await send_raw(studio, raw_request("GET", path, AUTHORIZED))).status == 404


async def test_an_asset_in_a_folder_has_its_type_and_is_asked_for_again_by_its_etag(studio: RunningStudio) -> None:
    for name, media_type in (("preact.js", "text/javascript"), ("vendor.toml", "text/plain")):
        answer = await studio.client.get(f"/assets/vendor/{name}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, f"{media_type}; charset=utf-8")
        known = {"If-None-Match": answer.headers["etag"]}
        again = await studio.client.get(f"/assets/vendor/{name}", headers=known)
        assert (again.status_code, again.headers["cache-control"]) == (304, "no-cache")


async def test_the_assets_that_the_page_names_are_kept_until_one_of_them_changes(
    studio: RunningStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "web"
    shutil.copytree(page._FOLDER, folder)
    monkeypatch.setattr(page, "_FOLDER", folder)

    async def main_of_page() -> str:
        shown = await studio.client.get("/")
        assert shown.headers["cache-control"] == "no-cache"
        found = re.search(r'src="(assets/[0-9a-f]{32}/main\.js)"', shown.text)
        assert found is not None
        assert len(re.findall('"assets/', shown.text)) == shown.text.count(found[1].removesuffix("main.js"))
        return f"/{found[1]}"

    first = await main_of_page()
    kept = await studio.client.get(first)
    assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert kept.content == (await studio.client.get("/assets/main.js")).content
    (folder / "main.js").write_text("changed")
    changed = await studio.client.get(first)
    assert (changed.text, changed.headers["cache-control"]) == ("changed", "no-cache")
    second = await main_of_page()
    assert second != first
    for path, kind in ((first, "no-cache"), (second, "public, max-age=31536000, immutable")):
        answer = await studio.client.get(path)
        assert (answer.text, answer.headers["cache-control"]) == ("changed", kind)
    assert (await studio.client.get(first.replace("main.js", "none.js"))).status_code == 404


async def test_the_page_is_compressed_for_clients_that_accept_it(studio: RunningStudio) -> None:
    plain = await studio.client.get("/assets/main.js", headers={"Accept-Encoding": "br, gzip;q=0"})
    assert "content-encoding" not in plain.headers
    for accepted in ("gzip", "deflate, GZIP;q=0.5", "br;q=1, *;q=0.1"):
        answer = await studio.client.get("/assets/main.js", headers={"Accept-Encoding": accepted})
        assert (answer.headers["content-encoding"], answer.content) == ("gzip", plain.content)
        assert int(answer.headers["content-length"]) < len(plain.content)
        assert answer.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
        assert answer.headers["etag"] != plain.headers["etag"]
        known = {"Accept-Encoding": accepted, "If-None-Match": answer.headers["etag"]}
        assert (await studio.client.get("/assets/main.js", headers=known)).status_code == 304
    assert "content-encoding" in (await studio.client.get("/")).headers
    assert "content-encoding" not in (await studio.client.get("/api/tools")).headers


async def test_a_401_comes_before_the_body_is_read(studio: RunningStudio) -> None:
    head = raw_request("POST", "/api/sessions", JSON, "Content-Length: 1000000000")
    assert (await send_raw(studio, head)).status == 401


async def test_public_paths_need_no_token(studio: RunningStudio) -> None:
    for path in ("/", "/api/health", "/assets/main.js"):
        assert (await send_raw(studio, raw_request("GET", path))).status == 200


async def test_a_server_proves_that_it_has_the_token(studio: RunningStudio) -> None:
    host, challenge = f"127.0.0.1:{studio.port}", "0123456789abcdef" * 4
    answer = await send_raw(studio, raw_request("GET", f"/api/identity?challenge={challenge}"))
    proof = hmac.new(TOKEN.encode(), f"agenticx {host} {challenge}".encode(), "sha256").hexdigest()
    assert (answer.status, json.loads(answer.body)) == (200, {"proof": proof})
    for refused in ("", "?challenge=", "?challenge=ab", f"?challenge={'A' * 64}", f"?challenge={'a' * 129}"):
        answer = await send_raw(studio, raw_request("GET", f"/api/identity{refused}"))
        assert (answer.status, answer.code) in {(422, "bad_query"), (422, "invalid_query"), (422, "invalid_parameter")}


# --- tickets ----------------------------------------------------------------------------------------------------------


async def test_a_ticket_gives_the_token_once(studio: RunningStudio) -> None:
    fresh = await studio.client.post("/api/tickets")
    assert fresh.status_code == 201
    body = json.dumps({"ticket": fresh.json()["ticket"]})
    answers = [await send_raw(studio, raw_request("POST", "/api/ticket", JSON, body=body)) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 401]
    assert json.loads(answers[0].body) == {"token": TOKEN}
    assert answers[1].code == "bad_ticket"


async def test_a_ticket_expires_after_ten_minutes() -> None:
    clock = ManualClock()
    for tickets in (MemoryTickets(clock), SharedTickets(MemorySharedValues(clock))):
        clock.seconds = 0.0
        early, late = await tickets.issue(), await tickets.issue()
        clock.seconds = TICKET_SECONDS - 1
        assert await tickets.redeem(early)
        clock.seconds = TICKET_SECONDS
        assert not await tickets.redeem(late)
        assert not await tickets.redeem("")


class ManualClock:
    """A clock whose time a test sets."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


# --- the token file ---------------------------------------------------------------------------------------------------


def test_the_token_is_made_at_first_start_for_its_owner_alone_and_kept(tmp_path: Path) -> None:
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    token = load_or_create_token(settings)
    path = tmp_path / "home" / "token"
    assert len(token) >= 43
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_or_create_token(settings) == token


@pytest.mark.parametrize(
    ("content", "mode", "complaint"),
    [
        ("a" * 31, 0o600, "at least 32"),
        ("a" * 31 + "+", 0o600, "at least 32"),
        ("a" * 32 + " " + "a" * 32, 0o600, "at least 32"),
        ("", 0o600, "at least 32"),
        ("ä" * 40, 0o600, "cannot be read"),
        ("a" * 40, 0o640, "0640"),
        ("a" * 40, 0o604, "0604"),
    ],
)
def test_an_invalid_token_file_is_refused_without_quoting_it(
    tmp_path: Path, content: str, mode: int, complaint: str
) -> None:
    path = tmp_path / "mine"
    path.write_text(content)
    path.chmod(mode)
    settings = load_settings({"home": tmp_path / "home", "token_file": path}, environ={})
    with pytest.raises(SettingsError, match=complaint) as caught:
        load_or_create_token(settings)
    assert not content or content not in str(caught.value)


def test_a_token_file_is_read_stripped_and_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    settings = load_settings({"home": tmp_path / "home", "token_file": path}, environ={})
    with pytest.raises(SettingsError, match="mine"):
        load_or_create_token(settings)
    path.write_text(f"\n  {'Ab-_' * 8} \n")
    path.chmod(0o600)
    assert load_or_create_token(settings) == "Ab-_" * 8
