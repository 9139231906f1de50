"""Runs shell scripts whose `minitf`, and `python -c`, is a fork of this process: a real shell with its pipes, and torch
imported once.

Importing torch takes two seconds a command; a fork takes a few milliseconds. The shell starts a small client that hands
its arguments, working directory, environment and standard streams over a socket; the fork runs the command on those
streams.
"""

import ast
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path

from hang import ending
from warm import warm

from mini_tf.cli import app

CLIENT = """
import _socket, os, sys  # which Python starts with or loads at once: json and socket take longer than the rest
server = _socket.socket(_socket.AF_UNIX)
server.connect({address!r})
call = repr((sys.argv[1:], os.getcwd(), dict(os.environ))).encode()
streams = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in (0, 1, 2))
server.sendmsg([len(call).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(call)
for descriptor in (0, 1, 2):
    os.close(descriptor)
os._exit(int(server.recv(8) or 99))
"""


def run(script: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a script of bash, which stops at its first failure, in `folder`; what it printed and its exit code."""
    warm()
    # Not in TMPDIR, which may be too long for the address of a socket.
    with tempfile.TemporaryDirectory(dir="/tmp") as place, socket.socket(socket.AF_UNIX) as server, ending():
        server.bind(f"{place}/socket")
        server.listen()
        Path(place, "client.py").write_text(CLIENT.format(address=f"{place}/socket"))
        client = f"exec '{sys.executable}' -ISE '{place}/client.py'"
        other = f'case $1 in -|-c) {client} python "$@" ;; *) exec \'{sys.executable}\' "$@" ;; esac'
        for name, line in (("minitf", f'{client} minitf "$@"'), ("python", other)):
            Path(place, name).write_text(f"#!/bin/sh\n{line}\n")
            Path(place, name).chmod(0o700)
        environment = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
        command, children = ["bash", "-euo", "pipefail", "-c", script], list[int]()
        with open(f"{place}/out", "w+") as out, open(f"{place}/err", "w+") as err:
            shell = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
            try:
                while shell.poll() is None:
                    if select.select([server], [], [], 0.02)[0]:
                        children.append(_serve(server))
            finally:
                for pid in children if shell.poll() is None else ():
                    os.kill(pid, signal.SIGKILL)
                shell.kill()
                for pid in children:
                    os.waitpid(pid, 0)
            out.seek(0), err.seek(0)
            return subprocess.CompletedProcess(command, shell.returncode, out.read(), err.read())


def _serve(server: socket.socket) -> int:
    """Fork for one command; the fork's pid."""
    connection, _ = server.accept()
    with connection:
        pid = os.fork()
        if pid == 0:
            _answer(connection)
        return pid


def _answer(connection: socket.socket) -> None:
    """Run the command, or the program of Python, that a client sent, on its streams, and send the exit code."""
    code = 99
    try:
        length, streams, _, _ = socket.recv_fds(connection, 8, 3)
        with connection.makefile("rb") as sent:
            arguments, folder, environment = ast.literal_eval(sent.read(int.from_bytes(length, "big")).decode())
        for descriptor, stream in enumerate(streams):
            os.dup2(stream, descriptor)
            os.close(stream)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin, sys.stdout, sys.stderr = (open(n, mode, closefd=False) for n, mode in ((0, "r"), (1, "w"), (2, "w")))  # noqa: SIM115
        sys.argv = arguments
        if arguments[0] == "python":
            program = arguments[2] if arguments[1] == "-c" else sys.stdin.read()
            exec(compile(program, arguments[1], "exec"), {"__name__": "__main__"})
            code = 0
        else:
            app.main()
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        for last in (sys.stdout.flush, sys.stderr.flush, lambda: connection.sendall(str(code).encode())):
            with suppress(OSError):  # of a reader, or of a client, that has left
                last()
        os._exit(code)
