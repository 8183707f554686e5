"""Session names derived from the first message."""

from __future__ import annotations

import pytest

from agenticx.sessions.hub.session_fields import derive_name


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("Fix the build", "Fix the build"),
        ("\n\n## Fix  the\tbuild ##\nIt fails since yesterday.", "Fix the build ##"),
        ("- [ ] do **this**\n- and that", "[ ] do **this**"),
        ("> quoted", "quoted"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("-v is what?", "-v is what?"),
        ("#1 of the issues", "#1 of the issues"),
        ("!!!\n你好，请帮我修复构建", "你好，请帮我修复构建"),
        ("word " * 30, "word word word word word word word word word word word word…"),
        ("x" * 61, "x" * 60 + "…"),
        ("a, " + "b" * 70, "a, " + "b" * 57 + "…"),
        ("read \u202egnp.exe", "read ⟨U+202E⟩gnp.exe"),
        ("", None),
        (" \n\t", None),
        ("?!", None),
    ],
)
def test_the_first_line_with_text_is_the_name(message: str, title: str | None) -> None:
    assert derive_name(message) == title
