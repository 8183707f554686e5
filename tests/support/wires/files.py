"""Small files of every kind that can be attached to a message."""

from __future__ import annotations

from agenticx.attachments import Attachment, make_attachment

__all__ = ["GIF", "JPEG", "PDF", "PNG", "SMALLEST_PNG", "TEXT", "WEBP", "contents"]

SMALLEST_PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0:~\x9bU"
    b"\0\0\0\nIDATx\x9cc`\0\0\0\2\0\1H\xaf\xa4q\0\0\0\0IEND\xaeB`\x82"
)
"""A whole image of one pixel; of the others only the headers and ends are right."""

contents = {
    "image/png": SMALLEST_PNG,
    "image/jpeg": b"\xff\xd8\xff\xc0\0\x0b\x08\0\1\0\1\1\1\x11\0\xff\xd9",
    "image/gif": b"GIF89a\1\0\1\0\0\0\0;",
    "image/webp": b"RIFF\x16\0\0\0WEBPVP8L\x09\0\0\0\x2f" + b"\0" * 9,
    "application/pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\nstartxref\n0\n%%EOF\n",
    "text/plain": "grüße\n".encode(),
}


def _attachment(name: str, media_type: str) -> Attachment:
    return make_attachment(name, contents[media_type])


PNG = _attachment("a.png", "image/png")
JPEG = _attachment("b.jpg", "image/jpeg")
GIF = _attachment("c.gif", "image/gif")
WEBP = _attachment("d.webp", "image/webp")
PDF = _attachment("e.pdf", "application/pdf")
TEXT = _attachment("f.txt", "text/plain")
