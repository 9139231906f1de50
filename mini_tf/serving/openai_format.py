"""OpenAI's form: parameters as options of `generate`; completions, streams, embeddings and errors as answers."""

import base64
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from mini_tf.pipelines import Output
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
    entry = body.get(name)
    texts = [entry] if isinstance(entry, str) else entry
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise UsageFault(f"{name}: must be a text or a list of texts")
    if len(texts) > MOST_TEXTS:
        raise UsageFault(f"{name}: at most {MOST_TEXTS} texts, got {len(texts)}")
    return texts


def messages_of(body: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages of a chat; their content is a text, or a list of parts of the type text. UsageFault for others."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise UsageFault("messages: must be a list of {role, content}")
    return [{"role": message.get("role"), "content": _content(message.get("content"))} for message in messages]


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: Sequence[Any] = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise UsageFault("messages: content must be a text")
    return "".join(map(str, texts))


@dataclass(frozen=True)
class CompletionReply:
    """The frame of the answers to one request, by its route: completions, or of chats."""

    model: str
    chat: bool
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, outputs: Sequence[Output]) -> dict[str, Any]:
        """All texts of all prompts."""
        choices = list(self._choices(outputs))
        notes = [note for output in outputs for note in output.result.get("notes", ())]
        return self._frame("", choices) | {"usage": usage(outputs)} | ({"notes": notes} if notes else {})

    def piece(self, number: int, text: str, first: bool) -> dict[str, Any]:
        """A chunk with a piece of the text of this number."""
        delta = {"role": "assistant", "content": text} if first else {"content": text}
        return self._chunk(number, {"delta": delta} if self.chat else {"text": text}, None)

    def end(self, number: int, reason: str) -> dict[str, Any]:
        """The last chunk of a text."""
        return self._chunk(number, {"delta": {}} if self.chat else {"text": ""}, reason)

    def usage_chunk(self, outputs: Sequence[Output]) -> dict[str, Any]:
        """The last chunk of a stream whose request wants it."""
        return self._frame(".chunk", []) | {"usage": usage(outputs)}

    def _chunk(self, number: int, content: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
        return self._frame(".chunk", [{"index": number, **content, "logprobs": None, "finish_reason": reason}])

    def _frame(self, suffix: str, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        of_chat, kind = ("chatcmpl", f"chat.completion{suffix}"), ("cmpl", "text_completion")
        prefix, object_ = of_chat if self.chat else kind
        id = f"{prefix}-{self.id}"
        return {"id": id, "object": object_, "created": self.created, "model": self.model, "choices": list(choices)}

    def _choices(self, outputs: Sequence[Output]) -> Iterator[dict[str, Any]]:
        number = 0
        for output in outputs:
            for sample, text in enumerate(output.result["texts"]):
                tokens = output.result["tokens"][sample] if "tokens" in output.result else None
                shown = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
                logprobs = None if tokens is None else _logprobs_of_chat(tokens) if self.chat else _logprobs(tokens)
                yield {"index": number, **shown, "logprobs": logprobs, "finish_reason": reason(output, sample)}
                number += 1


def reason(output: Output, sample: int) -> str:
    """Why a text ended."""
    return "length" if output.ends and not output.ends[sample][1] else "stop"


def usage(outputs: Sequence[Output]) -> dict[str, int]:
    prompt = sum(output.n_prompt for output in outputs)
    completion = sum(n for output in outputs for n, _ in output.ends)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _logprobs(tokens: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    texts = [token["token"] for token in tokens]
    return {
        "tokens": texts,
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [{top["token"]: top["logprob"] for top in token["top"]} for token in tokens],
        "text_offset": [sum(map(len, texts[:number])) for number in range(len(texts))],
    }


def _logprobs_of_chat(tokens: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    def shown(token: Mapping[str, Any]) -> dict[str, Any]:
        return {"token": token["token"], "logprob": token["logprob"], "bytes": list(token["token"].encode())}

    return {"content": [shown(token) | {"top_logprobs": list(map(shown, token["top"]))} for token in tokens]}


def embeddings_body(model: str, vectors: Float[np.ndarray, "N D"], n_tokens: int, as_base64: bool) -> dict[str, Any]:
    """Vectors as lists of numbers, or as base64 of float32 in little-endian order."""
    rows = [
        base64.b64encode(vector.astype("<f4").tobytes()).decode() if as_base64 else vector.tolist()
        for vector in vectors
    ]
    data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
    tokens = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return {"object": "list", "data": data, "model": model, "usage": tokens}
