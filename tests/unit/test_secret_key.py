"""Tests of the key of AGX_SECRET_FILE, and of what it encrypts."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import pytest

from agenticx.credentials.secret_key import SecretKey, WrongSecret, read_secret_key
from agenticx.errors import SettingsError

KEY = bytes(range(224, 256))


def written(path: Path, content: str, mode: int = 0o600) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


def test_a_sealed_value_opens_under_its_name_with_its_key_alone() -> None:
    key = SecretKey(KEY)
    sealed = key.seal("token", b"canary")
    assert key.unseal("token", sealed) == b"canary"
    assert b"canary" not in sealed
    assert sealed != key.seal("token", b"canary")
    for name, other, stored in (
        ("key/X", key, sealed),
        ("token", SecretKey(secrets.token_bytes(32)), sealed),
        ("token", key, sealed[:-1]),
        ("token", key, sealed[:5]),
        ("token", key, sealed[:-1] + bytes([sealed[-1] ^ 1])),
    ):
        with pytest.raises(WrongSecret, match="does not open the stored value"):
            other.unseal(name, stored)
    for stored in (b"", b"\x02" + sealed[1:], b"canary"):
        with pytest.raises(WrongSecret, match="another format"):
            key.unseal("token", stored)


@pytest.mark.parametrize(
    "text",
    [KEY.hex(), KEY.hex().upper() + "\n", base64.b64encode(KEY).decode(), base64.urlsafe_b64encode(KEY).decode()],
)
def test_the_file_holds_the_key_in_either_notation(tmp_path: Path, text: str) -> None:
    key = read_secret_key(written(tmp_path / "secret", text))
    assert key.unseal("x", SecretKey(KEY).seal("x", b"value")) == b"value"


@pytest.mark.parametrize(
    ("content", "mode", "complaint"),
    [
        ("", 0o600, "64 hexadecimal digits"),
        ("canary" * 10, 0o600, "64 hexadecimal digits"),
        (KEY.hex()[:-2], 0o600, "64 hexadecimal digits"),
        (f"{KEY.hex()} {KEY.hex()}", 0o600, "64 hexadecimal digits"),
        ("ä" * 32, 0o600, "64 hexadecimal digits"),
        (KEY.hex(), 0o640, "mode 0640"),
        (KEY.hex(), 0o604, "mode 0604"),
    ],
)
def test_an_unusable_file_is_refused_without_quoting_it(
    tmp_path: Path, content: str, mode: int, complaint: str
) -> None:
    with pytest.raises(SettingsError, match=complaint) as caught:
        read_secret_key(written(tmp_path / "secret", content, mode))
    assert not content or content not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(SettingsError, match="openssl rand -hex 32"):
            read_secret_key(path)
