"""Stored keys of providers: the private file, the keyring, their order, and redaction."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import ModuleType

import pytest

from agenticx import UserMessage
from agenticx.credentials import os_keyring
from agenticx.credentials.provider_keys import InvalidKey, KeyStore, ProviderKey, find_key
from agenticx.errors import SettingsError
from agenticx.llms import (
    ModelRequest,
    OpenAIProvider,
    close_model,
    complete,
    default_model_spec,
    resolve_model,
    resolve_wire,
)
from agenticx.llms.model_cache import ModelCache
from agenticx.llms.model_catalog import load_model_catalog
from agenticx.llms.providers.keys import list_key_sources, remove_key, store_key
from agenticx.llms.providers.terminal_variables import own_variables, parse_variables
from agenticx.logs import get_logger, redact
from agenticx.settings import (
    Settings,
    child_environment,
    home_folder,
    provider_setting,
    secret_values,
    using_provider_variables,
)
from agenticx.testing import FakeOpenAIServer
from tests.support.timeouts import PATIENCE

KEY, OTHER = "canary-of-a-stored-key-1", "canary-of-a-stored-key-2"
GROQ = ["GROQ_API_KEY"]
DEFAULTS = Settings.model_validate({})


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a home without keys; no variable has one, and no keyring is installed."""
    for name in [name for name in os.environ if re.search(r"_API_KEY$|_BASE_URL$|^HF_TOKEN$", name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AGX_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(sys.modules, "keyring", None)
    return tmp_path / "home"


class Keyring:
    """A backend of the package `keyring`; `before` is called before each call, which may wait or raise."""

    def __init__(self, priority: float = 5.0, before: Callable[[], object] = lambda: None) -> None:
        self.priority = priority
        self.before = before
        self.passwords: dict[tuple[str, str], str] = {}
        self.backends: list[Keyring] = []

    def get_password(self, service: str, name: str) -> str | None:
        self.before()
        return self.passwords.get((service, name))

    def set_password(self, service: str, name: str, password: str) -> None:
        self.before()
        self.passwords[service, name] = password

    def delete_password(self, service: str, name: str) -> None:
        self.before()
        del self.passwords[service, name]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Keyring], Keyring]:
    """Return a function that installs a package `keyring` with this backend."""

    def install_keyring(backend: Keyring) -> Keyring:
        package = ModuleType("keyring")
        package.get_keyring = lambda: backend  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "keyring", package)
        return backend

    return install_keyring


# --- order ------------------------------------------------------------------------------------------------------------


def test_a_variable_takes_precedence_over_a_stored_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_key(GROQ) is None
    assert store_key("groq", f" {KEY}\n") == "file"
    assert find_key(GROQ) == ProviderKey("GROQ_API_KEY", KEY, "file")
    monkeypatch.setenv("GROQ_API_KEY", OTHER)
    assert find_key(GROQ) == ProviderKey("GROQ_API_KEY", OTHER, "env")
    remove_key("groq")
    monkeypatch.delenv("GROQ_API_KEY")
    assert find_key(GROQ) is None


def test_providers_that_share_a_variable_share_its_stored_key() -> None:
    store_key("openai", KEY)
    store_key("gemini", OTHER)
    assert [(one.provider, one.source) for one in list_key_sources()] == [
        ("openai", "file"),
        ("openai-chat", "file"),
        ("gemini", "file"),
    ]
    found = find_key(["GEMINI_API_KEY", "GOOGLE_API_KEY"])
    assert found is not None
    assert found.value == OTHER
    remove_key("openai-chat")
    assert [one.provider for one in list_key_sources()] == ["gemini"]


