"""What looks like a secret in a recipe: it is refused and never repeated, since recipes are copied into run folders and shared.

Keys are judged by their name, values by the shapes that well-known services give their tokens; prose and paths are left alone.
"""

import re

_NAMES = (
    *("password", "passwd", "passphrase", "pwd", "secret", "credential", "authorization", "token"),
    *("api_key", "apikey", "access_key", "secret_key", "private_key"),
)
_PLAIN = ("bos", "eos", "pad", "unk", "mask", "sep", "cls", "start", "end", "stop", "next", "special", "image", "per", "prefix")
"""What stands before `_token` where a piece of text is meant, in other tools' names."""
_SHAPES = (
    r"hf_[A-Za-z0-9]{16,}",
    r"sk-(?:[A-Za-z0-9_]{1,40}-){0,4}[A-Za-z0-9]{16,}",
    r"gh[opsur]_[A-Za-z0-9]{16,}",
    r"github_pat_[A-Za-z0-9_]{16,}",
    r"glpat-[A-Za-z0-9_-]{16,}",
    r"xox[abeprs]-[A-Za-z0-9-]{10,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{12,}",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----",
)
"""Tokens of Hugging Face, OpenAI and its like, GitHub, GitLab, Slack, AWS, Google; keys of ssh and TLS."""
_TOKEN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_SHAPES)})")
_URL = re.compile(r"://[^/\s:@'\"]{0,200}:[^/\s@'\"]{1,200}@")
REASON = "holds what looks like a secret; keep it in an environment variable, since recipes are copied and shared"


def names_secret(key: str) -> bool:
    """True for api_key, hf_token, accessToken, DB-PASSWORD; not for tokens, tokenizer or pad_token."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key[:200]).lower().replace("-", "_")
    name = name if name.endswith("tokens") else name.removesuffix("s")
    found = next((word for word in _NAMES if name == word or name.endswith(f"_{word}")), None)
    return found is not None and name.removesuffix(found).rstrip("_").rpartition("_")[2] not in _PLAIN


def holds_secret(text: str) -> bool:
    """True where the text has a token of a well-known service in it, or a URL with a password."""
    return _TOKEN.search(text) is not None or _URL.search(text) is not None


def without_secrets(argument: str) -> str:
    """A word of the command line as a message may repeat it."""
    name, equals, _ = argument.partition("=")
    if equals and names_secret(name.rpartition(".")[2].lstrip("-")):
        return f"{without_secrets(name)}=***"
    return _URL.sub("://***@", _TOKEN.sub("***", argument))
