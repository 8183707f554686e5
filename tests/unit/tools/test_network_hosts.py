"""Tests of commands that may reach some hosts: real sandboxes, and servers of this machine's loopback."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address

import pytest

from agenticx.errors import InvalidArguments
from agenticx.sandbox.hosts import Host, is_public
from agenticx.tools.builtin import bash_exec
from tests.support.timeouts import PATIENCE, PatientClock, wait_until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is a sandbox on Linux only"),
]


class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"{self.path} of {self.headers['Host']} by {self.headers['Connection']}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def web_server() -> Iterator[int]:
    """Yield the port of a web server of this machine's loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def make(workspace, sandbox, make_runner):
    return lambda: make_runner(workspace, sandbox=sandbox)


FETCH = """python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end="")' """


@pytest.mark.promise("E4")
@pytest.mark.parametrize(
    "fetch",
    ["curl -sS ", "curl -sS --proxytunnel ", FETCH],
    ids=["curl", "a tunnel", "Python"],
)
async def test_a_command_reaches_the_hosts_of_its_call_and_no_other_one(make, fetch) -> None:
    with web_server() as named, web_server() as other:
        network = [f"127.0.0.1:{named}", f"localhost:{named}"]
        result = await make().call(bash_exec, command=f"{fetch} http://localhost:{named}/a?b", network=network)
        how = "None" if "tunnel" in fetch else "close"
        assert result == f"/a?b of localhost:{named} by {how}\n[exit code 0]"
        result = await make().call(bash_exec, command=f"{fetch} http://127.0.0.1:{other}/", network=network)
        assert result.splitlines()[-1] == (
            f"[The sandbox refused a connection to 127.0.0.1:{other}: the call names 127.0.0.1:{named},"
            f" localhost:{named} only; a call that needs it names it too.]"
        )
        assert " of 127.0.0.1" not in result


async def test_a_command_has_no_way_past_the_proxy(make) -> None:
    with web_server() as port:
        command = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"
        assert await make().call(bash_exec, command=command, network=True) == "connected\n[exit code 0]"
        result = await make().call(bash_exec, command=command, network=[f"127.0.0.1:{port}"])
        assert "connected" not in result
        assert result.splitlines()[-1] == (
            "[The sandbox reaches the hosts of the call only through the proxy that HTTP_PROXY and HTTPS_PROXY name; a"
            " program that uses no proxy is called with network=true, which asks the user.]"
        )
        listing = await make().call(bash_exec, command="ls /proc/self/fd | wc -l", network=[f"127.0.0.1:{port}"])
        assert listing == await make().call(bash_exec, command="ls /proc/self/fd | wc -l")  # it inherits no socket


async def test_a_name_that_stands_for_this_machine_is_refused(make) -> None:
    """Rebinding: a name of the call that somebody points at an address of this machine or its networks."""
    name = socket.gethostname()
    if is_public(ip_address(socket.gethostbyname(name))):
        pytest.skip("the name of this machine stands for a public address")
    with web_server() as port:
        result = await make().call(bash_exec, command=f"curl -sS http://{name}:{port}/", network=[f"{name}:{port}"])
    assert f"[The sandbox refused a connection to {name.lower()}:{port}: its address " in result
    assert result.endswith(" is not a public one; a call that needs it names the address too.]")


async def test_the_proxy_works_where_the_sandbox_hides_python(make, monkeypatch) -> None:
    monkeypatch.setenv("HOME", os.path.dirname(os.__file__))
    python = os.path.realpath(sys.executable)
    assert "[exit code 0]" not in await make().call(bash_exec, command=f"{python} -S -c 'import socket'")
    with web_server() as port:
        command, network = f"curl -sS http://127.0.0.1:{port}/", [f"127.0.0.1:{port}"]
        result = await make().call(bash_exec, command=command, network=network)
    assert result == f"/ of 127.0.0.1:{port} by close\n[exit code 0]"


@pytest.mark.parametrize(
    ("answer", "result"), [("200 OK", "far away\n0\n[exit code 0]"), ("407 No", "(HTTPS_PROXY) answers 407.]")]
)
async def test_hosts_are_reached_through_the_proxy_of_the_user(make, monkeypatch, answer, result) -> None:
    asked = list[bytes]()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 {answer}\r\n\r\n".encode())
        if answer.startswith("2"):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfar away\n")
        writer.close()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%40ss@127.0.0.1:{port}")
        command = "curl -sS --proxytunnel http://far.example:443/; env | grep -c p%40ss; true"
        assert (await make().call(bash_exec, command=command, network=["far.example"])).endswith(result)
    credentials = b"Proxy-Authorization: Basic bWU6cEBzcw=="
    assert asked == [b"CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n" + credentials + b"\r\n\r\n"]


@pytest.mark.ci_lane
async def test_servers_of_the_sandbox_itself_are_reached_without_the_proxy(make) -> None:
    server = "import http.server as h; h.HTTPServer(('127.0.0.1', 8000), h.SimpleHTTPRequestHandler).handle_request()"
    command = f'python3 -c "{server}" 2>/dev/null & curl -sS --retry-connrefused --retry 20 http://localhost:8000/'
    assert "Directory listing for /" in await make().call(bash_exec, command=command, network=["pypi.org"])


