"""`minitf serve`: a trained model over HTTP on this machine."""

from typing import Annotated

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import open_model
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, RUN, STEP
from mini_tf.system.errors import Unavailable

HOST = typer.Option("--host", metavar="ADDRESS", help="Address to listen on; others than this machine's have no guard.")
PORT = typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0: a free one.")
NAMES = typer.Option(
    "--allow-host", metavar="NAME", help="Also answer requests for this name of the machine. Repeatable."
)
WAITING = typer.Option("--queue", metavar="N", min=1, max=100_000, help="Requests that may wait; beyond: HTTP 429.")
ROWS = typer.Option("--batch-size", metavar="N", min=1, max=4096, help="Texts decoded together.")
SECONDS = typer.Option("--timeout", metavar="SECONDS", min=0.1, max=86_400, help="Longest time of a request.")
TOKENS = typer.Option(
    "--max-new-tokens", metavar="N", min=1, max=10**6, help="Longest text that a request may ask for."
)
LOCAL = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine for itself."""


@command
def serve(
    console: Console,
    run: RUN,
    host: Annotated[str, HOST] = "127.0.0.1",
    port: Annotated[int, PORT] = 8000,
    allow_host: Annotated[list[str] | None, NAMES] = None,
    queue: Annotated[int, WAITING] = 256,
    batch_size: Annotated[int, ROWS] = 32,
    timeout: Annotated[float, SECONDS] = 60.0,
    max_new_tokens: Annotated[int, TOKENS] = 1024,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
) -> int:
    try:
        from mini_tf.serving.host_guard import ServerLimits
        from mini_tf.serving.listening import listen
        from mini_tf.serving.server import build_app
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        if package not in ("starlette", "uvicorn"):
            raise
        raise Unavailable(f"minitf serve needs the package {package}", hint="pip install 'minitf[serve]'") from None
    trained = open_model(run, step, device, average, ensembles=True)
    limits = ServerLimits(timeout, new_tokens=max_new_tokens, rows=batch_size, waiting=queue)
    if host not in LOCAL and host != "::1":
        console.warn(f"{host}: whoever reaches this address can use the model; there is no log-in")
    names = [*LOCAL, f"[{host}]" if ":" in host else host.lower(), *(name.lower() for name in allow_host or [])]

    def report(error: Exception) -> None:
        console.warn(f"a request failed by a bug in minitf: {type(error).__name__}: {error}")

    console.say(f"{trained.folder.name}: {trained.recipe.model.kind}, {trained.recipe.objective.kind}; Ctrl-C stops")
    number = listen(build_app(trained, names, limits, report), host, port, console.print_output)
    return 128 + number if number else 0
