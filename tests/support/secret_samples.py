"""Secrets of each known form, and names of fields that hold secrets, for tests of redaction."""

from __future__ import annotations

__all__ = ["SECRETS", "SECRET_FIELDS", "SECRET_PARTS"]

SECRETS = {
    "provider key": "sk-proj-abcdefghijklmnop1234",
    "bearer": "Bearer abcdefgh.ijklmnop",
    "basic": "Basic dXNlcjpwYXNzd29yZA==",
    "github": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "aws": "AKIAABCDEFGHIJKLMNOP",
    "google": "AIzaSyA-abcdefghijklmnopqrstuvwxyz01234",
    "slack": "xoxb-1234567890-abcdef",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "header": "x-api-key: 0123456789abcdef",
    "query": "https://a.example/v1?key=0123456789abcdef&x=1",
    "ticket": "http://127.0.0.1:8765/#ticket=0123456789abcdef",
    "key in a name": "tool_sk-proj-abcdefghijklmnop1234",
    "key behind an underscore": "x_gsk_abcdefghijklmnop1234",
    "github in a name": "x_ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "jwt in a name": "x_eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "assignment": "401: password=hunter2hunter2&x=1",
    "quoted": '{"passphrase": "hunter2hunter2"}',
    "other languages": "contraseña=hunter2hunter2 密码='hunter2hunter2'",
    "code": "https://a.example/callback?code=0123456789abcdef&x=1",
    "login": "nats://agx:hunter2hunter2@db.example:4222",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
}


SECRET_FIELDS = (
    *("pw", "pin", "passphrase", "passwort", "geheimwort", "contraseña", "contrasen\u0303a", "contrasena", "密码"),
    *("mot_de_passe", "db_pw", "PIN"),
)

SECRET_PARTS = ("0123456789", "abcdefghijklmnop", "dXNlcjpwYXNz", "hunter2", "c2lnbmF0", "MIIEow", "ijklmnop")
"""Substrings of the secrets, none of which may appear in redacted text."""
