"""Listens on a port and answers until SIGINT or SIGTERM: uvicorn, with a clean end."""

import errno
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from mini_tf.system.errors import UsageFault

LAST_SECONDS = 5
"""Time in which open requests may end after a stop."""
CONNECTIONS = 1024
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Server(uvicorn.Server):
    """stopped: number of the signal that ended it; 0 before. A second one ends it at once."""

    stopped = 0

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._stop) for number in STOPS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.stopped, self.should_exit = number, True


def listen(app: Starlette, host: str, port: int, started: Callable[[str], None]) -> int:
    """Serve an application; returns the number of the signal that ended it.

    port: 0 for a free one. started: called with the URL once requests are answered. UsageFault if the address cannot
    be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        hint = "give another --port; 0 is a free one" if error.errno == errno.EADDRINUSE else None
        raise UsageFault(f"cannot listen on {host}, port {port}: {error.strerror}", hint=hint) from error
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=LAST_SECONDS,
        lifespan="on",
    )
    name = f"[{host}]" if family == socket.AF_INET6 else host
    url = f"http://{name}:{listener.getsockname()[1]}"
    with closing(listener):
        server = _Server(config, lambda: started(url))
        server.run(sockets=[listener])
    return server.stopped
