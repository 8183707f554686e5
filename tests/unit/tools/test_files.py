"""Tests of the tools that list folders and read files."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.errors import InvalidArguments, ToolError
from agenticx.tools.builtin import bash_exec, file_edit, file_read, file_search, list_files
from agenticx.tools.lines import TextLine, count_lines, is_valid_utf8, iter_lines
from tests.support.timeouts import longest_hold
from tests.support.verdicts import decide

pytestmark = pytest.mark.anyio


async def test_a_folder_is_listed_by_name_with_hidden_files_and_links(runner) -> None:
    (runner.workspace / "src").mkdir()
    (runner.workspace / "src" / "deep").mkdir()
    (runner.workspace / "src" / "deep" / "x.py").touch()
    (runner.workspace / ".hidden").touch()
    (runner.workspace / "a\nb").touch()
    (runner.workspace / "link").symlink_to("src")
    (runner.workspace / ".git").mkdir()
    (runner.workspace / ".git" / "HEAD").touch()

    assert await runner.call(list_files) == ".git/\n.hidden\na⟨U+000A⟩b\nlink -> src\nsrc/"
    assert await runner.call(list_files, path="src", depth=2) == "src/deep/\nsrc/deep/x.py"
    assert await runner.call(list_files, path="src/deep/") == "src/deep/x.py"


async def test_an_empty_folder_is_reported_as_empty(runner) -> None:
    assert await runner.call(list_files) == "(an empty folder)"


async def test_a_long_listing_is_cut_with_the_number_of_omitted_entries(runner) -> None:
    for number in range(600):
        (runner.workspace / f"f{number:03}").touch()
    lines = (await runner.call(list_files)).splitlines()
    assert (len(lines), lines[-2:]) == (501, ["f499", "[… and 100 more; list a folder further down to see them]"])


@pytest.mark.parametrize("text", ["one\ntwo\n", "no end", "\n", "crlf\r\nlines\r\n", "é漢字\n"])
async def test_a_text_file_is_returned_unchanged(runner, text) -> None:
    (runner.workspace / "f").write_bytes(text.encode())
    assert await runner.call(file_read, path="f") == text


async def test_an_empty_file_is_reported_as_empty(runner) -> None:
    (runner.workspace / "f").touch()
    assert await runner.call(file_read, path="f") == "(an empty file)"


async def test_a_part_of_a_file_begins_with_its_line_numbers(runner) -> None:
    (runner.workspace / "f").write_text("".join(f"line {n}\n" for n in range(1, 5001)))

    part = await runner.call(file_read, path="f", offset=11, limit=2)
    assert part == "[lines 11-12 of 5,000, 48,893 bytes; read on with offset 13]\nline 11\nline 12"
    assert (await runner.call(file_read, path="f", offset=4999)) == (
        "[lines 4,999-5,000 of 5,000, 48,893 bytes]\nline 4999\nline 5000"
    )
    whole = await runner.call(file_read, path="f")
    assert whole.startswith("[lines 1-2,000 of 5,000, 48,893 bytes; read on with offset 2001]\nline 1\n")
    with pytest.raises(ToolError, match="'f' has 5,000 lines; offset 5001 is past its end"):
        await runner.call(file_read, path="f", offset=5001)


async def test_long_lines_are_cut_and_the_result_is_bounded(runner) -> None:
    (runner.workspace / "f").write_text("\n".join("x" * 5_000 for _ in range(100)))
    result = await runner.call(file_read, path="f")
    assert result.startswith(
        "[lines 1-11 of 100, 500,099 bytes; read on with offset 12; 11 of these lines are cut at 2,000 characters]\n"
    )
    assert result.endswith("x… [5,000 characters]")
    assert len(result) < 24_200


async def test_a_huge_file_is_read_in_bounded_memory(runner) -> None:
    with (runner.workspace / "f").open("wb") as file:
        file.write(b"first\n")
        file.truncate(10 * 1024**3)
    with pytest.raises(ToolError, match="'f' is a binary file of 10,737,418,240 bytes and cannot be shown as text"):
        await runner.call(file_read, path="f")


async def test_a_binary_file_is_refused_with_its_size_and_invalid_utf8_is_replaced(runner) -> None:
    (runner.workspace / "b").write_bytes(b"\x7fELF\0\0")
    (runner.workspace / "latin").write_bytes(b"caf\xe9\n")
    (runner.workspace / "bom").write_bytes(b"\xef\xbb\xbfhello\n")

    with pytest.raises(ToolError, match="'b' is a binary file of 6 bytes and cannot be shown as text"):
        await runner.call(file_read, path="b")
    assert await runner.call(file_read, path="latin") == "[some bytes are not UTF-8 and show as \ufffd]\ncaf\ufffd"
    assert await runner.call(file_read, path="bom") == "hello\n"


async def test_arguments_out_of_range_are_refused(runner) -> None:
    for wrong in ({"path": "f", "offset": 0}, {"path": "f", "limit": 0}, {"path": "f", "offset": "1"}):
        with pytest.raises(InvalidArguments):
            await runner.call(file_read, **wrong)


async def test_a_private_folder_in_a_workspace_is_neither_listed_nor_read(workspace, make_runner) -> None:
    home = workspace / "agx-home"
    home.mkdir()
    (home / "token").write_text("secret")
    runner = make_runner(workspace, protected_roots=(home,))

    assert await runner.call(list_files) == "(an empty folder)"
    for path in ("agx-home/token", "agx-home"):
        with pytest.raises(ToolError, match="holds keys, settings or sessions of AgenticX, which no tool reads"):
            await runner.call(file_read, path=path)
    inner = make_runner(home / "project", protected_roots=(home,))
    inner.workspace.mkdir()
    (inner.workspace / "f").write_text("fine")
    assert await inner.call(file_read, path="f") == "fine"


# --- files with secrets -----------------------------------------------------------------------------------------------

SECRET_FILES = """
    .env .env.local prod.env .netrc _netrc .npmrc .pypirc .pgpass .git-credentials id_rsa id_ed25519_work deploy_rsa
    server.pem tls.key store.p12 .aws/config .ssh/known_hosts credentials credentials.json secrets.yaml app-secrets.toml
    client_secret_1.json service-account.json .docker/config.json terraform.tfstate PROD.PEM wp-config.php .my.cnf
    kubeconfig.yaml prod.auto.tfvars.json my-firebase-adminsdk-x1.json secrets.production.yaml .vault_pass.txt
    .bash_history .zsh_history .python_history .node_repl_history .psql_history fish_history .viminfo keystore.jks
    cookies.sqlite logins.json key4.db .mozilla/firefox/x/prefs.js .gnupg/secring.gpg .config/gh/hosts.yml .dev.vars
    .config/gcloud/access_tokens.db .cargo/credentials.toml .terraform.d/credentials.tfrc.json .codex/auth.json
    etc/shadow passwords.csv api_keys.json token.json login\u00a0data .e\u200bnv .env.
    npmrc dotenv env.local env.production env.production.local netrc .flaskenv doppler.yaml .mailrc .ldaprc .renviron
    db_password db-password.txt db.password POSTGRES_PASSWORD redis.pass mysql_pass passwords.md apikeys.md
    my-secrets-file.yaml gitlab.token bot-token.txt session.cookie cookiejar cookie_jar.txt logins.csv passwords.xlsx
    1PasswordExport.csv bitwarden_export_2024.json lastpass_export.csv recovery-codes.txt github-recovery-codes.txt
    service_account.json service_account-prod.json sa.json gcp.json oauth.json wallet.json keystore.json deploy_key
    github_deploy_key ssh/id_custom .config/hcloud/cli.toml .fly/config.yml .config/stripe/config.toml passwörter.txt
    passwo\u0308rter.txt contrasen\u0303as.txt .config/scw/config.yaml containers/auth.json wp-config.txt