def test_a_provider_of_the_user_s_own_takes_a_key_and_an_unknown_one_is_an_error_that_lists_them(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "models.toml").write_text('[providers.acme]\nbase_url = "http://box:9/v1"\nkeys = ["ACME_API_KEY"]\n')
    store_key("acme", KEY)
    assert [one.variable for one in list_key_sources()] == ["ACME_API_KEY"]
    with pytest.raises(SettingsError, match=r"unknown provider 'nope'; providers with a key: openai, .*, acme$"):
        store_key("nope", KEY)
    with pytest.raises(SettingsError, match=r"provider 'ollama' needs no key; providers with a key: openai, "):
        store_key("ollama", KEY)


@pytest.mark.anyio
async def test_a_stored_key_chooses_the_default_model_and_is_sent_by_it() -> None:
    store_key("openai-chat", KEY)
    assert default_model_spec(DEFAULTS) == ("openai:gpt-5.4", "OPENAI_API_KEY is stored (file)")
    request = ModelRequest(messages=[UserMessage(content="hi")])
    async with FakeOpenAIServer(["hi", "hi"]) as server:
        for model in (
            resolve_wire("openai-chat:m", base_url=server.base_url),
            OpenAIProvider("m", None, server.base_url),
        ):
            assert (await complete(model, request))[1] is None
            await close_model(model)
        assert [request.headers["authorization"] for request in server.requests] == [f"Bearer {KEY}"] * 2


def test_a_cached_model_is_made_again_once_a_stored_key_has_changed() -> None:
    store_key("groq", KEY)
    cache = ModelCache(lambda spec: resolve_model(spec, settings=DEFAULTS), lambda: "groq:x")
    first = cache.get(None)
    assert cache.get("groq:x") is first
    store_key("groq", OTHER)
    second = cache.get(None)
    assert second is not first
    assert cache.get(None) is second
    remove_key("groq")
    with pytest.raises(SettingsError, match="set GROQ_API_KEY, or store it with `agx keys set groq`"):
        cache.get(None)


def test_a_terminals_variables_replace_all_of_the_same_provider_for_models_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    theirs = own_variables()
    assert theirs == {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": ""}
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-process")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("VISUAL", "vi")
    cache = ModelCache(lambda spec: resolve_model(spec, settings=DEFAULTS), lambda: default_model_spec(DEFAULTS)[0])
    own = cache.get("openai-chat:m")
    with using_provider_variables(parse_variables(json.dumps({**theirs, "VISUAL": "evil", "AGX_HOME": "/"}))):
        provider = load_model_catalog().providers["openai-chat"]
        assert (provider.find_key(), provider.base_url_override()) == (ProviderKey("OPENAI_API_KEY", KEY, "env"), None)
        assert (provider_setting("VISUAL"), home_folder() == Path("/")) == ("vi", False)
        assert KEY in secret_values()
        model = cache.get("openai-chat:m")
        assert model is not own
        assert cache.get("openai-chat:m") is model
    with using_provider_variables(parse_variables('{"GROQ_API_KEY": "key-of-groq", "OPENAI_API_KEY": ""}')):
        assert cache.get(None).name.startswith("groq:")
    assert cache.get("openai-chat:m") is own
    assert cache.get(None).name.startswith("openai:")
    with pytest.raises(ValueError, match="not an object"):
        parse_variables("[]")


@pytest.mark.parametrize("key", ["", "  \n", "two words", "a\nb", "a\x00b", "schlüssel", "x" * 4097])
def test_a_text_that_is_no_key_is_refused_and_not_repeated(key: str, home: Path) -> None:
    with pytest.raises(InvalidKey) as raised:
        store_key("groq", key)
    assert not key.strip() or key.strip() not in str(raised.value)
    assert not (home / "keys.json").exists()


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_file_is_private_under_any_umask(home: Path) -> None:
    for umask in (0o000, 0o777):
        before = os.umask(umask)
        try:
            store_key("groq", KEY)
        finally:
            os.umask(before)
        modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (home, home / "keys.json", home / "keys.lock")}
        assert modes == {"home": "0o700", "keys.json": "0o600", "keys.lock": "0o600"}
        assert sorted(path.name for path in home.iterdir()) == ["keys.json", "keys.lock"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is damaged: "),
        ("[" * 100_000, "is damaged: it is nested too deeply; repair it, or delete it and store the keys again"),
        ("[]", "is damaged: it is not a JSON object"),
        ('{"version": 2, "keys": {}}', 'is damaged: it must have "version": 1 and an object "keys"'),
        (f'{{"version": 1, "keys": {{"{KEY}": {{}}}}}}', 'the names in "keys" must be those of variables'),
        ('{"version": 1, "keys": {"GROQ_API_KEY": "x"}}', '\'GROQ_API_KEY\' must be {"key": "…"} or {"keyring": "…"}'),
        (f'{{"version": 1, "keys": {{"A": {{"key": "{KEY} x"}}}}}}', "at 'A' the key has blanks"),
        (" " * (1024 * 1024 + 1), "is damaged: it is larger than 1048576 bytes"),
    ],
    ids=range(8),
)
def test_a_damaged_file_is_an_error_and_stays_as_it_is(content: str, words: str, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "keys.json").write_text(content)
    (home / "keys.json").chmod(0o600)
    for action in (lambda: find_key(GROQ), lambda: store_key("groq", OTHER), lambda: remove_key("groq")):
        with pytest.raises(SettingsError, match=re.escape(words)) as raised:
            action()
        assert str(home / "keys.json") in str(raised.value)
        assert "canary" not in str(raised.value)
    assert (home / "keys.json").read_text() == content


