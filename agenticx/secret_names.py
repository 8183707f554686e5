"""Detection of environment variables and files that hold secrets, by their names and values."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = [
    "is_real_key",
    "is_secret_file",
    "is_secret_folder",
    "is_secret_name",
    "is_secret_value",
    "is_secret_variable",
]

# --- variables --------------------------------------------------------------------------------------------------------

# Words of a name, between underscores or where its case changes.
_SECRET_WORDS = """
    AUTH BEARER CONN CONNECTION CONNECTIONS CONNSTR COOKIE COOKIES CRED CREDS DSN HMAC JWT KEY KEYS OAUTH OTP PASS PAT
    PATS PIN PRIVATE PW PWD SALT SAS TOTP
"""
# Secret in any position of a name; `TOKEN(?!I[SZ])` leaves out TOKENIZERS_PARALLELISM.
_UNAMBIGUOUS_PARTS = re.compile(
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
_SECRET_VALUE = re.compile(
    r"""
      \b(?:sk|rk|pk)[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{16}
    | \b(?:gh[pousr]_|github_pat_|glpat-|npm_|hf_|pypi-|xox[a-z]-|SG\.)[A-Za-z0-9_.-]{16}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bAIza[A-Za-z0-9_-]{30}
    | \beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | ://[^\s/@:]*:[^\s/@]+@
    | ://hooks\.slack\.com/services/ | ://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/
    | (?:^|[\s;,&?"'{])(?:[\w-]*(?:password|passwd|pwd|secret|token|api_?key|accountkey|accesskey|private_key|auth))
      ["']?\s*[:=]\s*["']?[^\s"';,]{4}
    | (?:^|[\s"'])(?:Bearer|Basic)\s+[A-Za-z0-9+/=._-]{8}
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MAX_SEARCHED_CHARS = 65_536


def is_secret_value(value: str) -> bool:
    """Return whether a value looks like a key or contains one: in a URL, in a connection string, in JSON."""
    return _SECRET_VALUE.search(value[:_MAX_SEARCHED_CHARS]) is not None


_PLACEHOLDER = re.compile(r"(?=.{1,20}$)(?:[A-Z]?[a-z]+(?:[-_][a-z]+)*|[A-Z]+(?:[-_][A-Z]+)*)")


def is_real_key(key: str) -> bool:
    """Return whether a key is more than a placeholder, such as `x`, `ollama`, `lm-studio` or `not-needed`.

    Placeholders are set for servers that need no key.
    """
    return len(key) >= 8 and not _PLACEHOLDER.fullmatch(key)


# Variables whose names end like this hold only secrets. The value of another may be an ordinary word, which is not to
# be redacted wherever it occurs.
_UNAMBIGUOUS_NAME = re.compile(
    r"(?:(?:^|_)(?:KEY|TOKEN|PASS|PAT)|_PWD|API_?KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE
)
_API_KEY = re.compile(r"API_?KEY$", re.IGNORECASE)
_HARMLESS_VALUE = re.compile(r"[A-Za-z ]*|[\d.:,]*|[~.]*/.*")


@lru_cache(maxsize=1024)
def is_secret_variable(name: str, value: str) -> bool:
    """Return whether the value of a variable of that name is a secret, which must not be shown."""
    if _API_KEY.search(name):
        return is_real_key(value)
    return bool(_UNAMBIGUOUS_NAME.search(name)) or (is_secret_name(name) and not _HARMLESS_VALUE.fullmatch(value))


# --- files ------------------------------------------------------------------------------------------------------------

_SECRET_FILE = re.compile(
    r"""
      \.env(?:rc|\..+)? | .+\.env
    | [._]netrc | \.(?:npmrc|yarnrc|yarnrc\.yml|pypirc|pgpass|my\.cnf|htpasswd|dockercfg|git-credentials)
    | \.(?:vault-token|s3cfg|boto)
    | id_(?:rsa|dsa|ecdsa|ed25519)[^.]*(?:\.(?!pub$).*)?
    | .+\.(?:pem|key|p12|pfx|p8|jks|keystore|kdbx?|ppk|tfvars|tfstate|ovpn)
    | \.?(?:.+[._-])?(?:credentials?|secrets?)(?:\.(?:json|ya?ml|toml|ini|txt|csv|xml|cfg|conf|properties|db))?
    | (?:.+[._-])?(?:client[_-]secret|service[_-]?account)[^/]*\.json
    | kubeconfig
    """,
    re.VERBOSE,
)
_EXAMPLE_SUFFIXES = (".example", ".sample", ".template", ".dist", ".tmpl")
_SECRET_FOLDERS = frozenset({".aws", ".azure", ".docker", ".gcloud", ".gnupg", ".kube", ".password-store", ".ssh"})


def is_secret_file(*parts: str) -> bool:
    """Return whether the file at a path of these parts usually holds keys or passwords."""
    folded = [part.casefold() for part in parts]
    if not folded or folded[-1].endswith(_EXAMPLE_SUFFIXES):
        return False
    return _SECRET_FILE.fullmatch(folded[-1]) is not None or any(map(is_secret_folder, folded[:-1]))


def is_secret_folder(name: str) -> bool:
    """Return whether all files below a folder of that name count as secret."""
    return name.casefold() in _SECRET_FOLDERS
