"""What every request must keep to before a route answers it, and how refusals are answered.

Only requests for this host are answered, so that no page of another site reaches the model by a name that it points
here (DNS rebinding); a body must be JSON, which such a page cannot send without asking first.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, MinitfError, UsageFault

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
ERROR_TYPES = {404: "not_found_error", 429: "rate_limit_error", 500: "server_error"}
READ_SECONDS = 30.0
"""Longest time in which a body must have arrived."""


@dataclass(frozen=True)
class ServerLimits:
    """What a server allows: seconds and bytes of a request, new tokens of a text, rows of a batch, waiting requests."""

    seconds: float = 60.0
    body_bytes: int = 1 << 20
    new_tokens: int = 1024
    rows: int = 32
    waiting: int = 256


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] = HEADERS) -> Response:
    """An answer in ASCII, whatever a text holds."""
    return Response(json.dumps(content), status, headers, "application/json")


class Refusal(Exception):
    """An answer other than 200. code: OpenAI's word for it."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        self.status, self.message, self.code = status, message, code

    @property
    def body(self) -> dict[str, Any]:
        """The error as OpenAI's clients read it."""
        kind = ERROR_TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": None, "code": self.code}}

    def response(self) -> Response:
        headers = HEADERS | ({"retry-after": "1"} if self.status == 429 else {})
        return json_response(self.body, self.status, headers)


class RequestGuard:
    """hosts: names of this host, without ports. model: the one name of a model. report: called with each bug."""

    def __init__(self, hosts: frozenset[str], model: str, body_bytes: int, report: Callable[[Exception], None]) -> None:
        self.hosts, self.model, self.body_bytes, self.report = hosts, model, body_bytes, report

    async def not_found(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return Refusal(error.status_code, f"{request.method} {request.url.path}: {error.detail}").response()

    def guarded(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            try:
                self._check_host(request)
                return await answer(request)
            except Refusal as refusal:
                return refusal.response()
            except (UsageFault, DataFault) as fault:
                return Refusal(400, "; ".join(fault.lines).removeprefix("--")).response()
            except ClientDisconnect:
                return Response(status_code=499)
            except MinitfError as error:
                return Refusal(500, "; ".join(error.lines)).response()
            except Exception as error:
                self.report(error)
                return Refusal(500, "a bug in minitf").response()

        return answered

    def _check_host(self, request: Request) -> None:
        """Refuse requests for another host, and those of pages of another site."""
        named, origin = request.headers.get("host", ""), request.headers.get("origin")
        host = named.rpartition(":")[0] if named.rpartition(":")[2].isdigit() else named
        if host.lower() not in self.hosts:
            raise Refusal(403, "the Host header names another host", "wrong_host")
        if origin is not None and origin.partition("://")[2] != named:
            raise Refusal(403, "pages of another site may not use this server", "wrong_origin")

    def posted(
        self, answer: Callable[[Request, dict[str, Any]], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def read(request: Request) -> Response:
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise Refusal(415, "Content-Type must be application/json")
            try:
                content = await asyncio.wait_for(self._content(request), READ_SECONDS)
            except asyncio.TimeoutError:
                raise Refusal(408, f"the body did not arrive within {READ_SECONDS:g} seconds") from None
            try:
                body = strict_json.read(content)
            except ValueError as error:
                raise Refusal(400, f"the body is not valid JSON: {error}") from None
            if not isinstance(body, dict):
                raise Refusal(400, "the body must be a JSON object")
            if (named := body.get("model")) not in (None, self.model):
                shown = strict_json.short(str(named))
                raise Refusal(404, f"no model {shown!r}; this server has {self.model!r}", "model_not_found")
            return await answer(request, body)

        return read

    async def _content(self, request: Request) -> bytes:
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > self.body_bytes:
                raise Refusal(413, f"the body is larger than {self.body_bytes:,} bytes")
        return bytes(content)