def as_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def as_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.chmod(0o640), "has mode 0640; only its owner may read it: chmod 600"),
        (as_link, "is a symbolic link, which is refused"),
        (as_dangling_link, "is a symbolic link, which is refused"),
        (as_folder, "is not a regular file"),
        (as_pipe, "is not a regular file"),
    ],
)
def test_a_file_that_is_not_private_is_refused(change: Callable[[Path], None], words: str, home: Path) -> None:
    store_key("groq", KEY)
    assert find_key(GROQ) is not None
    change(home / "keys.json")
    for action in (lambda: find_key(GROQ), lambda: store_key("groq", OTHER)):
        with pytest.raises(SettingsError, match=words):
            action()


@pytest.mark.ci_lane
def test_writers_at_once_lose_nothing_and_readers_see_whole_files(home: Path) -> None:
    ended = Event()

    def read() -> int:
        reader, seen = KeyStore(home), 0
        while not ended.is_set():
            seen = max(seen, sum(reader.source([f"V{number}"]) is not None for number in range(24)))
        return seen

    with ThreadPoolExecutor() as pool:
        reading = pool.submit(read)
        list(pool.map(lambda number: KeyStore(home).store(f"V{number}", f"{KEY}-{number}"), range(24)))
        ended.set()
        reading.result()
    assert sorted(json.loads((home / "keys.json").read_text())["keys"]) == sorted(f"V{number}" for number in range(24))


def test_a_home_that_cannot_be_written_is_an_error_that_names_the_file(home: Path) -> None:
    home.write_text("a file")
    assert find_key(GROQ) is None
    with pytest.raises(SettingsError, match=rf"{home}/keys.json cannot be written: "):
        store_key("groq", KEY)


# --- the keyring ------------------------------------------------------------------------------------------------------


def test_a_keyring_has_the_key_and_the_file_only_a_revision(install: Callable[[Keyring], Keyring], home: Path) -> None:
    keyring = install(Keyring())
    other_process = KeyStore(home)
    for key in (KEY, OTHER):
        assert store_key("groq", key) == "keyring"
        assert find_key(GROQ) == other_process.find(GROQ) == ProviderKey("GROQ_API_KEY", key, "keyring")
        assert key not in (home / "keys.json").read_text()
    assert keyring.passwords == {(f"agenticx {home}", "GROQ_API_KEY"): OTHER}
    remove_key("groq")
    assert (keyring.passwords, find_key(GROQ)) == ({}, None)


