"""What a request asks: OpenAI's parameters as options of `generate`, and its prompts, with limits."""

from collections.abc import Mapping, Sequence
from typing import Any

from mini_tf.recipe.kind_settings.pipelines import GENERATE_OPTIONS
from mini_tf.system.errors import UsageFault, suggest
from mini_tf.system.strict_json import short

NAMES = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "n": "num_samples",
    **{name: name for name in GENERATE_OPTIONS - {"num_samples", "n_best", "batch_size", "stream", "greedy"}},
}
"""Options of `generate` by the names of parameters, OpenAI's and our own."""
NEUTRAL: Mapping[str, Any] = {
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "best_of": 1,
    "echo": False,
    "logit_bias": {},
    "tools": [],
    "response_format": {"type": "text"},
}
"""Parameters that are accepted only with the value that changes nothing."""
WITHOUT_EFFECT = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
MOST_TEXTS = 64
"""Texts of a request, and texts that it is answered with."""


def check_names(body: Mapping[str, Any], *known: str) -> None:
    """UsageFault for a parameter that there is not, or that is not supported. known: those of the route."""
    for name, value in body.items():
        if name in NEUTRAL:
            if value not in (None, NEUTRAL[name]):
                raise UsageFault(f"{name}: is not supported", hint="leave it out")
        elif name not in (*known, *WITHOUT_EFFECT):
            raise UsageFault(f"{short(name)}: no such parameter", hint=suggest(name, known) or None)


def generate_options(body: Mapping[str, Any], longest: int) -> dict[str, Any]:
    """Options of `generate`, by name. longest: most new tokens. UsageFault for more."""
    options = {NAMES[name]: value for name, value in body.items() if name in NAMES and value is not None}
    if isinstance(stop := options.get("stop"), str):
        options["stop"] = (stop,)
    elif isinstance(stop, list):
        options["stop"] = tuple(stop)
    if isinstance(wanted := options.get("max_new_tokens"), int) and wanted > longest:
        raise UsageFault(f"max_tokens: must be at most {longest}, got {wanted}")
    return options


def stream_options(body: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether the answer is a stream, and whether that ends with the usage. UsageFault for values of other types."""
    stream, options = body.get("stream"), body.get("stream_options")
    if stream not in (None, False, True):
        raise UsageFault("stream: must be true or false")
    if options is not None and not isinstance(options, dict):
        raise UsageFault("stream_options: must be an object such as {include_usage: true}")
    return bool(stream), bool((options or {}).get("include_usage"))


def texts_of(body: Mapping[str, Any], name: str) -> list[str]:
    """One text or several; UsageFault for anything else, such as token ids, or too many."""
    given = body.get(name)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise UsageFault(f"{name}: must be a text or a list of texts")
    if len(texts) > MOST_TEXTS:
        raise UsageFault(f"{name}: at most {MOST_TEXTS} texts, got {len(texts)}")
    return texts


def messages_of(body: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages of a chat; their content is a text, or a list of parts of the type text. UsageFault for others."""
    given = body.get("messages")
    if not isinstance(given, list) or not given or not all(isinstance(message, dict) for message in given):
        raise UsageFault("messages: must be a list of {role, content}")
    return [{"role": message.get("role"), "content": _content(message.get("content"))} for message in given]


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: Sequence[Any] = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise UsageFault("messages: content must be a text")
    return "".join(map(str, texts))
