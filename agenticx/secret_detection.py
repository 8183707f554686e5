"""Detection of environment variables and files that hold secrets, by their names and values.

Files are judged by tables of names. A copy of a file counts as that file, whatever an editor, a package manager or a
person added to its name: `.env~`, `.#.env.swp`, `credentials (1).json`, `id_rsa.2024-05-01.bak`. Hidden characters
and blanks of any kind, at the ends of a name or inside, make no other name: `.env<U+202F>`, `x.pem<U+FE0F>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from agenticx.hidden_characters import is_blank, is_hidden
from agenticx.lazy_patterns import lazy_compile

__all__ = [
    "holds_credentials",
    "holds_keys",
    "is_real_key",
    "is_secret_file",
    "is_secret_folder",
    "is_secret_name",
    "is_secret_value",
    "is_secret_variable",
    "may_hold_credentials",
    "may_hold_keys",
]

# --- variables --------------------------------------------------------------------------------------------------------

# Words of a name, between underscores or where its case changes.
_SECRET_WORDS = """
    AUTH BEARER CONN CONNECTION CONNECTIONS CONNSTR COOKIE COOKIES CRED CREDS DSN HMAC JWT KEY KEYS OAUTH OTP PASS PAT
    PATS PIN PRIVATE PW PWD SALT SAS TOTP
"""
# Secret in any position of a name; `TOKEN(?!I[SZ])` leaves out TOKENIZERS_PARALLELISM.
_UNAMBIGUOUS_PARTS = lazy_compile(
    r"SECRET|PASSW|PASSPHRASE|PASSCODE|KENNWORT|GEHEIMWORT|CONTRASEN?A|MOTS?DEPASSE|TOKEN(?!I[SZ])|CREDENTIAL|WEBHOOK|CONNECTIONSTRING|MNEMONIC|(?:API|AUTH|ACCESS|"
    r"MASTER|ACCOUNT|ENCRYPTION|SIGNING|PRIVATE|SSH|HOST)KEY|(?<!COM)(?<!BY)PASS$"
)
_SERVICE_WORDS = """
    AMQP BROKER CACHE CELERY CLICKHOUSE CLOUDAMQP DATABASE DB ELASTIC ELASTICSEARCH KAFKA LDAP MONGO MONGODB MYSQL NATS
    NEO PG POSTGRES POSTGRESQL RABBITMQ REDIS SENTRY SMTP SQL SQLALCHEMY
