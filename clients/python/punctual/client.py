"""Calls of a server: pushes, changes by ID, lists, settings, schedules."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Dict, Generator, Iterable, Iterator, List, Mapping, Optional, Sequence, TypeVar, Union, cast

from . import _transport as transport
from ._batch import MAX_BYTES, MAX_ITEMS, Batcher
from ._errors import PunctualError, error_of
from ._transport import ANEW, KEYED, ONCE, READING, Transport, segment
from ._values import Duration, Instant, duration_text, instant_of, instant_text, millis_of, monotonic, seconds_of
from ._wire import (
    AmendItem, AmendResult, BulkReport, Finished, Forecast, IndeterminateError, Info, LeaseLostError, Occurrences, PushItem,
    PushResult, Schedule, ScheduleItem, Settings, SettingsPatch, SettleItem, Topic, UnreachableError,
)
from ._wire import Message as StoredMessage

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
R = TypeVar("R")

Body = Union[bytes, str, Mapping[str, Any], Sequence[Any], int, float, bool]
"""Bytes, a text, or any other value, of which the JSON is the body."""


def message(
    topic: str, body: Body = b"", *, id: str = "", delay: Optional[Duration] = None, at: Optional[Instant] = None,
    at_local: str = "", zone: str = "", headers: Optional[Mapping[str, str]] = None, key: str = "", if_exists: str = "",
    max_attempts: int = 0, expire: Optional[Duration] = None, drop_expired: bool = False, if_due: Optional[Instant] = None,
    remember: Optional[Duration] = None, timeout: Optional[Duration] = None,
) -> PushItem:
    """A message to push, alone or in a list, or to store as a follow-up.

    :param id: its ID, by which it can be cancelled and is stored once; the server makes one up
    :param delay: after what time it is due; without delay, at and at_local it is due at once
    :param at_local: when it is due on the clocks of ``zone``, such as "2099-07-01 09:00"
    :param key: messages of a key take turns, where the topic is keyed
    :param if_exists: keep (the default), replace, replace-dead or fail
    :param expire: after what time without a delivery it is dead, or dropped with ``drop_expired``
    :param remember: for how long after its end its ID stays in use
    :param timeout: how long its handler may run
    """
    m: Dict[str, Any] = {"topic": topic}
    if isinstance(body, (bytes, bytearray, memoryview)):
        raw = bytes(body)
        try:
            m["body"] = raw.decode("utf-8")
        except UnicodeDecodeError:
            m["body_base64"] = base64.b64encode(raw).decode("ascii")
    elif isinstance(body, str):
        m["body"] = body
    else:
        m["body"] = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    if headers:
        m["headers"] = dict(headers)
    for name, d in (("in", delay), ("expire", expire), ("remember", remember), ("timeout", timeout)):
        if d is not None:
            m[name] = duration_text(d, name)
    for name, t in (("at", at), ("if_due", if_due)):
        if t is not None:
            m[name] = instant_text(t, name)
    for name, v in (("id", id), ("at_local", at_local), ("zone", zone), ("key", key), ("if_exists", if_exists), ("max_attempts", max_attempts), ("drop_expired", drop_expired)):
        if v:
            m[name] = v
    return cast(PushItem, m)


class Delivery:
    """A message under a lease."""

    def __init__(self, d: Mapping[str, Any]) -> None:
        self.raw = d
        """The message as the server sent it."""
        self.topic: str = d["topic"]
        self.id: str = d["id"]
        self.token: str = d["token"]
        """Proves that this program holds the lease; as a number it grows with every claim of the message."""
        self.attempt: int = d["attempt"]
        self.key: str = d.get("key", "")
        self.headers: Dict[str, Union[str, bytes]] = dict(d.get("headers") or {})
        for name, text in (d.get("headers_base64") or {}).items():
            self.headers[name] = base64.b64decode(text)
        self.failures: List[Dict[str, Any]] = list(d.get("failures") or [])

    @functools.cached_property
    def body(self) -> bytes:
        coded = self.raw.get("body_base64")
        return base64.b64decode(coded) if coded else str(self.raw.get("body", "")).encode("utf-8")

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")

    def json(self) -> Any:
        return json.loads(self.body)

    def _instant(self, name: str) -> Optional[datetime]:
        return instant_of(self.raw.get(name))

    due = property(lambda self: self._instant("due"), doc="When it was due, as an aware datetime.")
    first_due = property(lambda self: self._instant("first_due"), doc="When it was due at first, before retries.")
    created = property(lambda self: self._instant("created"))
    delivered = property(lambda self: self._instant("delivered"))
    lease_until = property(lambda self: self._instant("lease_until"), doc="When the lease ended as it was claimed.")
    late = property(lambda self: self.raw.get("late_ms", 0) / 1000, doc="By how many seconds it was claimed after it was due.")
    timeout = property(lambda self: seconds_of(self.raw.get("timeout")))

    def __repr__(self) -> str:
        return f"Delivery({self.topic}/{self.id}, attempt {self.attempt})"


class PushedMessage:
    """What became of a push."""

    def __init__(self, r: PushResult, error: Optional[PunctualError] = None) -> None:
        self.id = r.get("id", "")
        self.topic = r.get("topic", "")
        self.result = r.get("result", "")
        """stored, duplicate (the first message is kept) or replaced; empty beside an error."""
        self.due = instant_of(r.get("due"))
        self.existing = r.get("existing", "")
        """The state of a message that was there already."""
        problem = r.get("error")
        self.error = error_of(problem) if problem else error

    def __repr__(self) -> str:
        return f"PushedMessage({self.topic}/{self.id}, {self.error or self.result}, due {self.due})"


class Amended:
    """What became of a change by ID: the outcome, the new due time, or an error."""

    def __init__(self, r: AmendResult, error: Optional[PunctualError] = None) -> None:
        self.id, self.topic, self.outcome = r.get("id", ""), r.get("topic", ""), r.get("outcome", "")
        self.due = instant_of(r.get("due"))
        problem = r.get("error")
        self.error = error_of(problem) if problem else error

    def __repr__(self) -> str:
        return f"Amended({self.topic}/{self.id}, {self.error or self.outcome}, due {self.due})"


class Client:
    """Calls one server, or several servers of the same store. All methods may be called by any thread.

    :param url: http://HOST:PORT, https://HOST:PORT, unix:PATH, or a list of these
    :param token_file: holds the token; it is read again when a server refuses the token
    :param ca_file: the authorities to trust, in place of the system's; or give ``tls``
    :param timeout: how many seconds one request may take, beside the time that a claim waits
    :param retry_for: for how many seconds a call is repeated while no server answers
    :param name: of this program in lists of consumers
    """

    def __init__(
        self, url: Union[str, Sequence[str]] = "http://localhost:7878", *, token: str = "", token_file: str = "", ca_file: str = "",
        tls: Optional[ssl.SSLContext] = None, plaintext_token: bool = False, timeout: float = 10.0, retry_for: float = 15.0, name: str = "",
    ) -> None:
        self.transport = Transport(
            [url] if isinstance(url, str) else list(url), token=token, token_file=token_file, ca_file=ca_file, tls=tls,
            plaintext_token=plaintext_token, timeout=timeout, retry_for=retry_for, name=name,
        )
        self.clock = self.transport.clock
        self._lock = threading.Lock()
        self._pushes: Dict[str, Batcher[PushItem, PushedMessage]] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Stop workers first."""
        self.transport.close()

    # Pushes

    def push(self, /, topic: str, body: Body = b"", **options: Any) -> PushedMessage:
        """Stores a message; see :func:`message` for the options. Pushes of several threads share requests."""
        with self._lock:  # each topic has its own batches, so that a slow topic delays no other one
            batcher = self._pushes.get(topic)
            if batcher is None:
                if len(self._pushes) >= 1000:
                    self._pushes.clear()
                batcher = self._pushes[topic] = Batcher(self._push)
        m = message(topic, body, **options)
        pushed = batcher.do(m, len(m.get("body", "")) + len(m.get("body_base64", "")))
        if pushed.error is not None:
            raise pushed.error
        return pushed

    def push_many(self, messages: Iterable[PushItem]) -> List[PushedMessage]:
        """Stores messages made by :func:`message`. Each result has an error of its own.

        Lists that are too long for a request are sent in parts; if one part fails, its messages and those behind it have the error."""
        return self._in_parts(list(messages), self._push, lambda m, e: PushedMessage({"id": m.get("id", ""), "topic": m.get("topic", "")}, e))

    def _push(self, items: List[PushItem]) -> List[PushedMessage]:
        answer = self.transport.call("POST", "/v1/push", {"messages": items}, again=KEYED)
        return [PushedMessage(r) for r in self._results(answer, len(items))]

    def _results(self, answer: transport.Answer, n: int) -> List[Any]:
        results = (answer.body or {}).get("results", [])
        if len(results) != n:
            raise IndeterminateError(f"the server answered {len(results)} results for {n} items")
        return cast(List[Any], results)

    def _in_parts(self, items: List[Any], run: Callable[[List[Any]], List[R]], failed: Callable[[Any, PunctualError], R]) -> List[R]:
        out: List[R] = []
        while len(out) < len(items):
            part: List[Any] = []
            total = 0
            for item in items[len(out):len(out) + MAX_ITEMS]:
                total += len(item.get("body", "")) + len(item.get("body_base64", ""))
                if part and total > MAX_BYTES:
                    break
                part.append(item)
            try:
                out += run(part)
            except PunctualError as e:
                if not out:
                    raise
                out += [failed(item, e) for item in part]
                unsent = UnreachableError("not sent, since a part before was not answered")
                out += [failed(item, unsent) for item in items[len(out):]]
        return out

    # Changes by ID

    def cancel(self, topic: str, id: str, *, if_due: Optional[Instant] = None) -> Amended:
        """Cancels a message. NotFoundError: there is none to deliver. LeasedError: too late, and no further attempt follows."""
        return self._one({"change": "cancel", "topic": topic, "id": id}, if_due=if_due)

    def reschedule(self, topic: str, id: str, *, delay: Optional[Duration] = None, at: Optional[Instant] = None, if_due: Optional[Instant] = None) -> Amended:
        """Moves a message to another time."""
        return self._one({"change": "reschedule", "topic": topic, "id": id}, delay, at, if_due)

    def requeue(self, topic: str, id: str, *, delay: Optional[Duration] = None, at: Optional[Instant] = None) -> Amended:
        """Delivers a dead message again."""
        return self._one({"change": "requeue", "topic": topic, "id": id}, delay, at)

    def delete(self, topic: str, id: str, *, if_due: Optional[Instant] = None) -> Amended:
        """Removes a message in any state without a trace. Needs the action admin."""
        return self._one({"change": "delete", "topic": topic, "id": id}, if_due=if_due)

    def _one(self, item: Dict[str, Any], delay: Optional[Duration] = None, at: Optional[Instant] = None, if_due: Optional[Instant] = None) -> Amended:
        if delay is not None:
            item["in"] = duration_text(delay)
        if at is not None:
            item["at"] = instant_text(at)
        if if_due is not None:
            item["if_due"] = instant_text(if_due, "if_due")
        amended = self.amend_many([cast(AmendItem, item)])[0]
        if amended.error is not None:
            raise amended.error
        return amended

    def amend_many(self, changes: Iterable[AmendItem]) -> List[Amended]:
        """Makes many changes. Each result has an error of its own."""

        def run(items: List[Any]) -> List[Amended]:
            answer = self.transport.call("POST", "/v1/amend", {"amendments": items}, again=KEYED)
            return [Amended(r) for r in self._results(answer, len(items))]

        return self._in_parts(list(changes), run, lambda a, e: Amended({"id": a.get("id", ""), "topic": a.get("topic", "")}, e))

    # Work without a Worker

    def claim(
        self, *topics: str, max: int = 1, wait: Duration = 0, lease: Optional[Duration] = None, abort: Optional[transport.Abort] = None, retry_for: Optional[float] = None,
    ) -> List[Delivery]:
        """Leases up to max due messages, and waits for up to ``wait`` (55 s at most) for one. Settle each with :meth:`settle`."""
        body: Dict[str, Any] = {"topics": list(topics), "max": max, "wait": duration_text(wait, "wait")}
        if lease is not None:
            body["lease"] = duration_text(lease, "lease")
        key, t = self.transport.new_key(), self.transport
        sent = monotonic()
        try:
            answer = t.call("POST", "/v1/claim", body, again=ANEW, wait=seconds_of(body["wait"]) or 0, key=key, abort=abort, retry_for=retry_for)
        except PunctualError:
            if abort is not None and abort.ended.is_set():
                self._abandon(body, key)
            raise
        return self._delivered(answer, sent)

    def _delivered(self, answer: transport.Answer, sent: float) -> List[Delivery]:
        found, received = (answer.body or {}).get("messages", []), monotonic()
        if found:
            self.transport.clock.observe(sent, received, builtins_max(millis_of(d["delivered"]) for d in found))
        return [Delivery(d) for d in found]

    def _abandon(self, body: Dict[str, Any], key: str) -> None:
        """Asks for the answer to a claim that was ended, and releases the messages in it."""
        try:
            answer = self.transport.call("POST", "/v1/claim", body, again=KEYED, key=key, not_after=transport.LONG_AGO, retry_for=3, timeout=3)
            ds = [Delivery(d) for d in (answer.body or {}).get("messages", [])]
            if ds:
                self.settle([settlement(d, "release") for d in ds], retry_for=3, timeout=3)
        except PunctualError:
            pass  # "deadline": the claim was never carried out. Otherwise its leases run out

    def settle(self, settlements: Sequence[SettleItem], *, retry_for: Optional[float] = None, timeout: Optional[float] = None) -> List[Optional[PunctualError]]:
        """Ends or extends leases; see :func:`settlement`. Each result is None or an error."""
        answer = self.transport.call("POST", "/v1/settle", {"settlements": list(settlements)}, again=ANEW, retry_for=retry_for, timeout=timeout)
        out: List[Optional[PunctualError]] = []
        for r in self._results(answer, len(settlements)):
            error = error_of(r["error"]) if r.get("error") else None
            if answer.doubt and isinstance(error, LeaseLostError):
                lost = error
                error = IndeterminateError(f"the server that was told first has ended; now: {lost.detail}")
                error.__cause__ = lost
            out.append(error)
        return out

    # Looking and steering

    def _read(self, path: str, **query: Any) -> Any:
        return self.transport.call("GET", path, query=_query(query), again=READING).body

    def _change(self, method: str, path: str, body: Any = None, *, again: str = ONCE, **query: Any) -> Any:
        return self.transport.call(method, path, body, query=_query(query), again=again).body

    def info(self) -> Info:
        """What the server says of itself: version, durability, abilities, limits."""
        return cast(Info, self._read("/v1"))

    def now(self) -> datetime:
        """The store's clock, which decides."""
        return cast(datetime, instant_of(self._read("/v1/clock")["now"]))

    def topics(self) -> List[Topic]:
        """The topics with the counts of their messages."""
        return cast(List[Topic], self._read("/v1/topics")["topics"])

    def stats(self, topic: str) -> Topic:
        return cast(Topic, self._read(_topic(topic)))

    def get(self, topic: str, id: str) -> StoredMessage:
        """A message in any state, as the server tells it. NotFoundError: there is none."""
        return cast(StoredMessage, self._read(_topic(topic, "messages", id)))

    def messages(
        self, topic: str, state: str, *, reason: str = "", start: Optional[Instant] = None, end: Optional[Instant] = None,
        descending: bool = False, bare: bool = False,
    ) -> Iterator[StoredMessage]:
        """The messages of a topic in a state (scheduled, ready, leased, dead) in the order of their due times, page by page. ``bare`` leaves out the bodies."""
        return self._pages(_topic(topic, "messages"), "messages", state=state, reason=reason, **{"from": start, "to": end}, descending=descending, bare=bare)

    def finished(self, topic: str, id: str) -> Finished:
        """The record of a finished message, where the topic has a finished_retention."""
        return cast(Finished, self._read(_topic(topic, "finished", id)))

    def finished_messages(
        self, topic: str, *, outcome: str = "", start: Optional[Instant] = None, end: Optional[Instant] = None, descending: bool = False,
    ) -> Iterator[Finished]:
        return self._pages(_topic(topic, "finished"), "records", outcome=outcome, **{"from": start, "to": end}, descending=descending)

    def _pages(self, path: str, member: str, **query: Any) -> Generator[Any, None, None]:
        after = ""
        while True:
            page = self._read(path, after=after, **query)
            yield from page.get(member) or []
            after = page.get("next", "")
            if not after:
                return

    def forecast(self, topic: str = "", *, step: Duration = "1h", buckets: int = 24) -> Forecast:
        """How many messages are due when."""
        return cast(Forecast, self._read("/v1/forecast", topic=topic, step=duration_text(step, "step"), buckets=buckets))

    def settings(self, topic: str) -> Settings:
        return cast(Settings, self._read(_topic(topic, "settings")))

    def configure(self, topic: str, patch: SettingsPatch) -> Settings:
        """Changes settings, such as ``{"max_attempts": 3, "backoff": "2m,10m,1h"}``. With "if" only while the topic has those settings."""
        return cast(Settings, self._change("PATCH", _topic(topic, "settings"), patch))

    def pause(self, topic: str, *, push: bool = False, delivery: bool = False) -> Settings:
        """Holds deliveries back; with ``push`` it refuses pushes instead."""
        return cast(Settings, self._change("POST", _topic(topic, "pause"), push=push, delivery=delivery))

    def resume(self, topic: str, *, push: bool = False, delivery: bool = False) -> Settings:
        return cast(Settings, self._change("POST", _topic(topic, "resume"), push=push, delivery=delivery))

    def purge(self, topic: str, state: str) -> int:
        """Removes the messages of a state: scheduled, ready, leased, dead, or live for all but the dead."""
        return int(self._change("POST", _topic(topic, "purge"), state=state)["purged"])

    def delete_topic(self, topic: str) -> None:
        self._change("DELETE", _topic(topic))

    def bulk(self, /, topic: str, do: str, **members: Any) -> BulkReport:
        """Changes all messages that match: do is cancel, delete, requeue, reschedule or shift. The members are those of docs/bulk.md."""
        return cast(BulkReport, self._change("POST", _topic(topic, "bulk"), {"do": do, **members}))

    # Schedules

    def put_schedule(self, topic: str, name: str, schedule: ScheduleItem) -> Schedule:
        """Stores a recurring message, such as ``{"spec": "0 9 * * MON-FRI", "zone": "Europe/Berlin", "body": "report"}``."""
        return cast(Schedule, self._change("PUT", _topic(topic, "schedules", name), schedule, again=KEYED))

    def schedule(self, topic: str, name: str) -> Schedule:
        return cast(Schedule, self._read(_topic(topic, "schedules", name)))

    def schedules(self, topic: str) -> Iterator[Schedule]:
        return self._pages(_topic(topic, "schedules"), "schedules")

    def delete_schedule(self, topic: str, name: str) -> None:
        self._change("DELETE", _topic(topic, "schedules", name))

    def pause_schedule(self, topic: str, name: str, note: str = "") -> Schedule:
        return cast(Schedule, self._change("POST", _topic(topic, "schedules", name, "pause"), note=note))

    def resume_schedule(self, topic: str, name: str, *, catch_up: bool = False) -> Schedule:
        return cast(Schedule, self._change("POST", _topic(topic, "schedules", name, "resume"), catch_up=catch_up))

    def run_schedule(self, topic: str, name: str) -> Occurrences:
        """Stores an occurrence now, beside those of the schedule."""
        return cast(Occurrences, self._change("POST", _topic(topic, "schedules", name, "run")))

    def skip_schedule(self, topic: str, name: str, n: int = 1) -> Occurrences:
        return cast(Occurrences, self._change("POST", _topic(topic, "schedules", name, "skip"), n=n))

    def backfill_schedule(self, topic: str, name: str, start: Instant, end: Instant, *, dry_run: bool = False) -> Occurrences:
        return cast(Occurrences, self._change("POST", _topic(topic, "schedules", name, "backfill"), dry_run=dry_run, **cast(Dict[str, Any], {"from": start, "to": end})))


