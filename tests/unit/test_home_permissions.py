"""AGX_HOME and the files in it must belong to the user, and nobody else may change them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agenticx import open_hub
from agenticx.errors import SettingsError
from agenticx.home_permissions import check_home
from agenticx.settings import config_text, load_settings

FILES = [
    *("settings.toml", "models.toml", "token", "keys.json", "studio.json", "memory.jsonl"),
    *("permissions.toml", "mcp.json", "teams/pair.toml", "prompts/system.md", "agents/critic.toml"),
]
FOLDERS = ["agents", "prompts", "teams", "vaults"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return an AGX_HOME of the user's own, in a folder in which everybody may write, as in /tmp."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    folder = shared / "home"
    for part in (folder, *(folder / name for name in FOLDERS)):
        part.mkdir(mode=0o700)
    for name in FILES:
        (folder / name).touch(mode=0o600)
    return folder


def refused(home: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings({"home": home}, environ={})
    return str(caught.value)


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the path belong to another user than that of this process."""
    if os.geteuid() == 0:
        os.lchown(path, 54_321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54_321)


@pytest.mark.parametrize("name", [*FILES, "", *FOLDERS])
def test_what_everybody_may_change_is_refused_and_what_the_group_may_is_named(home: Path, name: str) -> None:
    path = home / name
    assert (check_home(home), load_settings({"home": home}, environ={}).home) == ([], home)
    path.chmod(0o1777 if path.is_dir() else 0o646)
    mode, repair = ("1777", "chmod 700") if path.is_dir() else ("0646", "chmod 600")
    sentence = f"{str(path)!r} has mode {mode}, so every user may change it; only you may: {repair} {path}"
    assert refused(home) == sentence
    with pytest.raises(SettingsError, match="so every user may change it"):
        config_text("models.toml", home=home)
    path.chmod(0o770 if path.is_dir() else 0o660)
    mode = "0770" if path.is_dir() else "0660"
    assert check_home(home) == [f"{str(path)!r} has mode {mode}, so its group may change it: {repair} {path}"]
    assert load_settings({"home": home}, environ={}).home == home


@pytest.mark.parametrize("name", ["", "settings.toml", "token"])
def test_what_belongs_to_another_user_is_refused(home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(home / name, monkeypatch)
    assert "belongs to " in refused(home)
    assert "it must belong to you" in refused(home)
    assert ": chown " in refused(home)


def test_a_link_to_the_home_counts_with_its_owner_and_its_target(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = home.with_name("link")
    link.symlink_to(home)
    assert load_settings({"home": link}, environ={}).home == link
    home.chmod(0o777)
    assert f"{str(link)!r} has mode 0777" in refused(link)
    home.chmod(0o700)
    give_away(link, monkeypatch)
    assert f"{str(link)!r} belongs to" in refused(link)


@pytest.mark.parametrize("kind", ["home", "missing", "link", "far above"])
def test_a_folder_in_which_everybody_may_replace_the_home_is_refused(home: Path, kind: str) -> None:
    above = home.parent.parent if kind == "far above" else home.parent
    given = home
    if kind == "missing":
        given = home.with_name("none")
    elif kind == "link":
        (given := above.parent / "link").symlink_to(home)
    above.chmod(0o777)
    sentence = f"{str(above)!r} has mode 0777, so every user may replace {str(given)!r}, which lies in it; only you may"
    assert refused(given) == f"{sentence}: chmod o-w {above}"
    for mode in (0o1777, 0o775):
        above.chmod(mode)
        assert load_settings({"home": given}, environ={}).home == given


def test_a_home_that_does_not_exist_or_is_no_folder_is_not_judged_by_its_mode(tmp_path: Path) -> None:
    assert (check_home(tmp_path / "none"), check_home(Path("/dev/null"))) == ([], [])
    (tmp_path / "settings.toml").symlink_to(tmp_path / "none")
    assert check_home(tmp_path) == []


@pytest.mark.anyio
async def test_a_hub_refuses_such_a_home_and_logs_what_the_group_may_change(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load_settings({"home": home}, environ={})
    home.chmod(0o770)
    async with open_hub(f"sqlite:///{home}/s.db", model="demo", settings=settings):
        assert f"so its group may change it: chmod 700 {home}" in caplog.text
    home.chmod(0o777)
    with pytest.raises(SettingsError, match="so every user may change it"):
        async with open_hub(f"sqlite:///{home}/s.db", model="demo", settings=settings):
            pass