@pytest.mark.parametrize("priority", [-1.0, 0.0, 0.5])
def test_a_backend_that_is_no_real_keyring_is_not_used(priority: float, install: Callable[[Keyring], Keyring]) -> None:
    keyring = install(Keyring(priority))
    assert (store_key("groq", KEY), keyring.passwords) == ("file", {})


def test_of_a_chain_of_backends_only_a_real_keyring_is_used(install: Callable[[Keyring], Keyring]) -> None:
    chain, in_a_file, real = Keyring(10.0), Keyring(0.5), Keyring(5.0)
    chain.backends = [in_a_file]
    install(chain)
    assert (store_key("groq", KEY), chain.passwords, in_a_file.passwords) == ("file", {}, {})
    chain.backends = [real, in_a_file]
    assert (store_key("groq", KEY), list(real.passwords.values())) == ("keyring", [KEY])
    assert (chain.passwords, in_a_file.passwords) == ({}, {})


def test_a_keyring_that_fails_is_replaced_by_the_file_with_a_log_line(
    install: Callable[[Keyring], Keyring], caplog: pytest.LogCaptureFixture
) -> None:
    keyring = install(Keyring())
    store_key("groq", KEY)

    def fail() -> None:
        raise RuntimeError(f"no such collection for {OTHER}")

    keyring.before = fail
    assert store_key("groq", OTHER) == "file"
    assert find_key(GROQ) == ProviderKey("GROQ_API_KEY", OTHER, "file")
    lines = caplog.text
    assert (
        "the keyring did not take a key; it is stored in the file variable='GROQ_API_KEY' reason='RuntimeError" in lines
    )
    assert "a key that is not used any more remains in the keyring" in lines
    assert "canary" not in lines


def test_a_keyring_that_hangs_is_waited_for_once_and_its_late_answer_is_used(
    install: Callable[[Keyring], Keyring],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    keyring, unlocked = install(Keyring()), Event()
    store_key("groq", KEY)
    monkeypatch.setattr(os_keyring, "_READ_SECONDS", 0.01)
    keyring.before = unlocked.wait
    other_process = KeyStore(home)
    assert [other_process.find(GROQ), other_process.find(GROQ)] == [None, None]
    assert caplog.text.count("a key cannot be read from the keyring variable='GROQ_API_KEY'") == 1
    (waiting,) = [thread for thread in threading.enumerate() if thread.name == "agx-keyring"]
    unlocked.set()
    waiting.join(PATIENCE)
    assert other_process.find(GROQ) == ProviderKey("GROQ_API_KEY", KEY, "keyring")


def test_a_key_that_was_deleted_in_the_keyring_counts_as_missing_with_a_log_line(
    install: Callable[[Keyring], Keyring], caplog: pytest.LogCaptureFixture
) -> None:
    keyring = install(Keyring())
    store_key("groq", KEY)
    keyring.passwords.clear()
    assert find_key(GROQ) is None
    assert "a key is missing in the keyring; store it again variable='GROQ_API_KEY'" in caplog.text
    with pytest.raises(SettingsError, match="its key is stored, but cannot be read from the keyring"):
        resolve_wire("groq:x")
    remove_key("groq")
    assert list_key_sources() == []


# --- secrecy ----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("I1")
def test_a_stored_key_is_redacted_and_reaches_no_command(
    monkeypatch: pytest.MonkeyPatch, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("HARMLESS", f"prefix {KEY}")
    KeyStore(home).store("GROQ_API_KEY", KEY)
    found = find_key(GROQ)
    assert "canary" not in repr(found)
    get_logger("agenticx.test").info("a line", note=f"it is {KEY}.")
    assert "it is [hidden]." in caplog.text
    assert "canary" not in redact(KEY) + caplog.text
    assert [value for value in (*child_environment().values(), *os.environ) if "canary" in value] == []
    assert os.environ.get("GROQ_API_KEY") is None