builtins_max = max


def settlement(d: Delivery, verb: str, *, delay: Optional[Duration] = None, at: Optional[Instant] = None, error: str = "", then: Sequence[PushItem] = ()) -> SettleItem:
    """The end of a lease: verb is ack, retry, snooze, discard, release or extend."""
    s: Dict[str, Any] = {"topic": d.topic, "id": d.id, "token": d.token, "verb": verb}
    if delay is not None:
        s["in"] = duration_text(delay)
    if at is not None:
        s["at"] = instant_text(at)
    if error:
        s["error"] = error.encode("utf-8", "replace")[:1000].decode("utf-8", "ignore")
    if then:
        s["then"] = list(then)
    return cast(SettleItem, s)


def _topic(topic: str, *rest: str) -> str:
    return "/v1/topics/" + "/".join(segment(part) for part in (topic, *rest))


def _query(values: Mapping[str, Any]) -> Dict[str, str]:
    out: Dict[str, str] = {}
    for name, v in values.items():
        if isinstance(v, datetime):
            out[name] = instant_text(v, name)
        elif v is True:
            out[name] = "true"
        elif v is not None and v is not False and v != "":
            out[name] = str(v)
    return out


def _in_thread(method: Callable[Concatenate[Client, P], R]) -> Callable[Concatenate[AsyncClient, P], Awaitable[R]]:
    @functools.wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._run(functools.partial(method, self.client, *args, **kwargs))

    return call


