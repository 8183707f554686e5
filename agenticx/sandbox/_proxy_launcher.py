"""A program that opens the port of a proxy in the sandbox, passes it to the engine, and becomes a command.

    python -I -S _proxy_launcher.py SOCKET PORT PROGRAM ARGUMENT…

SOCKET is the descriptor of a Unix socket that is connected to the engine (`agenticx.sandbox.proxy`). The program opens
PORT on the sandbox's own loopback and passes the listening socket over SOCKET; the engine, outside of the sandbox,
accepts the connections. The command inherits neither socket. Exit code 126: the port could not be opened.

The module imports little, and nothing of AgenticX, because it starts once per command.
"""

from __future__ import annotations

import os
import socket
import sys


def main() -> None:
    descriptor, port, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    try:
        with (
            socket.socket(fileno=descriptor) as engine,
            socket.create_server(("127.0.0.1", port)) as listener,
        ):
            socket.send_fds(engine, [b"!"], [listener.fileno()])
    except OSError as exc:
        os.write(2, f"proxy: {exc.strerror}\n".encode())
        sys.exit(126)
    try:
        os.execv(command[0], command)
    except OSError as exc:
        os.write(2, f"{command[0]}: {exc.strerror}\n".encode())
        sys.exit(127)


if __name__ == "__main__":
    main()
