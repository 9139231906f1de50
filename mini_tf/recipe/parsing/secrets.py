"""Detect secrets in recipes. They are refused and never printed, since recipes are copied into run folders and shared.

Keys are matched by name, values by the token formats of well-known services; prose and paths are not matched.
"""

import re

_NAMES = {
    *("password", "passwd", "passphrase", "pwd", "secret", "credential", "authorization", "bearer"),
    *("apikey", "hftoken", "apitoken", "authtoken", "accesstoken"),
}
"""Alone, or after another word: db_password."""
_SECRET_OWNERS = {
    *("access", "api", "auth", "oauth", "bearer", "refresh", "session", "secret", "private", "security", "login", "hub", "ssh"),
    *("hf", "huggingface", "openai", "anthropic", "wandb", "github", "gh", "gitlab", "slack", "aws"),
}
"""Words before "token" or "key" that make it a secret; most tokens in recipes are pieces of text."""
_FORMATS = (
    r"hf_[A-Za-z0-9]{30,}",
    r"sk-(?:proj|svcacct|admin|ant|or-v1)-[A-Za-z0-9_-]{16,}",
    r"sk-[0-9a-f]{32,}",
    r"sk-(?=[A-Za-z]*[0-9])(?=[A-Z0-9]*[a-z])(?=[a-z0-9]*[A-Z])[A-Za-z0-9]{20,}",
    r"gh[opsur]_[A-Za-z0-9]{16,}",
    r"github_pat_[A-Za-z0-9_]{16,}",
    r"glpat-[A-Za-z0-9_-]{16,}",
    r"xox[abeprs]-[A-Za-z0-9-]{10,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{12,}",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----",
)
"""Tokens of Hugging Face, OpenAI and similar services, GitHub, GitLab, Slack, AWS, Google; keys of ssh and TLS."""
_TOKEN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_FORMATS)})")
_PATH = re.compile(r"\s*(?:-|[a-z.]*\b(?:train|val|path)\s*[:=])\s*['\"]?[^\s:'\"#/]*/(?:[^#]|(?<!\s)#)*")
"""A line of a recipe, or an override, with file names, which may look like tokens."""
_URL = re.compile(r"://[^/\s:@'\"]{0,200}:[^/\s@'\"]{1,200}@")
REASON = "contains what looks like a secret; keep it in an environment variable, since recipes are copied and shared"


def names_secret(key: str) -> bool:
    """True for api_key, hf_token, accessToken, DB-PASSWORD; not for tokens, tokenizer, pad_token or d_key."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key[:200]).lower().replace("-", "_").strip("_")
    *before, last = (name if name.endswith("tokens") else name.removesuffix("s")).split("_")
    owner = before[-1] if before else ""
    return last in _NAMES or (last in ("token", "key") and owner in _SECRET_OWNERS) or (last == "token" and not owner)


def holds_secret(text: str) -> bool:
    """True for a line with a token of a well-known service and no file name, or with a password in a URL."""
    return _URL.search(text) is not None or (_TOKEN.search(text) is not None and _PATH.fullmatch(text) is None)


def without_secrets(argument: str) -> str:
    """A command-line argument with secrets replaced by ***, for messages."""
    name, equals, _ = argument.partition("=")
    if equals and names_secret(name.rpartition(".")[2].lstrip("-")):
        return f"{without_secrets(name)}=***"
    return _URL.sub("://***@", _TOKEN.sub("***", argument))