class AsyncClient:
    """A :class:`Client` for asyncio: the same methods as coroutines. The requests are sent by threads."""

    def __init__(self, url: Union[str, Sequence[str], Client] = "http://localhost:7878", **options: Any) -> None:
        self.client = url if isinstance(url, Client) else Client(url, **options)
        self._threads = ThreadPoolExecutor(64, "punctual")

    async def _run(self, call: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.client.close()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)

    push = _in_thread(Client.push)
    push_many = _in_thread(Client.push_many)
    cancel = _in_thread(Client.cancel)
    reschedule = _in_thread(Client.reschedule)
    requeue = _in_thread(Client.requeue)
    delete = _in_thread(Client.delete)
    amend_many = _in_thread(Client.amend_many)
    claim = _in_thread(Client.claim)
    settle = _in_thread(Client.settle)
    info = _in_thread(Client.info)
    now = _in_thread(Client.now)
    topics = _in_thread(Client.topics)
    stats = _in_thread(Client.stats)
    get = _in_thread(Client.get)
    finished = _in_thread(Client.finished)
    forecast = _in_thread(Client.forecast)
    settings = _in_thread(Client.settings)
    configure = _in_thread(Client.configure)
    pause = _in_thread(Client.pause)
    resume = _in_thread(Client.resume)
    purge = _in_thread(Client.purge)
    delete_topic = _in_thread(Client.delete_topic)
    bulk = _in_thread(Client.bulk)
    put_schedule = _in_thread(Client.put_schedule)
    schedule = _in_thread(Client.schedule)
    delete_schedule = _in_thread(Client.delete_schedule)
    pause_schedule = _in_thread(Client.pause_schedule)
    resume_schedule = _in_thread(Client.resume_schedule)
    run_schedule = _in_thread(Client.run_schedule)
    skip_schedule = _in_thread(Client.skip_schedule)
    backfill_schedule = _in_thread(Client.backfill_schedule)

    def messages(self, topic: str, state: str, **filters: Any) -> AsyncIterator[StoredMessage]:
        return self._each(self.client.messages(topic, state, **filters))

    def finished_messages(self, topic: str, **filters: Any) -> AsyncIterator[Finished]:
        return self._each(self.client.finished_messages(topic, **filters))

    def schedules(self, topic: str) -> AsyncIterator[Schedule]:
        return self._each(self.client.schedules(topic))

    async def _each(self, pages: Iterator[R]) -> AsyncIterator[R]:
        end = object()
        while True:
            item = await self._run(lambda: next(pages, end))
            if item is end:
                return
            yield cast(R, item)
