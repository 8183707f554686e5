"""The shell of previews: its policy, what it shows in Chromium, and that a page in it reaches nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agenticx.errors import SettingsError
from agenticx.settings import load_settings
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.hostile_pages import FLOOD, NAVIGATING, RESIDENT
from tests.support.server.listener import Listener, listening
from tests.support.server.page import enter
from tests.support.server.running_studio import RunningStudio, StudioMaker
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

in_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; media-src data: blob:; connect-src 'none'; frame-src 'none'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
WITH_SHELL = """
    window.messages = [];
    addEventListener('message', ({data}) => messages.push(data));
    const shell = Object.assign(document.createElement('iframe'), {id: 'shell', src: 'preview'});
    shell.style = 'position: fixed; inset: 0; width: 100%; height: 100%'; // browsers slow down what is out of sight
    document.body.append(shell);
"""


async def test_the_shell_is_public_and_has_a_policy_of_its_own(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        answer = await studio.client.get("/preview", headers={"Authorization": ""})
        assert answer.headers.get_list("content-security-policy") == [POLICY]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert 'data-hosts=""' in answer.text
        (policy,) = (await studio.client.get("/")).headers.get_list("content-security-policy")
        assert "frame-src 'self'" in policy
        assert "img-src 'self' blob:" in policy


async def test_hosts_of_the_settings_may_give_scripts_styles_images_and_fonts_only(make_studio: StudioMaker) -> None:
    async with make_studio(preview_hosts="cdn.example.com https://Fonts.example:8443") as studio:
        policy = (await studio.client.get("/preview")).headers["content-security-policy"]
    hosts = " https://cdn.example.com https://fonts.example:8443"
    directives = dict(part.split(" ", 1) for part in policy.split("; "))
    expected = dict(part.split(" ", 1) for part in POLICY.split("; "))
    assert directives == expected | {
        name: expected[name] + hosts for name in ("script-src", "style-src", "img-src", "font-src")
    }


@pytest.mark.parametrize(
    "host", ["http://cdn.example", "*", "*.example.com", "cdn.example/path", "a; script-src *", "'self'"]
)
def test_other_preview_hosts_are_refused(host: str) -> None:
    with pytest.raises(
        SettingsError, match=r"AGX_PREVIEW_HOSTS is .*; it must be https hosts, such as cdn.example.com"
    ):
        load_settings(environ={"AGX_PREVIEW_HOSTS": host})


# --- in Chromium ------------------------------------------------------------------------------------------------------


async def open_shell(tab: Tab, studio: RunningStudio) -> None:
    await enter(tab, studio)
    await tab.evaluate(f"(() => {{ {WITH_SHELL} }})()")
    await tab.wait_for("messages.some(({type}) => type === 'ready')")


async def post(tab: Tab, html: str, *, scripts: bool = True, id_: int = 1, is_growing: bool = False) -> None:
    message = {"type": "show", "id": id_, "path": "index.html", "html": html, "files": []}
    message |= {"scripts": scripts, "isGrowing": is_growing}
    await tab.evaluate(f"document.getElementById('shell').contentWindow.postMessage({json.dumps(message)}, '*')")


async def show(
    tab: Tab, html: str, *, scripts: bool = True, id_: int = 1, is_growing: bool = False
) -> list[dict[str, Any]]:
    """Show a page and return what the shell has said until it was shown, and what was said before."""
    await post(tab, html, scripts=scripts, id_=id_, is_growing=is_growing)
    return await tab.wait_for(f"messages.some(({{type, id}}) => type === 'shown' && id === {id_}) && messages")


def hostile(html: str, listener: Listener) -> str:
    won = "const won = (what) => top.postMessage({won: String(what)}, '*');"
    start = f"<!doctype html><title>x</title><script>{won}</script>"
    end = (
        "<script>addEventListener('load', () => requestIdleCallback(() => top.postMessage({over: true}, '*')))</script>"
    )
    return start + end + html.replace("URL", listener.url).replace("HOST", f"127.0.0.1:{listener.port}")


@in_chromium
@pytest.mark.promise("I3")
async def test_hostile_pages_reach_no_server_and_read_nothing_of_the_page_around_them(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio() as studio, listening() as listener:
        await open_shell(tab, studio)
        await show(tab, hostile("\n".join(RESIDENT.values()), listener))
        await tab.wait_for("messages.some(({over}) => over)")
        for number, page in enumerate(NAVIGATING.values(), start=2):
            messages = await show(tab, hostile(page, listener), id_=number)
        blocked = [(one["kind"], one["url"]) for one in messages if one.get("type") == "blocked"]
        assert {"image", "script", "style", "font", "media", "request", "frame", "object"} <= {
            kind for kind, _ in blocked
        }
        assert ("image", f"{listener.url}/image") in blocked
        assert [one["won"] for one in messages if "won" in one] == []
        assert await tab.evaluate("location.pathname") == "/"
        await post(tab, FLOOD, id_=100)
        await tab.wait_for("messages.some(({flooded}) => flooded)")
        await post(tab, "<p>next", scripts=False, id_=101)
        await tab.wait_for("messages.some(({type, id}) => type === 'shown' && id === 101)")
        assert await tab.evaluate("messages.filter(({url}) => url?.startsWith('https://flood.example/')).length") <= 100
        assert await tab.evaluate("document.cookie + localStorage.length") == "0"
        assert listener.requests == []
    assert len(RESIDENT) + len(NAVIGATING) >= 40


@in_chromium
@pytest.mark.cases(quick=0)
async def test_the_same_pages_reach_the_listener_where_no_policy_holds_them(tab: Tab) -> None:
    async with listening() as listener:
        leaving = {"form", "top navigation", "parent navigation"}  # as this page is the one at the top
        pages = [page for name, page in RESIDENT.items() if name not in leaving]
        listener.page = hostile("\n".join(pages), listener)
        await tab.open(f"{listener.url}/")
        sent = {"/keep", "/xhr", "/socket", "/events", "/beacon", "/image", "/srcset1", "/background", "/import.css"}
        sent |= {"/sheet.css", "/font", "/video", "/svg-image", "/preload", "/script.js", "/import.js", "/worker.js"}
        sent |= {"/shared.js", "/service.js", "/frame", "/nested", "/empty", "/object"}
        sent |= {"/foreign", "/paint", "/filter", "/mask", "/cursor", "/list", "/content", "/border", "/css-mask"}
        sent |= {"/shape", "/fx", "/set1", "/face", "/paint.js", "/mapped.js", "/deep"}
        async with asyncio.timeout(PATIENCE):
            while not sent <= set(listener.requests):
                await asyncio.sleep(0)


@pytest.mark.ci_lane
@in_chromium
@pytest.mark.promise("I3")
async def test_a_page_whose_scripts_do_not_run_loads_nothing_and_what_it_wants_is_listed(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(preview_hosts="cdn.example.com") as studio, listening() as listener:
        await open_shell(tab, studio)
        page = hostile("\n".join((*RESIDENT.values(), *NAVIGATING.values())), listener)
        page += "<img src=images/a.png><script src=https://cdn.example.com/a.js></script><img src=https://e.example/a>"
        messages = await show(tab, page, scripts=False)
        assert {one.get("type") for one in messages} == {"ready", "shown", "blocked", "scripts"}  # none is of a script
        blocked = {(one["kind"], one["url"]): one["canBeAllowed"] for one in messages if one.get("type") == "blocked"}
        url = listener.url
        assert blocked["image", f"{url}/image"] is False  # only https hosts can be
        assert blocked["image", "https://e.example/a"] is True
        assert blocked["image", "images/a.png"] is False
        assert ("script", "https://cdn.example.com/a.js") not in blocked
        wanted = {"style": "/sheet.css", "font": "/font", "media": "/video", "frame": "/frame", "object": "/object"}
        assert {(kind, url + path) for kind, path in wanted.items()} <= blocked.keys()
        assert listener.requests == []


@pytest.mark.ci_lane
@in_chromium
async def test_a_page_is_shown_in_standards_mode_and_follows_links_to_its_own_places(
    make_studio: StudioMaker, tab: Tab
) -> None:
    tell = "top.postMessage({told: [document.compatMode, document.scripts.length, scrollY > 0]}, '*')"
    page = "<!DOCTYPE html><html lang=de><body><a id=a href='#end'>x</a><div style='height:5000px'></div><p id=end>"
    async with make_studio() as studio:
        await open_shell(tab, studio)
        await show(tab, f"{page}<script>addEventListener('hashchange', () => {tell}); a.click()</script>")
        told = await tab.wait_for("messages.find(({told}) => told)?.told")
        assert told == ["CSS1Compat", 1, True]


@pytest.mark.ci_lane
@in_chromium
async def test_links_to_places_of_a_page_work_without_scripts_and_other_links_lead_nowhere(
    make_studio: StudioMaker, tab: Tab
) -> None:
    style = "display: block; height: 100vh"
    page = f"<a href='https://evil.example/?secret' style='{style}'>x</a><p id=end style='height: 99vh'>"
    async with make_studio() as studio:
        await open_shell(tab, studio)
        await show(tab, page, scripts=False)
        await tab.click("shell")
        blocked = await tab.wait_for("messages.find(({kind}) => kind === 'link')")
        assert blocked["url"] == "https://evil.example"
        await show(tab, f"<a href='#end' style='{style}'>x</a>{page}", scripts=False, id_=2)
        await tab.click("shell")
        await show(tab, "<p>last", scripts=False, id_=3)
        assert await tab.evaluate("messages.filter(({kind}) => kind === 'link').length") == 1


@pytest.mark.ci_lane
@in_chromium
async def test_a_page_that_goes_elsewhere_is_drawn_again_without_scripts(make_studio: StudioMaker, tab: Tab) -> None:
    page = "<script>top.postMessage({ran: true}, '*'); location = 'https://evil.example/?secret'</script>"
    async with make_studio() as studio:
        await open_shell(tab, studio)
        await show(tab, page)
        left = await tab.wait_for("messages.find(({type}) => type === 'left')")
        assert left == {"type": "left", "id": 1, "url": "https://evil.example"}
        await show(tab, "<p>next", scripts=False, id_=2)
        assert await tab.evaluate("messages.filter(({ran}) => ran).length") == 1


@pytest.mark.ci_lane
@in_chromium
async def test_a_page_that_hangs_leaves_the_page_around_it_alive_and_can_be_removed(
    make_studio: StudioMaker, tab: Tab
) -> None:
    page = "<script>top.postMessage({hangs: true}, '*'); setTimeout(() => { for (;;); }, 50)</script>"
    async with make_studio() as studio:
        await open_shell(tab, studio)
        await post(tab, page)
        await tab.wait_for("messages.some(({hangs}) => hangs)")
        await tab.evaluate(f"document.getElementById('shell').remove(), (() => {{ {WITH_SHELL} }})()")
        await tab.wait_for("messages.some(({type}) => type === 'ready')")
        await show(tab, "<p>next", scripts=False)


RED, BLUE = (255, 0, 0), (0, 0, 255)


@pytest.mark.ci_lane
@in_chromium
async def test_a_page_that_grows_is_scrolled_and_stays_where_it_is_until_another_is_shown(
    make_studio: StudioMaker, tab: Tab
) -> None:
    start = "<!-- a --><!doctype html><html lang=de><head><title>x</title><style>html { scroll-behavior: smooth; "
    start += "scroll-padding-top: 90px } body { margin: 0 } head { display: none } * + * { margin-top: 1px } </style>"
    start += "</head><body><div style='height: 500px; background: #f00'></div>"
    rest = "<div style='height: 9000px; background: #00f'></div>"
    async with make_studio() as studio:
        await open_shell(tab, studio)
        await show(tab, "<!---->" * 40 + "<p>", scripts=False, id_=5, is_growing=True)
        await show(tab, start + rest, scripts=False, is_growing=True)
        assert await tab.color_at(400, 10) == RED
        async with asyncio.timeout(PATIENCE):
            while await tab.color_at(400, 10) != BLUE:  # a frame that is new sees no wheel
                await tab.turn_wheel("document.getElementById('shell')", 300)
        await show(tab, start + rest + "<p>", scripts=False, id_=2, is_growing=True)
        assert await tab.color_at(400, 10) == BLUE
        await show(tab, start + rest + "<p>end", scripts=False, id_=3)
        assert await tab.color_at(400, 10) == BLUE
        await show(tab, start + "other" + rest, scripts=False, id_=4)
        assert await tab.color_at(400, 10) == RED
        assert {one["type"] for one in await tab.evaluate("messages")} == {"ready", "shown"}
        assert tab.errors == []


ODD = (
    "<a '",
    '<a b="',
    "<img src=a.png ",
    "<style>@import ",
    "<p style='url(",
    "<img srcset='a.png,",
    "<!--<",
    "<title>",
)
ODD += ("<style>@import 'a.css' ", "<style>@import 'a.css';", "<p style='", "<a href='&", "<!---->", '<b a="&lt;"></b>')


@in_chromium
@pytest.mark.cases(quick=0)
async def test_half_a_megabyte_of_odd_texts_that_name_files_is_drawn(make_studio: StudioMaker, tab: Tab) -> None:
    files = "[{path: 'a.png', sha256: 'a', content: new Blob(['x'.repeat(9999)], {type: 'image/png'})},"
    files += "{path: 'a.css', sha256: 'b', content: new Blob(['@import \"a.css\";'.repeat(999)], {type: 'text/css'})}]"
    async with make_studio() as studio:
        await open_shell(tab, studio)
        pages = [f"{text!r}.repeat({(1 << 19) // len(text)})" for text in ODD]
        pages.append("`<img srcset='a.png${','.repeat(1 << 19)}x'><img src='a.png${'#'.repeat(1 << 19)}&#10;x'>`")
        for number, html in enumerate(pages, start=1):
            message = f"{{type: 'show', id: {number}, path: 'index.html', html: {html}, files: {files}, "
            message += "scripts: false, isGrowing: true}"
            await tab.evaluate(f"document.getElementById('shell').contentWindow.postMessage({message}, '*')")
            await tab.wait_for(f"messages.some(({{type, id}}) => type === 'shown' && id === {number})")
