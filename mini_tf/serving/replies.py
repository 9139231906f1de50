"""Answers in OpenAI's form: completions, chunks of a stream, embeddings, errors."""

import base64
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from mini_tf.pipelines import Output

ERROR_TYPES = {404: "not_found_error", 429: "rate_limit_error", 503: "server_error", 500: "server_error"}


def error_body(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error as OpenAI's clients read it."""
    kind = ERROR_TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


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
    prompt, completion = sum(one.n_prompt for one in outputs), sum(n for one in outputs for n, _ in one.ends)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _logprobs(tokens: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    texts = [token["token"] for token in tokens]
    return {
        "tokens": texts,
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [{one["token"]: one["logprob"] for one in token["top"]} for token in tokens],
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
