"""Controls that are cut or covered where there is little room: in a zoomed window, a low one, on a small phone."""

from __future__ import annotations

from tests.support.server.chromium import Tab

__all__ = ["SMALL_TARGETS", "SMALL_WINDOWS", "cut_controls"]

SMALL_WINDOWS = {
    "1280 × 720 at 200 %": (640, 360),
    "1280 × 1024 at 400 %": (320, 256),
    "a low window": (1280, 560),
    "a small phone": (390, 600),
}
"""The sizes in CSS pixels."""

SMALL_TARGETS = """[...document.querySelectorAll('button, a[href], input, select, textarea, summary')].filter((e) => {
    const {width, height} = e.getBoundingClientRect();
    const isLinkInText = e.matches('p a'), isBox = e.matches('[type=checkbox], [type=radio]'); // its label is pressed
    const isSeen = e.checkVisibility({visibilityProperty: true}) && !e.closest('.hidden-text');
    return isSeen && !isLinkInText && !isBox && Math.min(width, height) < 44;
}).map((e) => e.outerHTML.slice(0, 120))"""
"""A JavaScript expression for the controls that are smaller than the place of a finger."""

_CUT = """(() => {
    const found = [], top = document.querySelector('dialog[open]') ?? document.body;
    if (document.documentElement.scrollWidth > innerWidth) found.push('the page is wider than the window');
    if (document.documentElement.scrollHeight > innerHeight) found.push('the page is higher than the window');
    const isTiny = matchMedia('(max-height: 320px)').matches; // everything below the header scrolls as a whole
    const scrollerOf = (element) => { // the first around it that has more than it shows; the buttons of a dock are seen
        for (let at = element.parentElement; at; at = at.parentElement) {
            if (at.matches('.dock') && !isTiny) return null;
            if (getComputedStyle(at).overflowY !== 'visible' && at.scrollHeight > at.clientHeight + 1) return at;
        }
        return null;
    };
    const lacksRoom = (select) => {
        const one = select.cloneNode();
        one.append(new Option(select.selectedOptions[0]?.label));
        one.style = 'position: absolute; max-width: none; visibility: hidden';
        select.after(one);
        const width = one.offsetWidth;
        one.remove();
        return width > select.offsetWidth + 1;
    };
    for (const element of top.querySelectorAll('button, a[href], input, select, textarea, summary, [role=option]')) {
        if (!element.checkVisibility({visibilityProperty: true}) || element.closest('.hidden-text')) continue;
        const say = (what) => found.push(`${what}: ${element.outerHTML.slice(0, 160)}`);
        const [{left, top, right, bottom}] = element.getClientRects(); // a link in text may have several
        if (left < -1 || right > innerWidth + 1) say('beside the window');
        if (!scrollerOf(element)) {
            const x = Math.min(12, (right - left) / 2), y = Math.min(4, (bottom - top) / 2); // within round corners
            const places = [[left + x, top + y], [(left + right) / 2, (top + bottom) / 2], [right - x, bottom - y]];
            element.style.pointerEvents = 'auto'; // also if it takes no press yet
            const seen = places.map(([x, y]) => document.elementFromPoint(x, y));
            element.style.pointerEvents = '';
            if (!seen.every((one) => one && (element.contains(one) || one.control === element))) say('not seen whole');
        }
        const isCut = element.matches('select') ? !element.matches('#session-model') && lacksRoom(element)
            : element.matches('button, textarea') && element.scrollWidth > element.clientWidth + 1;
        if (isCut) say('its text is cut');
    }
    return found;
})()"""


async def cut_controls(tab: Tab) -> list[str]:
    """Return what is wrong with the controls in the small windows: those that do not scroll have to be seen whole."""
    found = list[str]()
    for name, (width, height) in SMALL_WINDOWS.items():
        await tab.resize(width, height)
        await tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found += [f"{name}: {one}" for one in await tab.evaluate(_CUT)]
    return found