FLOOD = """
import os, socket
def ask(text):
    with socket.create_connection(("127.0.0.1", 3128)) as connection:
        connection.sendall(text)
        return connection.makefile("rb").readline().split()[1].decode()
print({ask(b"CONNECT host%d.example:443 HTTP/1.1\\r\\n\\r\\n" % number) for number in range(1000)})
hosts = b"x 127.1:443 2130706433:443 *.org:443 pypi.org:443@evil.test:443 x\\0y:443".split(b" ")
odd = [b"CONNECT " + host for host in hosts]
odd += [b"GET /", b"GET http://pypi.org@evil.test/", b"GET https://pypi.org/", b"CONNECT  pypi.org:443"]
print({ask(line + b" HTTP/1.1\\r\\n\\r\\n") for line in odd})
other = [b"CONNECT pypi.org:22", b"CONNECT sub.pypi.org:443", b"CONNECT [::1]:443", b"GET http://evil.test/pypi.org"]
print({ask(line + b" HTTP/1.1\\r\\nHost: pypi.org\\r\\n\\r\\n") for line in other})
try:
    print(ask(b"CONNECT a:443 HTTP/1.1\\r\\nX: " + b"y" * 200_000 + b"\\r\\n\\r\\n"))
except OSError:  # closed before all of it was read
    print("closed")
held = [socket.create_connection(("127.0.0.1", 3128)) for _ in range(64)]
print(ask(b"CONNECT a:443 HTTP/1.1\\r\\n\\r\\n"))
"""


@pytest.mark.ci_lane
async def test_many_and_odd_requests_are_refused_in_bounded_room(make) -> None:
    runner = make()
    (runner.workspace / "flood.py").write_text(FLOOD)
    before = len(os.listdir("/proc/self/fd"))
    result = await runner.call(bash_exec, command="python3 flood.py", network=["pypi.org"])
    lines = result.splitlines()
    assert lines[:3] == ["{'403'}", "{'400'}", "{'403'}"]
    assert lines[3] in ("431", "closed")
    assert lines[4:6] == ["503", "[exit code 0]"]
    assert len(lines) == 6 + 10 + 1
    assert lines[-1] == "[994 more connections to other hosts failed.]"
    assert len(os.listdir("/proc/self/fd")) == before


async def test_connections_end_with_the_command(make, caplog: pytest.LogCaptureFixture) -> None:
    runner, closed = make(), asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"held\n")
        await reader.read()
        closed.set()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        network = [f"127.0.0.1:{port}"]
        command = f"curl -sS -N --proxytunnel --http0.9 http://127.0.0.1:{port}/ > got"
        call = asyncio.ensure_future(runner.call(bash_exec, command=command, network=network))
        await wait_until(lambda: (runner.workspace / "got").exists() and (runner.workspace / "got").read_text())
        call.cancel()
        assert (await call).splitlines()[-1] == "[ended before it was done]"
        await asyncio.wait_for(closed.wait(), PATIENCE)
    await asyncio.gather(*runner.background_tasks)
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_a_connection_without_bytes_is_closed_after_a_while(make) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        runner = make()
        runner.context = replace(runner.context, clock=PatientClock({300.0: 0.5}))  # without a byte
        command = f"curl -sS --proxytunnel http://127.0.0.1:{port}/"
        result = await runner.call(bash_exec, command=command, network=[f"127.0.0.1:{port}"])
    assert "Empty reply from server" in result


def test_hosts_that_cannot_be_enforced_are_asked_about_as_all_of_the_network(each_world) -> None:
    assessment = each_world.assess(bash_exec, command="pip install x", network=["PyPI.org", "localhost:81", "pypi.org"])
    text = " ".join(assessment.reasons)
    enforced = assessment.sandboxed == "bubblewrap"
    assert ("reaches these hosts only: pypi.org, localhost:81. " in text) == enforced
    assert ("It can use servers of this machine or its network: localhost:81." in text) == enforced
    assert ("The hosts that the call names (pypi.org, localhost:81) cannot be enforced here" in text) != enforced
    hosts = (Host("pypi.org"), Host("localhost", 81))
    assert assessment.shell.network == {"bubblewrap": hosts, "landlock": True, False: False}[assessment.sandboxed]
    assert (assessment.contained, assessment.sends) == (False, enforced)


@pytest.mark.parametrize(
    "host",
    ["https://pypi.org", "*", "*.org", "pypi.org/x", "a b", "pypi.org:0", "127.1", "0x7f000001", "ｐypi.org", ""],
)
async def test_a_wrong_host_is_refused_with_what_would_be_right(runner, host) -> None:
    with pytest.raises(InvalidArguments, match="is no host; give one without scheme and path"):
        runner.assess(bash_exec, command="true", network=[host])
    with pytest.raises(InvalidArguments, match="at most 20"):
        await runner.call(bash_exec, command="true", network=[f"host{number}.example" for number in range(21)])


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("151.101.0.223", True),
        ("2606:4700::1111", True),
        *((address, False) for address in (
            "127.0.0.1", "0.0.0.0", "10.1.2.3", "169.254.169.254", "100.100.100.200", "168.63.129.16", "224.0.0.1",
            "::1", "::", "fe80::1", "fd00:ec2::254", "fec0::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:a00:1::",
        )),
    ],
)  # fmt: skip
def test_only_addresses_of_the_internet_are_public(address, public) -> None:
    assert is_public(ip_address(address)) == public
