"""Three designs of pages for the demo model, of different layout, colours and type, and their texts.

A design is a `string.Template` of a whole HTML page without any request. Its colours and sizes are custom properties in
`:root`, one per line, so that an edit of one is a small edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template
from typing import Literal

__all__ = ["DESIGNS", "LANGUAGES", "Language"]

Language = Literal["en", "de"]

LANGUAGES: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "welcome": "Welcome",
        "lead": "$title on one page: what there is to see, what to expect, and how to get in touch.",
        "about": "About",
        "highlights": "Highlights",
        "contact": "Contact",
        "more": "Find out more",
        "one": "Made with care",
        "one_text": "Good things take time. Here the small ones are done as well as the big ones.",
        "two": "Open to everyone",
        "two_text": "Come by, ask, look around: there is always somebody who has a moment for you.",
        "three": "Close at hand",
        "three_text": "Everything important is in one place, on a phone as well as on a large screen.",
        "email": "Your e-mail address",
        "send": "Send",
        "thanks": "Thank you! This page is an example, so nothing was sent.",
        "note": "Example text by the demo model, which is a script.",
    },
    "de": {
        "welcome": "Willkommen",
        "lead": "$title auf einer Seite: was es zu sehen gibt, was Sie erwartet und wie Sie uns erreichen.",
        "about": "Über uns",
        "highlights": "Auf einen Blick",
        "contact": "Kontakt",
        "more": "Mehr erfahren",
        "one": "Mit Sorgfalt gemacht",
        "one_text": "Gutes braucht Zeit. Hier stimmen die kleinen Dinge ebenso wie die großen.",
        "two": "Offen für alle",
        "two_text": "Kommen Sie vorbei, fragen Sie, sehen Sie sich um: Jemand hat immer einen Moment für Sie.",
        "three": "Schnell zur Hand",
        "three_text": "Alles Wichtige steht an einem Ort, auf dem Telefon wie auf einem großen Bildschirm.",
        "email": "Ihre E-Mail-Adresse",
        "send": "Senden",
        "thanks": "Danke! Diese Seite ist ein Beispiel, es wurde nichts gesendet.",
        "note": "Beispieltext des Demo-Modells, das ein Skript ist.",
    },
}
"""The texts of a page by their names in the designs; `$title` in them is the title of the page."""

_SCRIPT = """\
<script>
  document.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    document.querySelector("output").textContent = "$thanks";
  });
</script>"""

_FORM = """\
<form>
        <label for="email">$email</label>
        <input id="email" type="email" autocomplete="email" required>
        <button>$send</button>
        <output></output>
      </form>"""

_WARM = f"""\
<!doctype html>
<html lang="$lang">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
  :root {{
    --background: #fbf4ea;
    --surface: #ffffff;
    --text: #4a3728;
    --heading: #7a2e1d;
    --accent: #a8442a;
    --on-accent: #ffffff;
    --heading-size: 3.5rem;
    --text-size: 1.125rem;
  }}
  * {{ box-sizing: border-box; }}
  body {{
    margin: 0;
    background: var(--background);
    color: var(--text);
    font: var(--text-size)/1.6 Georgia, "Times New Roman", serif;
    text-align: center;
  }}
  header, section, footer {{ max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem; }}
  h1, h2, h3 {{ color: var(--heading); line-height: 1.15; margin: 0 0 .5rem; }}
  h2 {{ margin-bottom: 1.25rem; }}
  h1 {{ font-size: min(var(--heading-size), 13vw); font-weight: 400; overflow-wrap: anywhere; }}
  .welcome {{ letter-spacing: .2em; text-transform: uppercase; font-size: .8rem; margin: 1rem 0; }}
  .lead {{ max-width: 36rem; margin: 0 auto 1.75rem; }}
  .button, button {{
    display: inline-block; border: 0; border-radius: 2rem; padding: .75rem 1.75rem; cursor: pointer;
    background: var(--accent); color: var(--on-accent); font: inherit; text-decoration: none;
  }}
  :focus-visible {{ outline: 3px solid var(--heading); outline-offset: 3px; }}
  .cards {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(14rem, 1fr)); gap: 1.25rem; }}
  .cards article {{ background: var(--surface); border-radius: 1rem; padding: 1.75rem; }}
  form {{ display: flex; flex-wrap: wrap; gap: .75rem; justify-content: center; align-items: center; }}
  input {{ font: inherit; padding: .7rem 1rem; border: 1px solid var(--accent); border-radius: 2rem; max-width: 100%; }}
  label, output {{ flex-basis: 100%; }}
  footer {{ font-size: .85rem; }}
