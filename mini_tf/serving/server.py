"""The routes of `minitf serve`: what each asks of the model, and its answer.

Nothing is read from files but the page, and nothing is written.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from mini_tf.pipelines._commands import generate_settings, open_generator
from mini_tf.recipe.text_input import refuse_non_utf8
from mini_tf.serving.batcher import Asked, Batcher, Cancelled, Job, QueueFull, ServedModel
from mini_tf.serving.host_guard import HEADERS, Refusal, RequestGuard, ServerLimits, json_response
from mini_tf.serving.openai_format import (
    NAMES,
    CompletionReply,
    check_names,
    embeddings_body,
    generate_options,
    messages_of,
    reason,
    stream_options,
    texts_of,
)
from mini_tf.system.errors import MinitfError, UsageFault
from mini_tf.trained.opening import Trained

PAGE = Path(__file__).with_name("page.html")
POLL = 0.25
"""Seconds between two looks whether a client is still there."""


def build_app(
    trained: Trained,
    hosts: Sequence[str],
    limits: ServerLimits = ServerLimits(),
    report: Callable[[Exception], None] = lambda error: None,
) -> Starlette:
    """The application. hosts: names of this host, without ports. report: called with each bug."""
    return Routes(ServedModel(trained), frozenset(hosts), limits, report).app()


class Routes:
    """What each route answers."""

    def __init__(
        self, model: ServedModel, hosts: frozenset[str], limits: ServerLimits, report: Callable[[Exception], None]
    ) -> None:
        self.model, self.limits, self.report = model, limits, report
        self.guard = RequestGuard(hosts, model.name, limits.body_bytes, report)

    def app(self) -> Starlette:
        posts = {
            "/v1/completions": self.completions,
            "/v1/chat/completions": self.chat,
            "/v1/embeddings": self.embeddings,
            "/predict": self.predict,
        }
        gets = {"/": self.page, "/v1/models": self.models, "/v1/models/{model}": self.models}
        return Starlette(
            routes=[
                *(Route(path, self.guard.guarded(answer), methods=["GET"]) for path, answer in gets.items()),
                *(
                    Route(path, self.guard.guarded(self.guard.posted(answer)), methods=["POST"])
                    for path, answer in posts.items()
                ),
            ],
            exception_handlers={HTTPException: self.guard.not_found},
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.batcher = Batcher(self.model.compute, self.limits.rows, self.limits.waiting, self.report)
        try:
            yield
        finally:
            self.batcher.close()

    async def page(self, request: Request) -> Response:
        return HTMLResponse(PAGE.read_text(encoding="utf-8"), headers=HEADERS)

    async def models(self, request: Request) -> Response:
        settings = self.model.settings
        task = None if settings is None else "chat" if self.model.chats else settings.COMMAND
        entry = {"id": self.model.name, "object": "model", "created": 0, "owned_by": "minitf", "task": task}
        if "model" not in request.path_params:
            return json_response({"object": "list", "data": [entry]})
        if request.path_params["model"] != self.model.name:
            raise Refusal(404, f"no such model; this server has {self.model.name!r}", "model_not_found")
        return json_response(entry)

    async def completions(self, request: Request, body: dict[str, Any]) -> Response:
        self._check_served(lambda: generate_settings(self.model.trained))
        check_names(body, *NAMES, "model", "prompt", "stream", "stream_options")
        return await self._generate(request, body, texts_of(body, "prompt"), chat=False)

    async def chat(self, request: Request, body: dict[str, Any]) -> Response:
        if not self.model.chats:
            raise Refusal(404, f"{self.model.name} has no chats; use /v1/completions")
        check_names(body, *NAMES, "model", "messages", "stream", "stream_options", "top_logprobs")
        prompt = json.dumps({"messages": messages_of(body)})
        wanted = body.pop("logprobs", None) or None
        top = body.pop("top_logprobs", None)
        if wanted is not None:
            body["logprobs"] = top or 0
        return await self._generate(request, body, [prompt], chat=True)

    async def _generate(self, request: Request, body: Mapping[str, Any], prompts: list[str], chat: bool) -> Response:
        refuse_non_utf8(prompts, "the prompt")
        options, (streams, with_usage) = generate_options(body, self.limits.new_tokens), stream_options(body)
        samples = options.get("num_samples", 1)
        open_generator(self.model.trained, options)  # refuses what is out of range, or not supported by the model
        if "max_new_tokens" not in options:
            default = self.model.trained.recipe.generate.max_new_tokens
            options |= {"max_new_tokens": self.limits.new_tokens} if default > self.limits.new_tokens else {}
        if len(prompts) * samples > self.limits.rows:
            raise UsageFault(f"at most {self.limits.rows} texts in one request, got {len(prompts) * samples}")
        if streams and "logprobs" in options:
            raise UsageFault("logprobs: not in a stream", hint="leave one of logprobs and stream out")
        alone = frozenset(prompts) if self.model.is_random(options) else frozenset()
        asked, answer = Asked("generate", tuple(sorted(options.items()))), CompletionReply(self.model.name, chat)
        if not streams:
            outputs = await self._computed(request, asked, prompts, len(prompts) * samples, alone)
            return json_response(answer.whole(outputs))
        return await self._stream(asked, prompts, samples, alone, answer, with_usage)

    async def embeddings(self, request: Request, body: dict[str, Any]) -> Response:
        self._check_served(lambda: self.model.embedder)
        check_names(body, "model", "input", "encoding_format")
        texts, form = texts_of(body, "input"), body.get("encoding_format") or "float"
        if form not in ("float", "base64"):
            raise UsageFault("encoding_format: must be float or base64")
        refuse_non_utf8(texts)
        vectors = await self._computed(request, Asked("embed"), texts, len(texts))
        n_tokens = sum(len(ids) for ids in self.model.trained.tokenizer.encode_batch(texts))
        return json_response(embeddings_body(self.model.name, np.stack(vectors), n_tokens, form == "base64"))

    async def predict(self, request: Request, body: dict[str, Any]) -> Response:
        self._check_served(lambda: self.model.predictor)
        check_names(body, "model", "texts")
        texts = texts_of(body, "texts")
        refuse_non_utf8(texts)
        role = self.model.reader.roles[0]
        examples = [
            self.model.reader.line(text if not text.lstrip().startswith("{") else json.dumps({role: text}), f"text {n}")
            for n, text in enumerate(texts, 1)
        ]
        predictions = await self._computed(request, Asked("predict"), examples, len(examples))
        return json_response({"model": self.model.name, "predictions": list(predictions)})

    def _check_served(self, check: Callable[[], object]) -> None:
        try:
            check()
        except UsageFault as fault:
            raise Refusal(404, "; ".join(fault.lines)) from None

    def _submit(self, job: Job) -> None:
        job.deadline = monotonic() + self.limits.seconds
        try:
            self.batcher.submit(job)
        except QueueFull:
            raise Refusal(429, f"{self.limits.waiting} requests wait; try again later", "queue_full") from None

    async def _computed(
        self, request: Request, asked: Asked, items: Sequence[Any], size: int, alone: frozenset[str] = frozenset()
    ) -> Sequence[Any]:
        """The results of the items, once a batch has them."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()

        def finish(outcome: Sequence[Any] | Exception) -> None:
            if not result.done():
                result.set_result(outcome)

        job = Job(asked, items, lambda outcome: loop.call_soon_threadsafe(finish, outcome), size, alone=alone)
        self._submit(job)
        try:
            while not result.done():
                await asyncio.wait([result], timeout=POLL)
                if not result.done() and await request.is_disconnected():
                    raise ClientDisconnect
                if not result.done() and job.over:
                    break
            outcome: Sequence[Any] | Exception = result.result() if result.done() else Cancelled()
        finally:
            job.cancel()
        if isinstance(outcome, Exception):
            raise self._refusal(outcome) if isinstance(outcome, Cancelled) else outcome
        return outcome

    def _refusal(self, error: Exception) -> Refusal:
        """The answer to a job that ended with this error."""
        if isinstance(error, Cancelled):
            return Refusal(504, f"not done within {self.limits.seconds:g} seconds", "timeout")
        return Refusal(500, "; ".join(error.lines) if isinstance(error, MinitfError) else str(error))

    async def _stream(
        self,
        asked: Asked,
        prompts: Sequence[str],
        samples: int,
        alone: frozenset[str],
        answer: CompletionReply,
        with_usage: bool,
    ) -> Response:
        """Server-sent events. A refusal before the first piece is the answer itself."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Any]()
        tell = lambda event: loop.call_soon_threadsafe(events.put_nowait, event)  # noqa: E731
        job = Job(asked, prompts, tell, len(prompts) * samples, lambda number, piece: tell((number, piece)), alone)
        self._submit(job)
        try:
            first = await asyncio.wait_for(events.get(), self.limits.seconds)
        except asyncio.TimeoutError:
            job.cancel()
            first = Cancelled()
        if isinstance(first, Exception):
            raise self._refusal(first) if isinstance(first, Cancelled) else first

        async def chunks() -> AsyncIterator[str]:
            event, begun = first, set[int]()
            try:
                while isinstance(event, tuple):
                    number, piece = event
                    yield _event(answer.piece(number, piece, number not in begun))
                    begun.add(number)
                    event = await events.get()
                if isinstance(event, Exception):
                    yield _event(self._refusal(event).body)
                    return
                for n, output in enumerate(event):
                    for sample, text in enumerate(output.result["texts"]):
                        number = n * samples + sample
                        if number not in begun:  # of a model that does not generate token by token
                            yield _event(answer.piece(number, text, True))
                        yield _event(answer.end(number, reason(output, sample)))
                if with_usage:
                    yield _event(answer.usage_chunk(event))
                yield "data: [DONE]\n\n"
            finally:
                job.cancel()

        return StreamingResponse(chunks(), media_type="text/event-stream", headers=HEADERS)


def _event(content: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"
