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
    "pgp": "-----BEGIN PGP PRIVATE KEY BLOCK-----\nMIIEow\n-----END PGP PRIVATE KEY BLOCK-----",
    "gitlab": "glpat-abcdefghijklmnop1234",
    "slack app": "xapp-1-A123-0123456789abcdef",
    "slack hook": "https://hooks.slack.com/services/T000/B000/abcdefghijklmnop",
    "vault": "hvs.abcdefghijklmnopabcdefghijklmnop",
    "google session": "ya29.abcdefghijklmnopabcdefghijklmnop",
    "sendgrid": "SG.abcdefghijklmnop.abcdefghijklmnopabcdefghijklmnop",
    "telegram": "123456789:AAEabcdefghijklmnopabcdefghijklmnop",
    "databricks": "dapi0123456789abcdef0123456789abcdef",
    "token as a user": "https://abcdefghijklmnopabcd@o1.example/2",
    "signed address": "https://b.example/k?X-Amz-Signature=0123456789abcdef0123456789abcdef",
    "storage": "AccountName=x;AccountKey=abcdefghijklmnopabcdefghijklmnop==;EndpointSuffix=core.example",
    "aws key file": "aws_secret_access_key = abcdefghijklmnop/+0123456789abcdef",
    "second cookie": "Cookie: theme=dark; session=0123456789abcdef",
    "token header": "Authorization: token 0123456789abcdef",
    "yaml": "password: hunter2hunter2",
    "netrc": "machine db.example login me password hunter2hunter2",
    "variable": "PGPASSWORD=hunter2hunter2 psql",
    "curl": "curl -u me:hunter2hunter2 https://h.example",
    "container registry": '{"auths": {"r.example": {"auth": "dXNlcjpwYXNzd29yZA=="}}}',
}


SECRET_FIELDS = (
    *("pw", "pin", "passphrase", "passwort", "geheimwort", "contraseña", "contrasen\u0303a", "contrasena", "密码"),
    *("mot_de_passe", "db_pw", "PIN"),
)

SECRET_PARTS = ("0123456789", "abcdefghijklmnop", "dXNlcjpwYXNz", "hunter2", "c2lnbmF0", "MIIEow", "ijklmnop")
"""Substrings of the secrets, none of which may appear in redacted text."""