"""
_ADDRESS_WORDS = frozenset({"URI", "URL"})
_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD"})


def is_secret_name(name: str) -> bool:
    """Return whether a variable of that name may hold a secret; in doubt True."""
    if name in _HARMLESS_NAMES:
        return False
    words = set(re.findall(r"[A-Z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()))
    if not words.isdisjoint(_SECRET_WORDS.split()) or _UNAMBIGUOUS_PARTS.search(re.sub(r"[^A-Z]", "", name.upper())):
        return True
    return not words.isdisjoint(_ADDRESS_WORDS) and not words.isdisjoint(_SERVICE_WORDS.split())


# Published key formats: Anthropic and OpenAI, GitHub, GitLab, Slack, AWS, Google, npm, PyPI, Hugging Face, SendGrid,
# Stripe; web tokens; private keys.
_KEY_FORMATS = r"""
    \b(?:sk|rk|pk)[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{16}
    | \b(?:gh[pousr]_|github_pat_|glpat-|npm_|hf_|pypi-|xox[a-z]-|SG\.)[A-Za-z0-9_.-]{16}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bAIza[A-Za-z0-9_-]{30}
    | (?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | ://[^\s/@:]*:[^\s/@]+@
    | ://hooks\.slack\.com/services/ | ://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/
    | (?:^|[\s"'])(?:Bearer|Basic)\s+[A-Za-z0-9+/=._-]{8}
"""
_SECRET_VALUE = lazy_compile(
    rf"""
    {_KEY_FORMATS}
    | (?:^|[\s;,&?"'{{])(?:[\w-]*(?:password|passwd|pwd|secret|token|api_?key|accountkey|accesskey|private_key|auth))
      ["']?\s*[:=]\s*["']?[^\s"';,]{{4}}
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MAX_SEARCHED_CHARS = 65_536


def is_secret_value(value: str) -> bool:
    """Return whether a value looks like a key or contains one: in a URL, in a connection string, in JSON."""
    return _SECRET_VALUE.search(value[:_MAX_SEARCHED_CHARS]) is not None


_PLACEHOLDER = lazy_compile(r"(?=.{1,20}$)(?:[A-Z]?[a-z]+(?:[-_][a-z]+)*|[A-Z]+(?:[-_][A-Z]+)*)")


def is_real_key(key: str) -> bool:
    """Return whether a key is more than a placeholder, such as `x`, `ollama`, `lm-studio` or `not-needed`.

    Placeholders are set for servers that need no key.
    """
    return len(key) >= 8 and not _PLACEHOLDER.fullmatch(key)


# Variables whose names end like this hold only secrets. The value of another may be an ordinary word, which is not to
# be redacted wherever it occurs.
_UNAMBIGUOUS_NAME = lazy_compile(
    r"(?:(?:^|_)(?:KEY|TOKEN|PASS|PAT)|_PWD|API_?KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE
)
_API_KEY = lazy_compile(r"API_?KEY$", re.IGNORECASE)
_HARMLESS_VALUE = lazy_compile(r"[A-Za-z ]*|[\d.:,]*|[~.]*/.*")


@lru_cache(maxsize=1024)
def is_secret_variable(name: str, value: str) -> bool:
    """Return whether the value of a variable of that name is a secret, which must not be shown."""
    if _API_KEY.search(name):
        return is_real_key(value)
    return bool(_UNAMBIGUOUS_NAME.search(name)) or (is_secret_name(name) and not _HARMLESS_VALUE.fullmatch(value))


# --- files ------------------------------------------------------------------------------------------------------------

# Names without regard to case. `*` is any text, `?` any character; a leading `+` is any text that ends in a separator,
# or none (`+secret` is `secret` and `app-secret`), and a trailing `%` is the name of a deployment and an extension of
# data, or none (`secrets%` is `secrets`, `secrets.yaml` and `secrets.prod.yaml`). A trailing `$` is an extension of
# data, and `&` one of a document.
_SECRET_FILE_NAMES = (
    # environments
    ".env .env.* .env-* .env_* *.env .envrc .envrc.* .dev.vars .dev.vars.* .flaskenv dotenv envrc env.local "
    "env.prod env.production env.dev env.development env.stage env.staging env.test env.ci env.qa env.live "
    "env.private env_file",
    # keys, keystores, wallets and password databases
    "id_rsa* id_dsa* id_ecdsa* id_ed25519* id_xmss* *_rsa *_dsa *_ecdsa *_ed25519 ssh_host_*_key +private_key% "
    "+private-key% privkey% *private*.asc secret*.asc privkey*.asc *private*.pgp *.pem *.key *.p8 *.p12 *.pfx "
    "*.pkcs12 *.ppk *.jks *.jceks *.bcfks *.keystore *.keytab *.keychain *.keychain-db *.keyring *.kwl *.kdb *.kdbx "
    "*deploy?key deploykey keystore% *.psafe3 *.1pif *.1pux *.opvault *.agilekeychain *.wallet *.ovpn "
    "*.nmconnection wg?.conf wpa_supplicant.conf secring.* wallet.dat +wallet.json utc--* krb5cc_*",
    # logins of programs
    ".netrc _netrc .authinfo .npmrc .yarnrc .yarnrc.yml .pypirc .pgpass pgpass.conf .my.cnf .mylogin.cnf .htpasswd "
    ".htdigest .dockercfg .dockerconfigjson .git-credentials .git-credential-* .s3cfg .boto .databrickscfg "
    ".passwd-* .smbcredentials .erlang.cookie .rhosts .xauthority .fetchmailrc .msmtprc .mbsyncrc .offlineimaprc "
    ".claude.json kaggle.json ngrok.yml rclone.conf .ftpconfig .ftppass ftpsync.settings sftp.json sftp-config.json "
    "filezilla.xml htpasswd .sentryclirc hex.config settings-security.xml datasources.local.xml winscp.ini "
    ".robomongo.json sec.conf sitemanager.xml recentservers.xml webservers.xml .remote-sync.json "
    "credentials-config.json *.publishsettings npmrc netrc authinfo yarnrc pypirc pgpass dockercfg dockerconfigjson "
    "git-credentials s3cfg databrickscfg smbcredentials fetchmailrc msmtprc mbsyncrc offlineimaprc xauthority "
    ".mailrc .ldaprc .renviron .bw_session doppler.yaml .doppler.yaml",
    # cloud, CI and infrastructure
    "+kubeconfig% kubeconfig-* *.kubeconfig *client?secret*.json *service?account*.json *serviceaccount*.json "
    "*-adminsdk*.json gha-creds-*.json gcp?key.json gcloud?key.json sa?key.json *accesskeys.csv rootkey.csv "
    "accesstokens.json msal_token_cache.* local.settings.json .vault-token +vault_pass% +vault-pass% "
    "+vault_password% +vault-password% .terraformrc terraform.rc *.tfrc *.tfrc.json *.tfvars *.tfvars.json "
    "*.tfstate *.tfstate.* hudson.util.secret .credentials_rsaparams wp-config*.php wp-config wp-config.txt sa.json "
    "gcp.json oauth.json oauth2.json +oauth?credentials%",
    # histories of shells and interpreters
    "*_history .*-history .*_history-* .*_hist .history .zhistory .rhistory .histfile .lesshst .viminfo .dbshell "
    "consolehost_history.txt repl_history.jl history.sqlite",
    # profiles of browsers
    "cookies cookies.txt cookies.json cookies.db cookies.sqlite cookies.binarycookies login?data "
    "login?data?for?account web?data local?state logins.json logins-backup.json key3.db key4.db signons.sqlite "
    "formhistory.sqlite places.sqlite sessionstore.jsonlz4 recovery.jsonlz4 *.cookie *.cookies +cookiejar% "
    "cookie?jar%",
    # exports of password managers, and what logs in without a password
    "+logins.csv +logins.txt *password?export* *passwords?export* 1password*.csv 1password*.json bitwarden?export* "
    "bitwarden?encrypted?export* bitwarden*.csv lastpass*.csv keepass*.csv keepass*.xml dashlane*.csv nordpass*.csv "
    "enpass*.csv enpass*.json roboform*.csv proton?pass*.csv proton?pass*.json *recovery?codes% *recovery?codes& "
    "*recoverycodes% *backup?codes% *backup?codes& *backupcodes% +seed?phrase% +recovery?phrase% +recovery?key% "
    "bitlocker?recovery?key* *emergency?kit*.pdf",
    # whatever says so; some file systems store an accent as a character of its own, so `??` stands for one letter
    "+credential% +credentials% +creds% +secret% +secrets% .secrets.* +passwords% +passwords& +password password% "
    "+password.txt +password?file% +passwords?file% +secret?file% +secrets?file% +credentials?file% *.password "
    "*.passwd *.pwd *.pass *_pass *-pass +passwort% +passw?rter% +passw??rter% +kennwort% +kennw?rter% "
    "+kennw??rter% +contrase?a% +contrase??a% +contrase?as% +contrase??as% +mot?de?passe% +mots?de?passe% "
    "*.passphrase +apikey& +apikeys& +api?keys& passwd.txt +api_key% +api-key% +api_keys% +api-keys% +apikey% "
    "+apikeys% +access_token% +access-token% +auth_token% +auth-token% +refresh_token% +bearer_token% *_token "
    "*-token *.token token +token.txt token.json token.pickle environ",
)
# Files of these names, and those that end in one of these pairs of a folder and a file.
_SECRET_PATH_NAMES = """
    .circleci/cli.yml .codex/auth.json .composer/auth.json .config/hub .fly/config.yml .gitlab-runner/config.toml
    .netlify/config.json .purple/accounts.xml .railway/config.json .supabase/access-token com.vercel.cli/auth.json
    containers/auth.json etc/env.php etc/gshadow etc/local.xml etc/master.passwd etc/shadow gitlab-runner/config.toml
    kubernetes/admin.conf opencode/auth.json registry/config.json ssh/id_*
"""
_SECRET_FOLDER_NAMES = """
    .aws .azure .bash_sessions .bitcoin .docker .electrum .ethereum .gcloud .gnupg .gsutil .history .kube .minio
    .mozilla .oci .password-store .putty .ssh .thunderbird .zsh_sessions
"""
_SECRET_FOLDERS = frozenset(_SECRET_FOLDER_NAMES.split())
# Files below these pairs of folders.
_SECRET_FOLDER_PATH_NAMES = """
    .config/bravesoftware .config/chromium .config/configstore .config/doctl .config/filezilla .config/gcloud
    .config/gh .config/github-copilot .config/glab-cli .config/google-chrome .config/hcloud .config/heroku
    .config/linode-cli .config/microsoft-edge .config/neonctl .config/netlify .config/ngrok .config/op
    .config/openstack .config/rclone .config/scw .config/solana .config/sops .config/stripe .config/turso
    .subversion/auth chrome/user?data firefox/profiles library/cookies library/keychains share/keyrings
    share/kwalletd ssl/private
"""
# Ordinary files unless there is a credential in them, such as a token in the URL of a remote repository; and so are all
# files in `.git`, except its compressed objects.
_MIXED_FILE_NAMES = """
    config .gitconfig .gitmodules .hgrc hgrc pip.conf .condarc .curlrc .wgetrc .muttrc nuget.config settings.xml
    muttrc redis.conf profiles.yml jupyter_server_config.json mcp.json .mcp.json claude_desktop_config.json .bashrc
    .bash_aliases .bash_profile .profile .zprofile .zshenv .zshrc config.fish .aider.conf.yml gradle.properties
    auth.json parameters.yml parameters.yaml database.yml web.config appsettings*.json application*.yml
    application*.yaml application*.properties bootstrap.yml bootstrap.yaml bootstrap.properties *secret*$ *passw*$
    *credential*$ *apikey*$ *api?key*$ my.cnf configuration.php settings.php settings.local.php config.inc.php
    localsettings.php local_settings.py
"""
# Ordinary files unless there is a key in a known format in them: settings of all kinds, in which most passwords are
# names, types or defaults.
_SETTINGS_FILE_NAMES = """
    env env.sh *setenv.sh key.json keys.json +config.json +config.yaml +config.yml +config.toml +config.ini
    config.php config.py config.js config.ts config.rb *.local.json default.json production.json development.json
    staging.json settings*.py settings.json settings.toml settings.yaml settings.yml settings.ini local_settings*.py
    app.config application.conf *local.properties docker-compose*.yml docker-compose*.yaml compose*.yml
    compose*.yaml dockerfile values*.yaml values*.yml .gitlab-ci.yml .travis.yml inventory.ini hosts.ini +vars.yml
    +vars.yaml alembic.ini env.json env.yaml env.yml gcp-*.json gcp_*.json *token*$ *oauth*$ *account*.json
"""
_HARMLESS_FILE_NAMES = (
    "*.example *.sample *.template *.dist *.tmpl *.tpl example.* sample.* template.* *.example.* *-example.* "
    "*_example.* *.sample.* *-sample.* *_sample.* *.pub .env.d.ts cacert.pem ca-bundle.pem "
    "ca-certificates.pem +public*.pem common-password *reset?password* *forgot?password* *change?password* "
    "*password?reset* *password?change*"
)
_DEPLOYMENT = r"(?:[._-](?:prod(?:uction)?|dev(?:elopment)?|stag(?:e|ing)|test|local|live|ci|qa|private))?"
_DATA_SUFFIX = r"\.(?:json|ya?ml|toml|ini|txt|csv|xml|cfg|conf|properties|db|der)"
_GLOB_CHARACTERS = {
    "*": ".*",
    "?": ".",
    "+": "(?:.*[ ._-])?",
    "%": f"{_DEPLOYMENT}(?:{_DATA_SUFFIX})?",
    "$": _DATA_SUFFIX,
    "&": r"\.(?:md|markdown|org|rtf|tsv|docx?|xlsx?|ods|odt|pdf|numbers|pages|one|log)",
}


@dataclass(frozen=True, slots=True)
class _Globs:
    """A table of names: those without special characters, endings behind a `*`, and all others."""

    names: frozenset[str]
    endings: tuple[str, ...]
    others: re.Pattern[str]

    @classmethod
    def parse(cls, *tables: str) -> _Globs:
        names, endings, others = set[str](), list[str](), list[str]()
        for glob in " ".join(tables).split():
            if _GLOB_CHARACTERS.keys().isdisjoint(glob):
                names.add(glob)
            elif glob[0] == "*" and _GLOB_CHARACTERS.keys().isdisjoint(glob[1:]):
                endings.append(glob[1:])
            else:
                others.append("".join(_GLOB_CHARACTERS.get(char) or re.escape(char) for char in glob))
        return cls(frozenset(names), tuple(endings), lazy_compile("|".join(others)))

    def match(self, name: str) -> bool:
        """Return whether a name is in the table."""
        return name in self.names or name.endswith(self.endings) or self.others.fullmatch(name) is not None


_SECRET_FILES = _Globs.parse(*_SECRET_FILE_NAMES)
_SECRET_PATHS = _Globs.parse(_SECRET_PATH_NAMES)
_SECRET_FOLDER_PATHS = _Globs.parse(_SECRET_FOLDER_PATH_NAMES)
_MIXED_FILES = _Globs.parse(_MIXED_FILE_NAMES)
_SETTINGS_FILES = _Globs.parse(_SETTINGS_FILE_NAMES)
_HARMLESS_FILES = _Globs.parse(_HARMLESS_FILE_NAMES)

_MAX_NAME_CHARS = 255
_MAX_NAMES = 24
# What editors, package managers, downloads and people add to the name of a copy, before or behind its extension.
_COPY_WORDS = r"""
    copy | kopie | copie | copia | bak | bkp | back | backup | save | saved | sav | old | orig | original | prev
    | previous | tmp | temp | new | rej | off | disabled | part | partial | crdownload | download | bck | bkup
    | mine | ours | theirs | base | local | remote | r(?=[0-9]) | wal | shm | journal | txt
    | dpkg-(?:old|new|dist|bak|tmp) | ucf-(?:old|new|dist) | rpm(?:save|new|orig) | pac(?:save|new|orig)
    | lock | dec | decrypted | store | sw[g-px] | kate-swp | un | gz | bz2 | xz | zst | zip | tar | tgz | 7z
"""
_COPY_SUFFIX = lazy_compile(
    rf"""
    (?: ~ [0-9]* ~? | ,v | [.]?~undo-tree~ | ___jb_(?:tmp|old|bak)___ | [.]sync-conflict-[0-9]+-[0-9]+-[0-9a-z]+
      | [ ]? \( [^()]* conflicted [ ] copy [^()]* \)
      | [ ._-]* \( [ ]* (?:{_COPY_WORDS})? [ ]* [0-9]* [ ]* \)
      | [ ._-]+ (?:{_COPY_WORDS}) [ ._-]* [0-9]*
      | (?: [ ._-]* | [ ._-]+ v ) [0-9][0-9tz:._-]*
      | -
    )$
    """,
    re.VERBOSE,
)
_COPY_PREFIX = lazy_compile(
    rf"""
      \.?\#+ | ~\$ | [%!].*[%!] | \.
    | (?:copy|kopie|copie|copia) (?:[ ]*\(?[0-9]+\)?)? [ ._-]+ (?:of|von|de|di) [ ._-]+
    | (?:{_COPY_WORDS}) [ ._-]+
    """,
    re.VERBOSE,
)
_SUFFIX_CHARS = 80  # of a name that are searched for an addition

_LINE_CHARS, _OVERLAP = 16_384, 512  # of a line that are searched at once

# A line of a file with a key: one of the formats above, a token as the user of a URL, a line of `.npmrc` or `.netrc`.
_CREDENTIAL = lazy_compile(
    rf"{_KEY_FORMATS} | ://[A-Za-z0-9_-]{{20,}}@ | :_\w+\s*= | ^\s*(?:machine\s.*\s)?password\s+\S",
    re.VERBOSE | re.IGNORECASE,
)
# A key as its provider makes it, or a URL with a password: what settings of a program or documentation should not have.
# Not names of variables (`npm_config_cache`), and not what stands for a password (`postgres:postgres@`, `$PASSWORD@`).
_KEY = lazy_compile(
    r"""
    \b(?:sk|rk)[-_](?![xX.]{4})(?=[a-z_-]{0,40}[A-Z0-9]|[a-z]{20})[A-Za-z0-9_-]{16}
    | \b(?:gh[pousr]_|github_pat_|glpat-|xox[a-z]-|SG\.|pypi-Ag)(?![xX.]{4})[A-Za-z0-9_.-]{10}
    | \b(?:npm_|hf_)(?![xX]{4})[A-Za-z0-9]{20}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}
    | \bAIza[A-Za-z0-9_-]{30}
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | ://hooks\.slack\.com/services/T | ://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/[0-9]
    | ://(?P<user>[^\s/@:"'`<>]{0,100}):(?!(?P=user)@|(?i:pass(?:word)?|passwd|pwd?|secret|changeme|x+|[*.]+)@)
      [^\s/@:"'`<>{$%][^\s/@"'`<>{]*@
    """,
    re.VERBOSE,
)
_EXAMPLE_VALUE = lazy_compile(
    r"your\w*|(?:your|my|some|the|replace|insert|example|dummy|change)[_-][a-z_-]*|changeme|example|x{3,}|[.*<{\[].*",
    re.IGNORECASE,
)
_VARIABLE = lazy_compile(r"\s*(?:export\s+)?(?P<name>[A-Z][A-Z0-9_]*)=[\"']?(?P<value>[^\s\"'$(]+)")
_ASSIGNMENT = lazy_compile(
    r"""
    (?:^|[{,;(<"'])\s*["'$]?[\w.-]*
    (?:password|passwd|pwd|secret|secret_?key|token|api_?key|accountkey|accesskey|auth|pass)
    ["']?(?:\s*(?:=>?|:|>|,)|\s+value=)\s*["']?[^\s"'$({<>;,]{4}
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_secret_file(*parts: str) -> bool:
    """Return whether the file at a path of these parts usually holds keys or passwords."""
    if not parts:
        return False
    folded = tuple(map(_comparable_name, parts))
    kind, names = _judge(folded[-1])
    if kind != "ordinary":
        return kind == "secret"
    if is_secret_folder(*folded[:-1]):
        return True
    folders = {folded[-2], _without_blanks(folded[-2])} if len(folded) > 1 else ()
    return any(_SECRET_PATHS.match(f"{folder}/{name}") for folder in folders for name in names)


def is_secret_folder(*parts: str) -> bool:
    """Return whether all files below the folder at a path of these parts count as secret."""
    folded = tuple(map(_comparable_name, parts))
    return any(
        not _SECRET_FOLDERS.isdisjoint(names)
        or any(_SECRET_FOLDER_PATHS.match("/".join(pair)) for pair in pairwise(names))
        for names in dict.fromkeys((folded, tuple(map(_without_blanks, folded))))
    )


def may_hold_credentials(*parts: str) -> bool:
    """Return whether the content of the file at a path decides if it is secret, as that of `.git/config` does."""
    folded = tuple(map(_comparable_name, parts))
    if ".git" in folded[:-1]:  # not `.g it`, which no program takes for a repository
        return folded[folded.index(".git") + 1] != "objects"
    return bool(folded) and any(map(_MIXED_FILES.match, _judge(folded[-1])[1]))


def may_hold_keys(*parts: str) -> bool:
    """Return whether a key in the content of the file at a path makes it secret, as in `config.json`."""
    return bool(parts) and any(map(_SETTINGS_FILES.match, _judge(_comparable_name(parts[-1]))[1]))


def holds_credentials(text: str, *, is_settings: bool) -> bool:
    """Return whether there are keys, or URLs with passwords, in the text of a file.

    In settings also what is assigned to a password or a token counts, which in a program may be a type or a call.
    """
    for line in text.splitlines():
        for start in range(0, len(line), _LINE_CHARS):  # other threads run between two searches
            part = line[start : start + _LINE_CHARS + _OVERLAP]
            if _CREDENTIAL.search(part) or (is_settings and _ASSIGNMENT.search(part)):
                return True
        assigned = _VARIABLE.match(line[:_LINE_CHARS])
        if assigned and is_secret_variable(assigned["name"], assigned["value"]):
            return True
    return False


def holds_keys(text: str) -> bool:
    """Return whether there is a key in a known format, or an assignment to such a variable as `NAME_TOKEN`, in a text.

    Unlike `holds_credentials` this leaves out examples: the text may be documentation or the settings of a program.
    """
    for line in text.splitlines():
        for start in range(0, len(line), _LINE_CHARS):
            if _KEY.search(line[start : start + _LINE_CHARS + _OVERLAP]):
                return True
        assigned = _VARIABLE.match(line[:_LINE_CHARS])
        if assigned is None or "://" in assigned["value"] or _EXAMPLE_VALUE.fullmatch(assigned["value"]):
            continue
        if is_secret_variable(assigned["name"], assigned["value"]):
            return True
    return False


def _comparable_name(part: str) -> str:
    """Return a name as a reader or the most lenient file system compares it.

    It is without case, hidden characters, blanks at its ends and final dots; any blank inside is a space.
    """
    part = part[: _MAX_NAME_CHARS + 1]
    seen = part
    if not (part.isascii() and part.isprintable()):
        seen = "".join(" " if is_blank(char) else char for char in part if is_blank(char) or not is_hidden(char))
    return seen.casefold().lstrip(" ").rstrip(". ") or part


def _without_blanks(name: str) -> str:
    return name.replace(" ", "")


@lru_cache(maxsize=4096)
def _judge(name: str) -> tuple[Literal["secret", "harmless", "ordinary"], tuple[str, ...]]:
    """Return what a folded name says of a file, and the names of which it may be that of a copy."""
    names = _original_names(name)
    if any(map(_HARMLESS_FILES.match, names)):
        return "harmless", names
    if " " in name:
        names += _original_names(_without_blanks(name))
    return ("secret" if any(map(_SECRET_FILES.match, names)) else "ordinary"), names


def _original_names(name: str) -> tuple[str, ...]:
    """Return a folded name, and the names of which it may be that of a copy; none for one that no file can have."""
    names = {name: None} if len(name) <= _MAX_NAME_CHARS else {}
    for one in names.copy():
        pending = [one]
        while pending and len(names) < _MAX_NAMES:
            pending += [shorter for shorter in _undecorated(pending.pop(0)) if shorter and shorter not in names]
            names.update(dict.fromkeys(pending))
    return tuple(names)


def _undecorated(name: str) -> Iterator[str]:
    """Yield a name without one addition behind it, before its extension, or before it."""
    if prefix := _COPY_PREFIX.match(name):
        yield name[prefix.end() :].rstrip("#")
    stem, dot, extension = name.rpartition(".")
    if stem.startswith(".") and len(extension) == 6 and extension.isalnum():  # `.NAME.Ab12Cd` of rsync and others
        yield stem
    for text, rest in ((name, ""), (stem, dot + extension)):
        if suffix := _COPY_SUFFIX.search(text, max(0, len(text) - _SUFFIX_CHARS)):
            yield text[: suffix.start()] + rest
