"""The pages of the guide: their code runs and prints what they say; what they name exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from agenticx.cli.registry import find_command, parser_of
from agenticx.guide import GuidePage, UnknownGuidePage, guide_page, guide_pages
from agenticx.settings import Settings, load_settings
from studio.server import _SHUTDOWN_SECONDS  # pyright: ignore[reportPrivateUsage]
from tests.repo.documented_code import BIN, CodeBlock, clean_environment, code_blocks, run_forked
from tests.support.forked import ROOT, Process
from tests.support.program import PROGRAM
from tests.support.timeouts import PATIENCE

PAGES = guide_pages()
SERVER = "http://127.0.0.1:8765"
LANGUAGES = {"python", "bash", "text", "toml", "js"}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def test_the_pages_are_those_of_the_order_of_reading() -> None:
    from agenticx.guide import _ORDER  # pyright: ignore[reportPrivateUsage]

    assert [page.name for page in PAGES] == list(_ORDER)
    assert all(page.text.startswith("# ") and len(page.summary) > 20 for page in PAGES)


@every_page
def test_a_page_names_settings_and_commands_that_exist(page: GuidePage) -> None:
    names = set(re.findall(r"AGX_[A-Z_]+", page.text))
    assert {name.removeprefix("AGX_").lower() for name in names} <= {*Settings.model_fields}
    for command in re.findall(r"(?m)(?:^|^ {4}|`|/bin/|exec |\| )agx ([a-z][^`\n|>]*?)(?:`|$|\||>)", page.text):
        line = command.removesuffix('"') if command.count('"') % 2 else command
        name, *words = shlex.split(line, comments=True)
        found = find_command(name)
        assert found is not None, command
        if words:
            parser_of(found).parse_args(words)


@every_page
def test_a_page_installs_this_project(page: GuidePage) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name, extra in re.findall(r"install '(agenticx[\w-]*)(?:\[(\w+)\])?'", page.text):
        assert (name, extra) in {(project["name"], one) for one in ("", *project["optional-dependencies"])}


def test_the_compose_file_and_the_unit_give_a_worker_the_time_for_its_turns() -> None:
    (text,) = (page.text for page in PAGES if page.name == "many-workers")
    compose = yaml.safe_load(text[text.index("    services:") : text.index("The load balancer above")])
    worker = compose["services"]["worker"]
    assert set(worker["secrets"]) == {*compose["secrets"]}
    mounted = {each.partition(":")[0] for one in compose["services"].values() for each in one["volumes"]}
    assert mounted - {"./agenticx"} == {*compose["volumes"]}  # that is the folder of AgenticX, of which the text speaks
    seconds = load_settings(environ={}).drain_seconds + _SHUTDOWN_SECONDS
    assert float(worker["stop_grace_period"].removesuffix("s")) > seconds
    assert float(text.partition("TimeoutStopSec=")[2].split()[0]) > seconds


@every_page
def test_the_links_of_a_page_lead_somewhere(page: GuidePage) -> None:
    headings = {
        other.name: {slug(heading) for heading in re.findall(r"(?m)^##+ (.*)", other.text)} | {""} for other in PAGES
    }
    for name, _, anchor in re.findall(r"\]\((?!https?://)([\w-]+)\.md(#([\w-]+))?\)", page.text):
        assert anchor in headings[name], f"{name}.md#{anchor}"
    assert re.findall(r"\]\((?!https?://|[\w-]+\.md)", page.text) == []


def slug(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.ci_lane
@every_page
def test_the_code_of_a_page_runs_and_prints_what_follows_it(page: GuidePage, tmp_path: Path) -> None:
    """Run the blocks of a page in order, in one folder: Python, also as a file if its first line names it, and bash.

    A block of text is what the one before it has printed, in which "…" stands for anything.
    """
    blocks = code_blocks(page.text)
    assert page.text.count("```") == 2 * len(blocks)
    assert {block.language for block in blocks} <= LANGUAGES
    needs_node = any(block.language == "js" for block in blocks)
    if needs_node and not shutil.which("node"):
        pytest.skip("needs node")
    with studio(tmp_path, wanted=any(block.language == "bash" and SERVER in block.text for block in blocks)) as address:
        printed = ""
        for block in blocks:
            if block.language == "text":
                assert_printed(printed, block.text)
            else:
                printed = run_block(CodeBlock(block.language, block.text.replace(SERVER, address)), tmp_path)


def test_the_studio_with_own_tools_can_be_served(tmp_path: Path) -> None:
    text = guide_page("desktop-apps").text
    (block,) = [block.text for block in code_blocks(text) if "create_app" in block.text]
    (tmp_path / "my_studio.py").write_text(block, encoding="utf-8")
    (served,) = re.findall(r"`agx (serve --app .*?)`", text)
    arguments = [*served.split(), "--json", "--port", "0", "--exit-with-parent"]
    with Process("agenticx.cli", arguments, cwd=tmp_path, env=clean_environment(tmp_path)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().startswith('{"url": "http://127.0.0.1:')
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def assert_printed(printed: str, expected: str) -> None:
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("…"))
    assert re.fullmatch(pattern, printed.strip(), re.DOTALL), f"printed:\n{printed}\nexpected:\n{expected}"


def run_block(block: CodeBlock, folder: Path) -> str:
    environment = clean_environment(folder) | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    match block.language:
        case "toml":
            if "providers" in tomllib.loads(block.text):  # a catalogue of models, which the next block reads
                home = folder / ".agenticx"
                home.mkdir(mode=0o700, exist_ok=True)
                (home / "models.toml").write_text(block.text, "utf-8")
            return ""
        case "python" if named := re.match(r"# ([\w/-]+\.py)\n", block.text):
            (folder / named[1]).parent.mkdir(parents=True, exist_ok=True)
            (folder / named[1]).write_text(block.text, "utf-8")
            return ""
        case "python":
            return run_forked(PROGRAM, block.text, folder=folder)
        case "js":
            (folder / "app.mjs").write_text(block.text, "utf-8")
            command = ["node", "app.mjs"]
        case _:
            command = ["bash", "-euc", block.text]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, block.text + done.stdout + done.stderr
    return done.stdout


@contextmanager
def studio(folder: Path, *, wanted: bool) -> Generator[str]:
    """Run a studio in that folder if it is wanted, and yield its address."""
    if not wanted:
        yield SERVER
        return
    arguments = ["serve", "--json", "--port", "0", "--exit-with-parent"]
    with Process("agenticx.cli", arguments, cwd=folder, env=clean_environment(folder)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"].rstrip("/")


# --- where the pages are shown ----------------------------------------------------------------------------------------


def test_agx_guide_lists_the_pages_and_prints_one(tmp_path: Path) -> None:
    listed = run_forked("agenticx.cli", "guide", folder=tmp_path).splitlines()
    assert listed == [f"{page.name:<20} {page.title}" for page in PAGES]
    assert run_forked("agenticx.cli", "guide", PAGES[0].name, folder=tmp_path) == PAGES[0].text


def test_a_page_has_its_name_in_upper_case_too_and_an_unknown_one_is_answered_with_similar_names_or_all() -> None:
    assert guide_page("Tools").name == "tools"
    with pytest.raises(UnknownGuidePage, match=r"'team'; did you mean teams\?$"):
        guide_page("team")
    with pytest.raises(
        UnknownGuidePage, match=f"'coming'; the pages: {', '.join(sorted(page.name for page in PAGES))}$"
    ):
        guide_page("coming")


def test_the_studio_shows_the_pages_without_a_token(tmp_path: Path) -> None:
    with studio(tmp_path, wanted=True) as address:
        index = httpx.get(f"{address}/guide", timeout=PATIENCE).text
        for page in PAGES:
            assert f'href="guide/{page.name}"' in index
        shown = httpx.get(f"{address}/guide/many-workers", timeout=PATIENCE)
        assert (shown.status_code, shown.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "<h1>Many workers on PostgreSQL</h1>" in shown.text
        missing = httpx.get(f"{address}/guide/many-worker", timeout=PATIENCE)
        assert (missing.status_code, missing.json()["detail"]) == (
            404,
            "No page of the guide is named 'many-worker'; did you mean many-workers?",
        )
