"""Sends requests: several servers, lost answers, tokens, TLS, unix sockets.

A request goes to one server after another until one of them answers, each time with the same key,
so that a server which has carried out an earlier copy answers as before. The difficulty is a server
that was started anew: it has forgotten the answers, so it cannot tell whether an earlier copy was
carried out (``_Sending.unsure``).
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import ssl
import threading
from collections import deque
from typing import Any, Deque, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, cast
from urllib.parse import quote, urlencode, urlsplit

from ._errors import PunctualError, error_of
from ._values import millis_of, millis_text, monotonic, seconds_of
from ._wire import ClosedError, IndeterminateError, InvalidError, UnreachableError, UnsupportedError

READING, ONCE, KEYED, ANEW = "reading", "once", "keyed", "anew"
"""Whether a request may be sent a second time: always; not when a copy may have arrived; to a
server that knows its key; also to a server that does not."""

LONG_AGO = "1970-01-01T00:00:00.001Z"
FIRST_PAUSE, LAST_PAUSE = 0.005, 0.5


class Unsent(Exception):
    """This copy was certainly not carried out."""


class Lost(Exception):
    """This copy may have been carried out."""


class Answer(NamedTuple):
    status: int
    body: Any
    doubt: bool
    """An earlier copy may have been carried out by a server that has forgotten it since."""


class Abort:
    """Ends a call from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Optional[http.client.HTTPConnection] = None
        self.ended = threading.Event()

    def end(self) -> None:
        with self._lock:
            self.ended.set()
            sock = self._connection.sock if self._connection else None
            if sock is not None:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the connection is gone already

    def holds(self, connection: Optional[http.client.HTTPConnection]) -> None:
        with self._lock:
            self._connection = connection


class StoreClock:
    """An upper bound of the store's clock: a lease that ends after the bound surely holds.

    When the answer to a call sent at s shows the time D, the store's clock had not passed D at s. So
    it shows at most D and the time since s, and one part in a thousand more, by which clocks differ.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at, self._latest = 0.0, float("inf")

    def latest(self, now: float) -> float:
        """The latest time in ms that the store's clock can show at a local instant."""
        with self._lock:
            return self._latest + max(0.0, now - self._at) * 1001

    def age(self) -> float:
        return monotonic() - self._at if self._latest != float("inf") else float("inf")

    def observe(self, sent: float, received: float, shown: float) -> None:
        bound, old = shown + 1 + (received - sent) * 1001, self.latest(received)
        if bound < old or old < shown:
            with self._lock:
                self._at, self._latest = received, bound

    def reset(self) -> None:
        with self._lock:
            self._latest = float("inf")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Endpoint:
    """One server, and the connections to it that are free."""

    def __init__(self, url: str, tls: Optional[ssl.SSLContext]) -> None:
        self.name, self._tls, self._path = url, tls, ""
        self._lock = threading.Lock()
        self._free: List[http.client.HTTPConnection] = []
        self._closed = False
        self.instance = ""
        """Names the memory of answers of the server, as the server said last."""
        self.repeats = 0.0
        """How long the server keeps answers, in seconds; 0 until the server was asked."""
        if url.startswith("unix:"):
            self._scheme, self._path, self.base = "unix", url[5:], ""
            if not self._path:
                raise InvalidError("URL 'unix:' names no socket: use unix:PATH")
            return
        parts = urlsplit(url)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise InvalidError("the URL of a server holds no name, password, query or fragment: use a token")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidError(f"URL {url!r}: use http://HOST:PORT, https://HOST:PORT or unix:PATH")
        self._scheme, self._host, self.base = parts.scheme, parts.hostname, parts.path.rstrip("/")
        self._port = parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def plaintext(self) -> bool:
        return self._scheme == "http" and self._host not in ("localhost", "::1") and not self._host.startswith("127.")

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._scheme == "unix":
            connection: http.client.HTTPConnection = _UnixConnection(self._path)
        elif self._scheme == "https":
            connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls)
        else:
            connection = http.client.HTTPConnection(self._host, self._port)
        connection.timeout = timeout
        try:
            connection.connect()
        except (OSError, ValueError) as e:
            connection.close()
            raise Unsent(f"{self.name}: {e}") from e
        return connection

    def exchange(
        self, method: str, path: str, headers: Mapping[str, str], body: Optional[bytes], timeout: float, abort: Optional[Abort],
    ) -> Tuple[int, Mapping[str, str], bytes]:
        """Sends one copy of a request and reads the answer."""
        while True:
            with self._lock:
                connection = self._free.pop() if self._free else None
            reused = connection is not None
            if connection is None:
                connection = self._connect(timeout)
            try:
                if abort is not None:
                    abort.holds(connection)
                    if abort.ended.is_set():
                        connection.close()
                        raise Unsent("the call was ended")
                assert connection.sock is not None
                connection.sock.settimeout(timeout)
                connection.request(method, self.base + path, body=body, headers=dict(headers))
                response = connection.getresponse()
                data = response.read()
            except (OSError, http.client.HTTPException, ValueError, AttributeError) as e:
                connection.close()
                raise Lost(f"{self.name}: {e!r}") from e
            finally:
                if abort is not None:
                    abort.holds(None)
            if response.headers.get("Punctual-Not-Begun"):
                connection.close()
                if reused:
                    continue
                raise Unsent(f"{self.name}: the server ends connections without a request on them")
            with self._lock:
                if response.will_close or self._closed:
                    connection.close()
                else:
                    self._free.append(connection)
            return response.status, {name.title(): text for name, text in response.headers.items()}, data

    def close(self) -> None:
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()