</style>
</head>
<body>
  <header>
    <svg width="120" height="72" viewBox="0 0 120 72" aria-hidden="true">
      <path d="M6 70a54 54 0 0 1 108 0" fill="none" stroke="#a8442a" stroke-width="4"/>
      <path d="M26 70a34 34 0 0 1 68 0z" fill="#e9b872"/>
    </svg>
    <p class="welcome">$welcome</p>
    <h1>$title</h1>
    <p class="lead">$lead</p>
    <a class="button" href="#highlights">$more</a>
  </header>
  <main>
    <section id="highlights">
      <h2>$highlights</h2>
      <div class="cards">
        <article><h3>$one</h3><p>$one_text</p></article>
        <article><h3>$two</h3><p>$two_text</p></article>
        <article><h3>$three</h3><p>$three_text</p></article>
      </div>
    </section>
    <section id="contact">
      <h2>$contact</h2>
      {_FORM}
    </section>
  </main>
  <footer>$note</footer>
{_SCRIPT}
</body>
</html>
"""

_NIGHT = f"""\
<!doctype html>
<html lang="$lang">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
  :root {{
    --background: #0e1420;
    --surface: #182133;
    --text: #c6d0e0;
    --heading: #ffffff;
    --accent: #5eead4;
    --on-accent: #06251f;
    --heading-size: 5rem;
    --text-size: 1rem;
  }}
  * {{ box-sizing: border-box; }}
  body {{
    margin: 0;
    min-height: 100vh;
    display: grid;
    grid-template-columns: 15rem 1fr;
    background: var(--background);
    color: var(--text);
    font: var(--text-size)/1.65 system-ui, -apple-system, "Segoe UI", sans-serif;
  }}
  aside {{ background: var(--surface); padding: 2rem 1.5rem; }}
  aside svg {{ display: block; margin-bottom: 2rem; }}
  nav {{ position: sticky; top: 2rem; display: grid; gap: .25rem; }}
  a {{ color: var(--accent); }}
  nav a {{ padding: .5rem .75rem; border-left: 3px solid transparent; text-decoration: none; }}
  nav a:hover, nav a:focus-visible {{ border-color: var(--accent); background: var(--background); }}
  main {{ padding: clamp(2rem, 7vw, 6rem) clamp(1.25rem, 6vw, 5rem); max-width: 60rem; }}
  h1, h2, h3 {{ color: var(--heading); line-height: 1.05; margin: 0 0 1rem; }}
  h1 {{ font-size: min(var(--heading-size), 13vw); font-weight: 800; letter-spacing: -.03em; overflow-wrap: anywhere; }}
  .lead {{ font-size: 1.35rem; max-width: 40rem; }}
  section {{ border-top: 1px solid #ffffff26; margin-top: 3.5rem; padding-top: 2rem; }}
  ol {{ list-style: none; counter-reset: item; margin: 0; padding: 0; }}
  li {{ counter-increment: item; display: grid; grid-template-columns: 4rem 1fr; padding: 1rem 0; }}
  li::before {{ content: "0" counter(item); color: var(--accent); font: 700 1.5rem ui-monospace, monospace; }}
  li p {{ margin: 0; }}
  form {{ display: grid; gap: .75rem; max-width: 24rem; }}
  input, button {{ font: inherit; padding: .75rem; border: 1px solid #ffffff59; }}
  input {{ background: var(--surface); color: var(--heading); }}
  button {{ background: var(--accent); color: var(--on-accent); font-weight: 700; cursor: pointer; }}
  :focus-visible {{ outline: 3px solid var(--accent); outline-offset: 2px; }}
  footer {{ margin-top: 3rem; font-size: .85rem; }}
  @media (max-width: 46rem) {{
    body {{ display: block; }}
    nav {{ position: static; grid-auto-flow: column; overflow-wrap: anywhere; }}
    aside svg {{ margin-bottom: 1rem; }}
  }}
</style>
</head>
<body>
  <aside>
    <nav aria-label="$title">
      <svg width="56" height="56" viewBox="0 0 56 56" aria-hidden="true">
        <circle cx="28" cy="28" r="26" fill="none" stroke="#5eead4" stroke-width="3"/>
        <path d="M37 38a16 16 0 1 1-8-28 13 13 0 0 0 8 28z" fill="#5eead4"/>
      </svg>
      <a href="#about">$about</a>
      <a href="#highlights">$highlights</a>
      <a href="#contact">$contact</a>
    </nav>
  </aside>
  <main>
    <header id="about">
      <h1>$title</h1>
      <p class="lead">$lead</p>
    </header>
    <section id="highlights">
      <h2>$highlights</h2>
      <ol>
        <li><div><h3>$one</h3><p>$one_text</p></div></li>
        <li><div><h3>$two</h3><p>$two_text</p></div></li>
        <li><div><h3>$three</h3><p>$three_text</p></div></li>
      </ol>
    </section>
    <section id="contact">
      <h2>$contact</h2>
      {_FORM}
    </section>
    <footer>$note</footer>
  </main>
{_SCRIPT}
</body>
</html>
"""

_POSTER = f"""\
<!doctype html>
<html lang="$lang">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
  :root {{
    --background: #ffd93b;
    --surface: #ffffff;
    --text: #1d1a12;
    --heading: #1d1a12;
    --accent: #c41e63;
    --on-accent: #ffffff;
    --heading-size: 7rem;
    --text-size: 1.0625rem;
  }}
  * {{ box-sizing: border-box; }}
  body {{
    margin: 0;
    padding: clamp(.75rem, 2vw, 1.5rem);
    background: var(--background);
    color: var(--text);
    font: var(--text-size)/1.5 "Trebuchet MS", Verdana, sans-serif;
  }}
  main {{ display: grid; grid-template-columns: repeat(6, 1fr); gap: clamp(.75rem, 2vw, 1.5rem); }}
  main > * {{ border: 4px solid var(--text); padding: clamp(1rem, 3vw, 2rem); background: var(--surface); }}
  h1, h2 {{ color: var(--heading); line-height: .95; margin: 0 0 .75rem; text-transform: uppercase; }}
  h1 {{ font: 900 min(var(--heading-size), 14vw)/.9 Impact, "Arial Black", sans-serif; overflow-wrap: anywhere; }}
  p {{ margin: 0; }}
  .hero {{ grid-column: span 4; background: var(--background); }}
  .badge {{ grid-column: span 2; display: grid; place-items: center; background: var(--accent); }}
  .badge svg {{ width: min(100%, 14rem); transform: rotate(-8deg); }}
  .tile {{ grid-column: span 2; }}
  .tile.dark {{ background: var(--text); color: var(--background); }}
  .tile.dark h2 {{ color: var(--background); }}
  .wide {{ grid-column: 1 / -1; }}
  form {{ display: flex; flex-wrap: wrap; gap: .75rem; align-items: center; }}
  input, button {{ font: inherit; padding: .75rem 1rem; border: 4px solid var(--text); max-width: 100%; }}
  button {{ background: var(--accent); color: var(--on-accent); font-weight: 700; cursor: pointer; }}
  :focus-visible {{ outline: 4px dashed var(--accent); outline-offset: 3px; }}
  output {{ flex-basis: 100%; }}
  footer {{ margin-top: 1rem; font-size: .85rem; }}
  @media (max-width: 46rem) {{ main > .hero, main > .badge, main > .tile {{ grid-column: 1 / -1; }} }}
</style>
</head>
<body>
  <main>
    <header class="hero">
      <h1>$title</h1>
      <p class="lead">$lead</p>
    </header>
    <div class="badge">
      <svg viewBox="0 0 100 100" aria-hidden="true">
        <polygon fill="#ffd93b" points="50,4 60,14 73,10 76,24 90,27 86,40 96,50 86,60 90,73 76,76 73,90 60,86 50,96
          40,86 27,90 24,76 10,73 14,60 4,50 14,40 10,27 24,24 27,10 40,14"/>
        <path d="M32 52l12 13 25-29" fill="none" stroke="#1d1a12" stroke-width="9"/>
      </svg>
    </div>
    <article class="tile"><h2>$one</h2><p>$one_text</p></article>
    <article class="tile dark"><h2>$two</h2><p>$two_text</p></article>
    <article class="tile"><h2>$three</h2><p>$three_text</p></article>
    <section class="wide" id="contact">
      <h2>$contact</h2>
      {_FORM}
    </section>
  </main>
  <footer>$note</footer>
{_SCRIPT}
</body>
</html>
"""

DESIGNS: Sequence[tuple[str, Template]] = (
    ("warm and centred", Template(_WARM)),
    ("dark, with a menu at the side", Template(_NIGHT)),
    ("a bright poster of tiles", Template(_POSTER)),
)
"""Each design after a few words on its look; `$lang`, `$title` and the names in `LANGUAGES` are filled in."""
