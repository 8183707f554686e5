"""Checks of the page: axe, the accessibility checker, small windows, and what a person has asked the browser for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.server.chromium import Tab
from tests.support.server.small_windows import cut_controls

__all__ = ["AXE", "NARROW", "WIDE", "look_at"]

AXE = Path(__file__).parents[2] / "node" / "node_modules" / "axe-core" / "axe.min.js"
WIDE, NARROW = 1280, 390

_RUN = """axe.run(document, {iframes: false, resultTypes: ['violations'], ...OPTIONS}).then(({violations}) =>
    violations.flatMap(({id, nodes}) => nodes.map(({html, any}) =>
        `${id}: ${html.slice(0, 200)} ${any.map(({message}) => message)}`)))"""

_NEXT_FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"

_MARKED = """[...document.querySelectorAll('[aria-current]:not([aria-current=false]), [aria-selected=true]')]
    .filter((element) => element.checkVisibility() && getComputedStyle(element).outlineStyle === 'none')
    .map((element) => `not marked: ${element.outerHTML.slice(0, 200)}`)"""
_MOVING = """document.getAnimations()
    .filter(({timeline, playState}) => timeline === document.timeline && playState === 'running')
    .map(({effect}) => `moves: ${effect.target.outerHTML.slice(0, 200)}`)"""


async def look_at(tab: Tab, *widths: int) -> None:
    """Have axe look at the page in each width, in light and dark colours, and look whether it is wider than the tab.

    In forced colours what is chosen has to be marked, with reduced motion nothing may move, and in small windows no
    control may be cut. The tab has the last of the widths afterwards, without any the wide one.
    """
    if not await tab.evaluate("Boolean(window.axe)"):
        await tab.evaluate(f"{AXE.read_text(encoding='utf-8')}; 0")
    found = list[str]()
    widths = widths or (NARROW, WIDE)
    for width in widths:
        await tab.resize(width, 844)
        await tab.evaluate(_NEXT_FRAME)  # in which the page is told of its width
        found += [f"{width} px: {one}" for one in await _found(tab)]
        await tab.emulate(prefers_color_scheme="dark")
        found += [f"{width} px, dark: {one}" for one in await _found(tab, runOnly=["color-contrast"])]
        await tab.emulate(forced_colors="active")
        found += [f"{width} px, forced colours: {one}" for one in await tab.evaluate(_MARKED)]
        await tab.emulate(prefers_reduced_motion="reduce")
        found += [f"{width} px, reduced motion: {one}" for one in await tab.evaluate(_MOVING)]
        await tab.emulate()
        if await tab.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{width} px: the page is wider than the tab")
    found += await cut_controls(tab)
    await tab.resize(widths[-1], 844)
    await tab.evaluate(_NEXT_FRAME)
    assert not found, "\n".join(found)


async def _found(tab: Tab, **options: Any) -> list[str]:
    return await tab.evaluate(_RUN.replace("OPTIONS", json.dumps(options)))
