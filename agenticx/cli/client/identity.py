"""The proof that a server has the token, without which a client does not send it.

After the end of a studio, any program of any user may listen on its port, and answer as the studio did.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agenticx.cli.client.http import RequestRejected, ServerEndpoint

__all__ = ["check_identity", "identity_proof"]

_MAX_ANSWER_BYTES = 1_000


async def check_identity(server: ServerEndpoint) -> None:
    """Raise `RequestRejected` unless the server proves that it has the token of the endpoint, which is not sent to it.

    Raises `ServerUnreachable`, and ValueError for an answer that is not JSON.
    """
    challenge, path = secrets.token_hex(32), "/api/identity?challenge="
    unsigned = replace(server, token=None)
    answer: Mapping[str, Any] | None = await unsigned.request_json("GET", path + challenge, max_bytes=_MAX_ANSWER_BYTES)
    proof = answer.get("proof") if isinstance(answer, Mapping) else None
    expected = identity_proof(server.token or "", f"{server.host}:{server.port}", challenge)
    if not isinstance(proof, str) or not hmac.compare_digest(proof.encode(), expected.encode()):
        where = "" if server.token_file is None else f" in {str(server.token_file)!r}"
        raise RequestRejected(
            f"what answers there does not have the token{where}: it is another program, or the file was replaced, and"
            " `agx serve --take-over` restarts the studio",
            "unauthorized",
        )


def identity_proof(token: str, host: str, challenge: str) -> str:
    """Return the answer of a server to a challenge in a request to `host`, for example `127.0.0.1:8765`."""
    return hmac.digest(token.encode(), f"agenticx {host} {challenge}".encode(), "sha256").hex()
