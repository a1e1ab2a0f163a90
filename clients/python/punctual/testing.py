"""A server in memory for tests::

    with punctual.testing.server() as client:
        client.push("order.close", "A-17")
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import Iterator, Sequence

from .client import Client


@contextlib.contextmanager
def server(binary: str = "", *, store: str = "mem:", args: Sequence[str] = ()) -> Iterator[Client]:
    """Starts ``punctual serve`` on a free port, and yields a client of it.

    :param binary: the program; PUNCTUAL_BINARY or "punctual" in the PATH unless it is given
    :param store: in memory unless another one is named, such as a directory
    """
    program = binary or os.environ.get("PUNCTUAL_BINARY") or "punctual"
    try:
        process = subprocess.Popen([program, "serve", "--store", store, "--listen", "127.0.0.1:0", *args], stdout=subprocess.PIPE, text=True)
    except FileNotFoundError as e:
        raise FileNotFoundError(f"{program}: there is no such program: install punctual, or name it in PUNCTUAL_BINARY") from e
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if " on " not in line:
            raise RuntimeError(f"{program} serve did not start: {line!r}")
        with Client(line.rsplit(" on ", 1)[1].strip()) as client:
            yield client
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