class Transport:
    """Sends requests to one of several servers of the same store."""

    def __init__(
        self, urls: Sequence[str], *, token: str = "", token_file: str = "", ca_file: str = "", tls: Optional[ssl.SSLContext] = None,
        plaintext_token: bool = False, timeout: float = 10.0, retry_for: float = 15.0, name: str = "",
    ) -> None:
        if not urls:
            raise InvalidError("no URL of a server is given")
        if token and token_file:
            raise InvalidError("both a token and a file of a token are given: give one of them")
        if tls is None and any(u.startswith("https:") for u in urls):
            tls = ssl.create_default_context(cafile=ca_file or None)
        self._endpoints = [Endpoint(u.strip(), tls) for u in urls]
        self.timeout, self.retry_for = timeout, retry_for
        self._token, self._token_file = token, token_file
        if token_file:
            self._reread_token()
        if self._token and not plaintext_token and any(e.plaintext for e in self._endpoints):
            raise InvalidError("whoever listens on the way would read the token: use https, or allow it with plaintext_token")
        self._name = name or f"{socket.gethostname()}/{os.getpid()}"
        self._sender = os.urandom(10).hex()
        self._lock = threading.Lock()
        self._requests, self._preferred = 0, 0
        self._answered: Deque[str] = deque(maxlen=256)
        self.clock = StoreClock()
        self.closed = threading.Event()

    def close(self) -> None:
        """Closes the connections. Calls that begin after that fail."""
        self.closed.set()
        for e in self._endpoints:
            e.close()

    def _reread_token(self) -> bool:
        """Reads the file of the token again and tells whether the token is another now."""
        if not self._token_file:
            return False
        try:
            with open(self._token_file, encoding="ascii") as f:
                token = f.read().strip()
        except (OSError, ValueError) as e:
            raise InvalidError(f"read the token: {e}") from e
        if not token or any(not " " < c <= "~" for c in token):
            raise InvalidError(f"file {self._token_file} holds no token of printable ASCII")
        changed, self._token = token != self._token, token
        return changed

    def new_key(self) -> str:
        with self._lock:
            self._requests += 1
            return f"{self._sender}-{self._requests:x}"

    def call(
        self, method: str, path: str, body: Any = None, *, query: Optional[Mapping[str, str]] = None, again: str = ONCE, wait: float = 0.0,
        key: str = "", not_after: str = "", abort: Optional[Abort] = None, retry_for: Optional[float] = None, timeout: Optional[float] = None,
    ) -> Answer:
        """Sends a request until a server answers, and returns the answer. A problem becomes a PunctualError."""
        if self.closed.is_set():
            raise ClosedError("the client was closed")
        if query:
            path += "?" + urlencode({k: v for k, v in query.items() if v != ""}, quote_via=quote)
        if again in (KEYED, ANEW) and not key:
            key = self.new_key()
        sending = _Sending(self, method, path, body, again, wait, key, not_after, abort)
        sending.retry_for = self.retry_for if retry_for is None else retry_for
        sending.timeout = self.timeout if timeout is None else timeout
        return sending.until_answered()