"""
SECRET_COPIES = """
    .env~|.env.~1~|.ENV.BAK|.#.env|#.env#|.#.env.swp|.env.swp|.id_rsa.swp|.id_rsa.un~|%home%u%.env.swp|!home!u!.pgpass~
    .env.orig|.env.save.1|.env2|.env.2024-05-01|.env-20240501120000|.history/app/.env_20240501120000|.env - Copy
    .env copy 2|Copy of .env|copy (2) of id_rsa|id_rsa.bak|id_rsa_old|backup.id_rsa|.git-credentials.bak|.netrc.dpkg-old
    .npmrc.rpmsave|.netrc.gz|credentials (1).json|credentials copy.json|credentials.bak.json|old_credentials.json
    terraform.tfstate.backup|terraform.tfstate.1700000000.backup|wp-config.php.bak|wp-config.old.php|.bash_history-123.tmp
    ..netrc.swp|..netrc.Ab12Cd|.netrc.kate-swp|.netrc.~undo-tree~|.netrc___jb_tmp___
    credentials.sync-conflict-20240101-120000-ABCDEF.json|.netrc.mine|.netrc.r123|.netrc.LOCAL.123|.netrc_BACKUP_123
    .netrc.txt|cookies.sqlite-wal|Kopie von credentials.json|credentials - Copy (2).json
    .env,v|id_rsa,v|.git-credentials.lock|.zsh_history.LOCK|secrets.yml.dec|secrets.dec.yaml|.git-credentials-store
    Chrome Passwords.csv|Firefox Passwords (1).csv|1Password Export 2024-01.csv|my secrets.txt|npmrc.bak|env.local~
    .netrc (Ann's conflicted copy 2024-01-01)
"""
SECRET_NAMES_WITH_HIDDEN_CHARACTERS = (
    ".env\u202f|x.pem\ufe0f|.env\u00a0|.env\n|.npmrc\u3000|\u2800.netrc|\t.env\t|id_rsa\u180b|.e\u202fnv|.e\nnv|.env\u2028|"
    "my key.pem |.npm\u2800rc|server.p\x01em|.env.\u3000|.env \u2003|.net\u2003rc\u00a0.bak|.s\u3000sh/known_hosts|"
    ".aws\u202f/x|.co\u00a0dex/au\u2003th.json"
)
PLAIN_FILES = """
    env.py .env.example .env.sample id_rsa.pub secrets.py credentials.go keys.md key monkey.txt src/secret_names.py
    .github/config README.md environment token.ts .env.example~ .env.sample.bak example.env wp-config-sample.php
    id_rsa.pub.bak public.pem cacert.pem environment.py environment.yml environ.py tokenizer.py tokenizer.json
    tokens.json token.svg password.svg password_reset.txt HISTORY.md chat_history.py order_history-view.tsx cookies.py
    config.json package.json main.tf .gitignore .npmignore backup.py secretary.txt keyboard.json passwords.py hosts.yml
    password.py secrets.md credentials.md test_passwords.py password_reset.html reset-password.txt env env.ts key.json
    cookiejar.py tokenizer_config.json keystore.ts wallet.tsx oauth.py recovery_codes.py logins.py session.cookie.ts
    application.yml docker-compose.yml settings.py local.properties config.php ssh/id_custom.pub store.lock package.dec
    rsa.py test_rsa.py yarn.lock 1.txt v1 a.out ~ # .swp .git/config auth.json .bashrc
"""


@pytest.mark.promise("I1")
@pytest.mark.parametrize("mode", ["default", "accept_edits", "auto", "plan"])
def test_reading_a_file_that_usually_holds_secrets_is_asked_about_in_every_mode(runner, mode) -> None:
    (runner.workspace / "notes").symlink_to(".env")
    copies = [copy.strip() for copy in SECRET_COPIES.replace("\n", "|").split("|") if copy.strip()]
    names = [name.strip() for name in SECRET_FILES.split(" ") if name.strip()]
    for path in [*names, *copies, *SECRET_NAMES_WITH_HIDDEN_CHARACTERS.split("|"), "notes"]:
        assessment = runner.assess(file_read, path=path)
        assert (path, decide(mode, assessment).decision) == (path, "ask")
        assert assessment.reasons == ("It usually holds keys or passwords, which the model's provider would see.",)
    for path in [*PLAIN_FILES.split(), "public\u202fkey.pem", "Copy of public.pem", ".env.example\u3000"]:
        assert (path, decide(mode, runner.assess(file_read, path=path)).decision) == (path, "allow")


CREDENTIALS = {
    ".git/config": "[remote]\n\turl = https://user:hunter22@example.org/x",
    ".git/modules/a/config": "[remote]\n\turl = https://0123456789abcdef0123456789abcdef01234567@example.org/x",
    ".git/logs/HEAD": "clone: from https://oauth2:hunter22@example.org/x",
    ".gitconfig~": "[http]\n\textraheader = AUTHORIZATION: basic dXNlcjpodW50ZXIy",
    "auth.json": '{"http-basic": {"example.org": {"username": "u", "password": "hunter22"}}}',
    "settings.xml": "<server><username>u</username><password>hunter22</password></server>",
    "NuGet.Config": '<add key="ClearTextPassword" value="hunter22" />',
    "pip.conf": "index-url = https://u:hunter22@example.org/simple",
    "LocalSettings.php": '$wgDBpassword = "hunter22";',
    ".bashrc": "export SERVICE_TOKEN=hunter22",
    "db-password-old.yaml": "password: hunter22",
    "config.json": '{"key": "ghp_hunter22hunter22hunter22hunter22hunter"}',
    "application.yml": "url: postgres://app:hunter22@db:5432/app",
    "application-prod.properties": "spring.datasource.password=hunter22",
    "config/database.yml": "production:\n  password: hunter22",
    "local.properties": "hunter.key=AKIAIOSFODNN7HUNTER2",
    "docker-compose.yml": "  - KEY=sk-proj-hunter22hunter22HUNTER22",
    "config.php": "$slack = 'xoxb-012345678901-hunter22';",
    "settings.py": "KEY = '-----BEGIN RSA PRIVATE KEY-----\\nhunter22'",
    "keys.json": '{"openai": "sk-hunter22hunter22HUNTER22"}',
    "env": "DB_PASSWORD=hunter22",
}


@pytest.mark.promise("I1")
@pytest.mark.parametrize("path", CREDENTIALS)
async def test_an_ordinary_file_is_asked_about_once_a_credential_is_in_it(runner, path) -> None:
    file = runner.workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[remote]\n\turl = https://example.org/x\n[credential]\n\thelper = cache\n")
    assert not runner.assess(file_read, path=path).protected
    file.write_text(CREDENTIALS[path])
    assert runner.assess(file_read, path=path).protected
    assert runner.assess(bash_exec, command=f"cat {path}").protected
    found = await runner.call(file_search, pattern="hunter|012345|dXNl", path=path)
    assert found == f"[no match in 0 files]\n[not searched, because such files usually hold keys or passwords: {path}]"


@pytest.mark.promise("I1")
async def test_another_name_of_a_secret_file_is_asked_about(runner, tmp_path) -> None:
    (runner.workspace / ".env").write_text("CANARY")
    (tmp_path / "id_rsa").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    (runner.workspace / "code.ts").write_text("const password: string = read()\n")
    (runner.workspace / "src").mkdir()
    (runner.workspace / "src" / "notes").hardlink_to(runner.workspace / ".env")
    (runner.workspace / "src" / "outside").hardlink_to(tmp_path / "id_rsa")
    (runner.workspace / "src" / "code.ts").hardlink_to(runner.workspace / "code.ts")
    for path, secret in (("src/notes", True), ("src/outside", True), ("src/code.ts", False)):
        assert (path, runner.assess(file_read, path=path).protected) == (path, secret)
        decision = decide("default", runner.assess(bash_exec, command=f"cat {path}")).decision
        assert (path, decision) == (path, "ask" if secret else "allow")
    assert decide("auto", runner.assess(bash_exec, command="cat src/n*")).decision == "ask"
    assert decide("default", runner.assess(bash_exec, command="grep -r CANARY src")).decision == "ask"
    assert await runner.call(file_search, pattern="CANARY|BEGIN|const", path="src") == (
        "src/code.ts:1:const password: string = read()\n"
        "[not searched, because such files usually hold keys or passwords: src/notes, src/outside]"
    )


@pytest.mark.promise("I1")
async def test_a_link_of_a_secret_name_on_the_way_to_a_file_is_asked_about(runner) -> None:
    (runner.workspace / "plain").mkdir()
    (runner.workspace / "plain" / "x.txt").write_text("CANARY")
    (runner.workspace / ".env.shared").symlink_to("plain/../plain/x.txt")
    (runner.workspace / "readme.md").symlink_to(runner.workspace / ".env.shared")
    (runner.workspace / ".aws").symlink_to("plain")
    (runner.workspace / "docs").symlink_to(".aws")
    (runner.workspace / "plain" / "y.txt").write_text("CANARY")
    (runner.workspace / "fine.md").symlink_to("plain/y.txt")
    for path, file in (("readme.md", "readme.md"), ("docs", "docs/x.txt"), ("docs/x.txt", "docs/x.txt")):
        assert runner.assess(file_read, path=file).protected
        for command in (f"cat {file}", f"sort < {file[:-1]}?", f"cd docs; cat ../{file}"):
            assert decide("auto", runner.assess(bash_exec, command=command)).decision == "ask"
        assert "not searched, because such files" in await runner.call(file_search, pattern="CANARY", path=path)
        edits = (runner.assess(file_edit, path=file, old_text=old, new_text="x") for old in ("CANARY", "none"))
        assert [edit.protected for edit in edits] == [True, True]
    assert not runner.assess(file_read, path="fine.md").protected
    assert decide("auto", runner.assess(bash_exec, command="cat fine.md")).decision == "allow"
    assert await runner.call(file_search, pattern="CANARY", path="fine.md") == "plain/y.txt:1:CANARY"


@pytest.mark.promise("I1")
async def test_what_a_link_of_a_secret_name_leads_to_is_asked_about(runner) -> None:
    for folder in ("envs", "keys"):
        (runner.workspace / folder).mkdir()
    for path in ("envs/dev.txt", "keys/mine", "keys/plain"):
        (runner.workspace / path).write_text("CANARY")
    (runner.workspace / ".env").symlink_to("envs/dev.txt")
    (runner.workspace / "keys" / "id_rsa").symlink_to("mine")
    (runner.workspace / "keys" / "notes").symlink_to("plain")
    assert runner.assess(file_read, path="envs/dev.txt").protected
    assert runner.assess(file_read, path="keys/mine").protected
    assert not runner.assess(file_read, path="keys/plain").protected
    assert await runner.call(file_search, pattern="CANARY") == (
        "keys/plain:1:CANARY\n"
        "[not searched, because such files usually hold keys or passwords: envs/dev.txt, keys/mine]"
    )


def test_a_changed_link_changes_the_binding(runner) -> None:
    (runner.workspace / "notes").touch()
    shown = runner.assess(file_read, path="notes").binding
    (runner.workspace / "notes").unlink()
    (runner.workspace / "notes").symlink_to("other")
    assert runner.assess(file_read, path="notes").binding != shown


LARGE = {
    "line breaks": (b"", b"\n"),
    "one line": (b"", b"a"),
    "no UTF-8": (b"", b"\xff"),
    "not ASCII": (b"", "é\n".encode()),
    "lines of CR": (b"", b"\r"),
    "UTF-16": (b"\xff\xfe", "é\n".encode("utf-16-le")),
}


@pytest.mark.parametrize("family", LARGE)
@pytest.mark.cases(quick=2)
async def test_reading_a_large_file_does_not_block_the_event_loop(runner, family) -> None:
    begin, repeated = LARGE[family]
    (runner.workspace / "f").write_bytes(begin + repeated * (30_000_000 // len(repeated)))
    async with longest_hold() as hold:
        result = await runner.call(file_read, path="f")
    assert result.startswith("[")
    assert hold.longest < 0.1


async def test_a_range_after_millions_of_lines_is_read(runner) -> None:
    (runner.workspace / "f").write_bytes(b"\n" * 1_000_000 + "é here\nthere".encode())
    part = await runner.call(file_read, path="f", offset=1_000_001)
    assert part == "[lines 1,000,001-1,000,002 of 1,000,002, 1,000,013 bytes]\né here\nthere"
    with pytest.raises(ToolError, match=r"has 1,000,002 lines; offset 1000003 is past its end"):
        await runner.call(file_read, path="f", offset=1_000_003)


@given(st.lists(st.sampled_from([b"\n", b"a", b"\r", "é".encode(), b"\xe9", b"\xf0\x9f", b"x" * 9])), st.integers(0, 9))
def test_lines_are_those_of_the_decoded_text(chunks, skipped) -> None:
    content = b"".join(chunks)
    lines = content.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    assert count_lines(content) == len(lines)
    assert is_valid_utf8(content) == (content.decode("utf-8", "ignore").encode() == content)
    assert [*iter_lines(content, skipped, 5)] == [TextLine(line[:5], len(line)) for line in lines[skipped:]]


def test_lines_across_chunk_boundaries_are_complete() -> None:
    for shift in range(4):
        content = b"x" * (256 * 1024 - 4 + shift) + "é\n😀\n\n".encode() * 200_000
        lines = content.decode().split("\n")[:-1]
        assert count_lines(content) == len(lines)
        assert is_valid_utf8(content)
        for skipped in (0, 1, 99_999, 299_999, 599_999, 600_000):
            expected = [TextLine(line[:5], len(line)) for line in lines[skipped : skipped + 5]]
            assert [*islice(iter_lines(content, skipped, 5), 5)] == expected