class _Sending:
    """A request and what is known of the copies that were sent of it."""

    def __init__(self, transport: Transport, method: str, path: str, body: Any, again: str, wait: float, key: str, not_after: str, abort: Optional[Abort]) -> None:
        self.t, self.method, self.path, self.again, self.wait = transport, method, path, again, wait
        self.key, self.not_after, self.abort = key, not_after, abort
        self.body = None if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        self.retry_for = self.timeout = 0.0
        self.copies = 0
        self.kept: Optional[float] = None  # until when, in ms of the store's clock, the answer to the first copy is surely kept
        self.unsure = self.doubt = False  # a copy may have been carried out; and its server has forgotten it
        self.named = self.instance = ""  # the instance that the latest copy named, and the one that the copy in doubt named
        self.strange: Set[Endpoint] = set()  # those that cannot know what became of that copy
        self.until: Optional[float] = None
        self.last: Exception = Unsent("no server was asked")

    def until_answered(self) -> Answer:
        endpoints, first, pause, rounds = self.t._endpoints, self.t._preferred, FIRST_PAUSE, 0
        while True:
            for i in range(len(endpoints)):
                at = (first + i) % len(endpoints)
                answer = self._try(endpoints[at])
                if answer is not None:
                    self.t._preferred = at
                    return answer
                if self._ended() or len(self.strange) == len(endpoints) or (rounds > 0 and self._over()):
                    raise self._give_up()
            rounds += 1
            if self._over():
                raise self._give_up()
            wake = self.abort.ended if self.abort is not None else self.t.closed
            wake.wait(pause / 2 + random.random() * pause)
            if self._ended():
                raise self._give_up()
            pause = min(2 * pause, LAST_PAUSE)

    def _ended(self) -> bool:
        return self.t.closed.is_set() or (self.abort is not None and self.abort.ended.is_set())

    def _over(self) -> bool:
        return self.until is not None and monotonic() >= self.until

    def _try(self, e: Endpoint) -> Optional[Answer]:
        """Sends a copy to one server. None says that another server may be asked."""
        for _ in range(4):
            if e in self.strange:
                return None
            try:
                return self._copy(e)
            except Lost as lost:
                self.last = lost
                if self.again != READING and not self.unsure:
                    self.unsure, self.instance = True, self.named
                if self.until is None:
                    self.until = monotonic() + self.retry_for
                if self.again == ONCE:
                    raise self._give_up() from lost
                return None
            except Unsent as unsent:
                self.last = unsent
                if self.until is None:
                    self.until = monotonic() + self.retry_for
                if not self.named or e.instance == self.named:
                    return None  # otherwise the server was started anew, and is asked again at once
        return None

    def _give_up(self) -> PunctualError:
        why = "the client was closed" if self.t.closed.is_set() else f"{self.last}"
        if self.unsure and self.again != READING:
            return IndeterminateError(why)
        return ClosedError(why) if self._ended() else UnreachableError(why)

    def _ask(self, e: Endpoint) -> None:
        """Asks a server what it is, and what the store's clock shows."""
        if e.repeats == 0:
            info = self._plain(e, "/v1")
            if info.get("service") != "punctual":
                raise InvalidError(f"{e.name} is no Punctual server: see that the URL is right")
            e.repeats = seconds_of(info.get("repeats")) or 0.0
            if not e.repeats:
                raise UnsupportedError(f"{e.name} keeps no answers of requests: it is older than this client needs")
        sent = monotonic()
        self.t.clock.observe(sent, monotonic(), millis_of(self._plain(e, "/v1/clock")["now"]))

    def _plain(self, e: Endpoint, path: str) -> Dict[str, Any]:
        status, headers, data = self._exchange(e, "GET", path, {}, None, self.timeout)
        problem = _problem(headers, data)
        if problem is not None and problem.get("code") in ("closed", "store_failed", "unreachable", "locked"):
            raise Unsent(f"{e.name}: {problem.get('detail')}")
        if problem is not None and not (problem.get("code") == "unauthenticated" and self.t._reread_token()):
            raise error_of(problem)
        if status >= 500:
            raise Unsent(f"{e.name} answered status {status}")
        if status == 200:
            e.instance = headers.get("Punctual-Instance") or ""
        else:
            raise Unsent(f"{e.name}: the token was read anew") if problem else _no_server(e, status)
        return cast(Dict[str, Any], json.loads(data))

    def _exchange(self, e: Endpoint, method: str, path: str, headers: Dict[str, str], body: Optional[bytes], timeout: float) -> Tuple[int, Mapping[str, str], bytes]:
        t = self.t
        if t._token:
            headers["Authorization"] = "Bearer " + t._token
        headers["Punctual-Consumer"] = t._name
        return e.exchange(method, path, headers, body, timeout, self.abort)

    def _copy(self, e: Endpoint) -> Answer:
        headers = self._named(e) if self.key else {}
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        self.named = e.instance
        status, got, data = self._exchange(e, self.method, self.path, headers, self.body, self.wait + self.timeout)
        problem = _problem(got, data)
        if status // 100 == 2 or problem is not None:
            e.instance = got.get("Punctual-Instance") or ""
        if status == 421 and e.instance != self.named:
            e.repeats = 0.0
            raise Unsent(f"{e.name} has been started anew and does not know what became of the request")
        if status // 100 == 2:
            if self.key and self.copies == 1:
                self.t._answered.append(self.key)
            return Answer(status, json.loads(data) if data else None, self.doubt)
        if problem is None:
            if status >= 500:  # from a proxy; the server behind it may have got the request
                raise Lost(f"{e.name} answered status {status}, which no Punctual server gives in this way")
            raise _no_server(e, status)
        return self._refused(e, problem, got)

    def _named(self, e: Endpoint) -> Dict[str, str]:
        """The headers by which servers know a copy."""
        clock = self.t.clock
        try:
            if e.repeats == 0 or clock.age() > 60:
                self._ask(e)
        except Lost as lost:  # the request itself was not sent
            raise Unsent(str(lost)) from lost
        if self.unsure and e.instance != self.instance:
            if self.again != ANEW:
                self.strange.add(e)
                raise Unsent(f"{e.name} has been started anew and does not know what became of the request")
            self.unsure, self.doubt, self.copies, self.kept = False, True, 0, None
        self.copies += 1
        now = clock.latest(monotonic())
        if self.kept is None:
            self.kept = now + e.repeats * 1000
        ahead = min(self.wait + 2 * self.timeout + max(0.0, self.retry_for), e.repeats * 0.75) * 1000
        headers = {"Punctual-Request": self.key, "Punctual-Not-After": self.not_after or millis_text(min(now + ahead, self.kept))}
        if self.copies == 1 and not self.not_after:
            headers["Punctual-Copy"] = "1"
        if e.instance:
            headers["Punctual-Instance"] = e.instance
        answered: List[str] = []
        while len(answered) < 64:
            try:
                answered.append(self.t._answered.popleft())
            except IndexError:
                break
        if answered:
            headers["Punctual-Answered"] = ",".join(answered)
        return headers

    def _refused(self, e: Endpoint, problem: Dict[str, Any], headers: Mapping[str, str]) -> Answer:
        """Decides what a problem means for a request whose earlier copies may have been carried out."""
        code, definite, clock = problem["code"], bool(problem.get("definite")), self.t.clock
        wait = headers.get("Retry-After", "")
        error = error_of(problem, float(wait) if wait.isdigit() else None)
        if code == "deadline" and definite and self.key and not self.not_after:
            # The server has not carried this copy out, and has no answer of an earlier one.
            if self.unsure and self.kept is not None and clock.latest(monotonic()) >= self.kept:
                raise IndeterminateError(error.detail)
            self.unsure, self.kept = False, None
            clock.reset()
            raise Unsent(error.detail)
        if code == "invalid" and definite and self.key and not self.not_after:
            before = clock.latest(monotonic())  # after a step of the store's clock back the Not-After may lie too far ahead
            clock.reset()
            self._ask(e)
            back = before - clock.latest(monotonic())
            if back > 2000:
                self.kept = None
                raise Unsent(error.detail)
        if code in ("closed", "store_failed", "unreachable", "locked"):
            raise Unsent(f"{e.name}: {error.detail}")
        if code == "unauthenticated" and self.t._reread_token():
            raise Unsent(error.detail)
        if code == "overloaded" and self.unsure:
            raise Unsent(error.detail)
        from_store = code not in ("unauthenticated", "forbidden", "overloaded", "too_large", "invalid")
        if definite and self.again != READING and (self.doubt or (self.unsure and not from_store)):
            raise IndeterminateError(f"the server that was told first has ended; now: {error.detail}" if self.doubt else error.detail)
        raise error


def _no_server(e: Endpoint, status: int) -> PunctualError:
    return InvalidError(f"{e.name} answered status {status}, which no Punctual server gives in this way: see that the URL is right")


def _problem(headers: Mapping[str, str], data: bytes) -> Optional[Dict[str, Any]]:
    if not (headers.get("Content-Type") or "").startswith("application/problem+json"):
        return None
    try:
        problem = json.loads(data)
    except ValueError:
        return None
    return problem if isinstance(problem, dict) and problem.get("code") else None


def segment(text: str) -> str:
    """A topic, an ID or a name as a part of a path."""
    return {".": "%2E", "..": "%2E%2E"}.get(text) or quote(text, safe="")
