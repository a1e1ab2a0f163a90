"""Runs handlers: claims messages when they are due, renews leases meanwhile, settles each message as its handler says.

Each topic has slots, claims, renewals and settlements of its own, so that a slow topic delays no
other one. The threads of a topic (``_Lane``): the poller claims; the slots handle; another
thread ends handlers whose time or lease is over, and has leases renewed by short threads; at most
two settlers send settlements.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import queue
import random
import signal
import threading
from collections import deque
from typing import Any, Awaitable, Callable, Deque, Dict, List, Optional, Sequence, Tuple, TypeVar, Union

from ._errors import PunctualError
from ._transport import Abort, StoreClock, segment
from ._values import Duration, Instant, duration_text, millis_of, monotonic, seconds_of
from ._wire import CancelledError, ClosedError, IndeterminateError, InvalidError, LeaseLostError, PushItem, SettleItem
from .client import AsyncClient, Client, Delivery, settlement

log = logging.getLogger("punctual")

CLAIM_WAIT = 20.0
TICK = 0.001  # the resolution of the stores' clocks
MAX_UNSETTLED = 4  # for each slot, so that handlers need not wait for the store


class Follow:
    """Returned by a handler: acks the message, and stores the next ones in the same step."""

    def __init__(self, *then: PushItem) -> None:
        self.then = then


class Decision(Exception):
    """Raised by a handler that decides what becomes of its message. Use one of the classes below."""

    verb = "retry"

    def __init__(self, error: Union[str, BaseException] = "", *, delay: Optional[Duration] = None, at: Optional[Instant] = None, then: Sequence[PushItem] = ()) -> None:
        super().__init__(str(error))
        self.error, self.delay, self.at, self.then = str(error), delay, at, then


class Snooze(Decision):
    """The message comes again after ``delay``, and the attempt does not count."""

    verb = "snooze"

    def __init__(self, delay: Optional[Duration] = None, *, at: Optional[Instant] = None, then: Sequence[PushItem] = ()) -> None:
        super().__init__(delay=delay, at=at, then=then)


class RetryAfter(Decision):
    """The message is retried after ``delay`` in place of the topic's backoff."""

    def __init__(self, delay: Duration, error: Union[str, BaseException] = "") -> None:
        super().__init__(error, delay=delay)


class Discard(Decision):
    """The message is dead at once, because no attempt would help."""

    verb = "discard"


class Message(Delivery):
    """What a handler gets: a message, and whether its work is still wanted."""

    def __init__(self, d: Delivery) -> None:
        super().__init__(d.raw)
        self.ended = threading.Event()
        """Is set when the work is not wanted any more; ``reason`` says why."""
        self.reason: Optional[BaseException] = None
        """LeaseLostError, CancelledError, TimeoutError or ClosedError once ``ended`` is set."""


Handler = Callable[[Message], Union[None, Follow, Awaitable[Optional[Follow]]]]
F = TypeVar("F", bound=Callable[..., Any])


class _Held:
    """A message in hand and the state of its lease. The lane's lock guards what changes."""

    def __init__(self, lane: _Lane, d: Delivery, received: float) -> None:
        self.message = Message(d)
        self.until = millis_of(d.raw["lease_until"])
        self.length = (self.until - millis_of(d.raw["delivered"])) / 1000
        left = max(0.0, (self.until - lane.clock.latest(received)) / 1000)
        self.renew_at, self.ends_at = received + left / 3, received + left
        self.renewed: Optional[float] = None  # when the latest renewal that succeeded was sent
        self.renewing = self.started = self.returned = self.lost = self.unsure = False
        timeout = d.timeout or lane.timeout
        self.timeout_at = received + timeout if timeout > 0 else float("inf")
        self.task: Optional[asyncio.Task[Any]] = None
        self.pause = 0.05  # before a settlement is tried again


class _Lane:
    """One topic: its slots, claims, renewals and settlements."""

    def __init__(self, worker: Worker, topic: str, handler: Handler, slots: int, timeout: float, lease: Optional[Duration]) -> None:
        self.worker, self.topic, self.handler, self.slots, self.timeout, self.lease = worker, topic, handler, slots, timeout, lease
        self.client: Client = worker.client
        self.clock: StoreClock = self.client.clock
        self.coroutine = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.held: List[_Held] = []
        self.running = self.unsettled = self.threads = self.idle = self.settlers = 0
        self.ready: queue.SimpleQueue[Optional[_Held]] = queue.SimpleQueue()
        self.settlements: Deque[Tuple[_Held, SettleItem]] = deque()
        self.abort = Abort()
        self.polls = threading.Thread(target=self.poll, name=f"punctual poll {topic}", daemon=True)
        self.keeps = threading.Thread(target=self.keep, name=f"punctual keep {topic}", daemon=True)

    def start(self) -> None:
        self.polls.start()
        self.keeps.start()

    # Claims

    def poll(self) -> None:
        pause, stopping = 0.0, self.worker.stopping
        while not stopping.wait(pause):
            with self.lock:
                free = 0
                while not stopping.is_set():
                    free = min(self.slots - self.running, MAX_UNSETTLED * self.slots - self.unsettled)
                    if free > 0:
                        break
                    self.changed.wait()
            if stopping.is_set():
                return
            try:
                ds = self.client.claim(self.topic, max=free, wait=CLAIM_WAIT, lease=self.lease, abort=self.abort)
                pause = 0.0
            except PunctualError as e:
                if stopping.is_set():
                    return
                pause = max(min(5.0, max(0.1, 2 * pause)) * (0.5 + random.random()), e.retry_after or 0)
                self.tell("error", None, e)
                continue
            received = monotonic()
            hs = [_Held(self, d, received) for d in ds]
            with self.lock:
                self.held += hs
                self.running += len(hs)
                self.changed.notify_all()
            for h in hs:
                self.dispatch(h)

    def dispatch(self, h: _Held) -> None:
        if self.coroutine:
            asyncio.run_coroutine_threadsafe(self.handle_async(h), self.worker.loop())
            return
        with self.lock:
            if self.idle > 0:
                self.idle -= 1
            elif self.threads < self.slots:
                self.threads += 1
                threading.Thread(target=self.slot, name=f"punctual {self.topic}", daemon=True).start()
        self.ready.put(h)

    # Handlers

    def slot(self) -> None:
        while True:
            h = self.ready.get()
            if h is None:
                return
            if self.may_start(h):
                try:
                    self.finish(h, self.handler(h.message), None)
                except BaseException as e:
                    self.finish(h, None, e)
            with self.lock:
                self.idle += 1
            self.free()

    async def handle_async(self, h: _Held) -> None:
        try:
            if await asyncio.get_running_loop().run_in_executor(None, self.may_start, h) if self.doubtful(h) else self.may_start(h):
                h.task = asyncio.ensure_future(self.handler(h.message))  # type: ignore[arg-type]
                if h.message.ended.is_set():
                    h.task.cancel()
                try:
                    self.finish(h, await h.task, None)
                except BaseException as e:
                    self.finish(h, None, e)
        finally:
            self.free()

    def free(self) -> None:
        with self.lock:
            self.running -= 1
            self.changed.notify_all()

    def doubtful(self, h: _Held) -> bool:
        now = monotonic()
        if h.renewed is not None:
            return now - h.renewed >= h.length * 0.999 - TICK
        return self.clock.latest(now) >= h.until

    def may_start(self, h: _Held) -> bool:
        """Makes sure that the lease still holds, and tells the observer that the handler begins. Otherwise it gives the message back."""
        if not self.worker.stopping.is_set() and self.doubtful(h):
            sent, error = monotonic(), None
            try:
                extension = settlement(h.message, "extend", delay=h.length)
                error = self.client.settle([extension], retry_for=min(h.length, 10), timeout=min(h.length, 10))[0]
            except PunctualError as e:
                error = e
            if error is None:
                self.prolong(h, sent)
            if error is not None or self.doubtful(h):
                self.tell("lost", h, error or LeaseLostError("the lease was renewed, and the answer came too late"))
                if isinstance(error, LeaseLostError):
                    self.drop(h)
                else:
                    self.settle(h, settlement(h.message, "release"))
                return False
        if self.worker.stopping.is_set():
            self.settle(h, settlement(h.message, "release"))
            return False
        with self.lock:
            if h.message.reason is not None or h.lost:
                self.held.remove(h)
                return False
            h.started = True
            self.changed.notify_all()
        self.tell("begin", h)
        return True

    def finish(self, h: _Held, result: Any, error: Optional[BaseException]) -> None:
        """Settles a message as its handler has decided."""
        reason = h.message.reason
        with self.lock:
            h.returned = True
        self.tell("end", h, error)
        if h.lost:
            self.drop(h)
            return
        try:
            item = self.decided(h, result, error, reason)
        except Exception as e:  # a malformed delay or follow-up
            item = settlement(h.message, "retry", error=f"{type(e).__name__}: {e}")
        if item["verb"] in ("retry", "discard"):
            log.warning("%r: attempt failed: %s", h.message, item.get("error"))
        self.settle(h, item)

    def decided(self, h: _Held, result: Any, error: Optional[BaseException], reason: Optional[BaseException]) -> SettleItem:
        m = h.message
        if error is None:
            if result is not None and not isinstance(result, Follow):
                raise InvalidError(f"the handler returned {type(result).__name__}: use None or Follow")
            return settlement(m, "ack", then=result.then if result else ())
        if isinstance(error, Decision):
            return settlement(m, error.verb, delay=error.delay, at=error.at, error=error.error, then=error.then)
        if isinstance(reason, ClosedError):
            return settlement(m, "release")
        if isinstance(error, asyncio.CancelledError) and reason is not None:
            error = reason
        return settlement(m, "retry", error=f"{type(error).__name__}: {error}")

    # Leases

    def keep(self) -> None:
        """Ends handlers whose time or lease is over, and has leases renewed at a third of their length."""
        while True:
            ended: List[Tuple[_Held, BaseException]] = []
            with self.lock:
                if self.worker.over.is_set():
                    return
                now, wake, due = monotonic(), float("inf"), []
                for h in self.held:
                    reason = h.message.reason
                    if reason is None and not h.returned and now >= h.timeout_at:
                        ended.append((h, TimeoutError("the time of the handler is over")))
                    elif reason is None and h.started and not h.returned and now >= h.ends_at:
                        ended.append((h, LeaseLostError("the lease ended before it was renewed")))
                    elif not h.renewing and not h.lost and not isinstance(reason, TimeoutError) and now >= h.renew_at and now < h.ends_at:
                        h.renewing = True
                        due.append(h)
                    for at in (h.timeout_at if not h.returned else float("inf"), h.renew_at if not h.renewing else float("inf"), h.ends_at):
                        if at > now:
                            wake = min(wake, at)
                if not ended and not due:
                    self.changed.wait(None if wake == float("inf") else max(0.001, wake - now))
            for h, why in ended:
                self.end(h, why)
            if due:
                threading.Thread(target=self.renew, args=(due,), name=f"punctual renew {self.topic}", daemon=True).start()

    def renew(self, hs: List[_Held]) -> None:
        sent = monotonic()
        left = max(0.1, min(h.ends_at for h in hs) - sent)
        try:
            results: Sequence[Optional[PunctualError]] = self.client.settle(
                [settlement(h.message, "extend", delay=h.length) for h in hs], retry_for=left / 3, timeout=max(0.2, left / 3))
        except PunctualError as e:
            results = [e] * len(hs)
        for h, error in zip(hs, results):
            if error is None:
                self.prolong(h, sent)
                continue
            with self.lock:
                h.renewing = False
                h.renew_at = monotonic() + max(0.05, (h.ends_at - monotonic()) / 4)
                final = isinstance(error, (LeaseLostError, CancelledError)) and not h.returned
                h.lost = h.lost or (final and isinstance(error, LeaseLostError))
                self.changed.notify_all()
            if final:
                self.end(h, error)
            elif not h.returned:
                self.tell("error", h, error)

    def prolong(self, h: _Held, sent: float) -> None:
        with self.lock:
            h.renewing = False
            if h.renewed is None or sent > h.renewed:
                h.renewed, h.renew_at, h.ends_at = sent, sent + h.length / 3, sent + h.length - TICK
            self.changed.notify_all()

    def end(self, h: _Held, reason: BaseException) -> None:
        """Tells a handler that its work is not wanted any more."""
        with self.lock:
            if h.message.reason is not None or h.returned:
                return
            h.message.reason = reason
        if not isinstance(reason, ClosedError):
            self.tell("lost", h, reason)
        h.message.ended.set()
        task = h.task
        if task is not None:
            self.worker.loop().call_soon_threadsafe(task.cancel)

    def drop(self, h: _Held) -> None:
        with self.lock:
            self.held.remove(h)
            self.changed.notify_all()

    # Settlements

    def settle(self, h: _Held, item: SettleItem) -> None:
        """Has a message settled by a settler; it is in hand until that is done."""
        with self.lock:
            h.returned = True
            self.unsettled += 1
            self.settlements.append((h, item))
            self.changed.notify_all()
            if self.settlers >= 2:
                return
            self.settlers += 1
        threading.Thread(target=self.settler, name=f"punctual settle {self.topic}", daemon=True).start()

    def settler(self) -> None:
        while True:
            with self.lock:
                batch = [self.settlements.popleft() for _ in range(min(1000, len(self.settlements)))]
                if not batch:
                    if self.worker.stopping.is_set() or not self.changed.wait(1.0):
                        if not self.settlements:
                            self.settlers -= 1
                            return
                    continue
            alone = True
            try:
                results: Sequence[Optional[PunctualError]] = self.client.settle([item for _, item in batch])
            except PunctualError as e:
                results, alone = [e] * len(batch), False
            for (h, item), error in zip(batch, results):
                self.settled(h, item, error, alone)

    def settled(self, h: _Held, item: SettleItem, error: Optional[PunctualError], alone: bool) -> None:
        """Takes the answer to a settlement, and tries again while the lease lasts if that may help."""
        again: Optional[SettleItem] = None
        if isinstance(error, LeaseLostError) and h.unsure:
            error = None  # most likely an earlier try, whose answer did not arrive, has settled the message
        elif error is not None and item.get("then") and error.definite and error.code in _REFUSALS and (alone or error.code not in _PASSING):
            self.tell("settled", h, error, item["verb"])
            if error.code in _PASSING:
                again = settlement(h.message, "snooze", delay=5)
            else:
                again = settlement(h.message, "retry", error=f"the follow-ups were not stored: {error.detail}")
        elif error is not None and (error.code in _PASSING or not error.definite) and not isinstance(error.__cause__, LeaseLostError):
            h.unsure = h.unsure or not error.definite
            if monotonic() + h.pause < h.ends_at:
                again = item
        if again is not None:
            timer = threading.Timer(h.pause, self._again, (h, again))
            timer.daemon = True
            h.pause = min(2 * h.pause, 2.0)
            timer.start()
            return
        with self.lock:
            self.held.remove(h)
            self.unsettled -= 1
            self.changed.notify_all()
        self.tell("settled", h, error, item["verb"])

    def _again(self, h: _Held, item: SettleItem) -> None:
        with self.lock:
            self.unsettled -= 1
        self.settle(h, item)

    def tell(self, event: str, h: Optional[_Held], error: Optional[BaseException] = None, verb: str = "") -> None:
        if error is not None and event != "end":
            log.warning("%s: %s %s: %s", h.message if h else self.topic, event, verb, error)
        if self.worker.observer is not None:
            self.worker.observer(event, h.message if h else None, error, verb)


_PASSING = frozenset(("overloaded", "unreachable", "no_space", "paused", "closed", "locked", "store_failed", "canceled", "deadline", "unauthenticated"))
_REFUSALS = frozenset(("invalid", "too_large", "unsupported", "duplicate", "changed", "paused", "no_space", "overloaded", "forbidden"))


class Worker:
    """Claims the messages of some topics and runs their handlers::

        worker = Worker(client)

        @worker.handler("order.close", slots=8)
        def close(message):
            close_order(message.text)

        worker.run()  # until SIGINT or SIGTERM

    A handler that returns None acks its message. An exception retries it when the topic's backoff
    says; see Snooze, RetryAfter, Discard and Follow for other ends. A handler may be a coroutine
    function; then it is cancelled when its work is not wanted any more, and ``message.reason`` says
    why. A function looks at ``message.ended``.

    :param lease: overrides the length of the topics' leases, which are renewed at a third of it
    :param timeout: how long a handler may run, in seconds or as a text; negative for no limit
    :param shutdown_timeout: how many seconds ``run`` waits for handlers at its end
    :param observer: is called with (event, message, error, verb): begin, end, settled, lost, error
    """

    def __init__(
        self, client: Union[Client, AsyncClient], *, lease: Optional[Duration] = None, timeout: Duration = 3600, shutdown_timeout: float = 25.0,
        observer: Optional[Callable[[str, Optional[Message], Optional[BaseException], str], None]] = None,
    ) -> None:
        self.client = client.client if isinstance(client, AsyncClient) else client
        self.observer, self._lease, self._timeout, self._shutdown_timeout = observer, lease, timeout, shutdown_timeout
        self._lanes: Dict[str, _Lane] = {}
        self._started = False
        self._lock = threading.Lock()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self.stopping, self.over = threading.Event(), threading.Event()

    def handle(self, topic: str, handler: Handler, *, group: str = "", slots: int = 16, timeout: Optional[Duration] = None) -> None:
        """Registers the handler of a topic, or of one of its groups. ``slots`` is how many of its messages are handled at once."""
        if self._started:
            raise InvalidError("register every handler before the worker is started")
        name = f"{topic}@g.{group}" if group else topic
        if name in self._lanes:
            raise InvalidError(f"topic {name} has a handler already")
        if not 1 <= slots <= 10000:
            raise InvalidError(f"slots {slots}: use 1 to 10000")
        text = duration_text(self._timeout if timeout is None else timeout)
        limit = 0.0 if text.startswith("-") else seconds_of(text) or 0.0  # 0 is no limit
        self._lanes[name] = _Lane(self, name, handler, slots, limit, self._lease)

    def handler(self, topic: str, *, group: str = "", slots: int = 16, timeout: Optional[Duration] = None) -> Callable[[F], F]:
        """:meth:`handle` as a decorator."""

        def register(f: F) -> F:
            self.handle(topic, f, group=group, slots=slots, timeout=timeout)
            return f

        return register

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of handlers that are coroutines. Without run_async it is one of the worker's own."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="punctual loop", daemon=True).start()
            return self._loop

    def start(self) -> None:
        """Begins to claim messages. InvalidError: a topic has groups, whose handlers get its messages."""
        if self._started or self.stopping.is_set():
            raise InvalidError("a worker is started once: make a new one")
        if not self._lanes:
            raise InvalidError("the worker has no handler")
        for topic in self._lanes:
            if "@" not in topic:
                self._check_groups(topic)
        self._started = True
        for lane in self._lanes.values():
            lane.start()

    def _check_groups(self, topic: str) -> None:
        try:
            groups = self.client.transport.call("GET", f"/v1/topics/{segment(topic)}/settings", again="reading", retry_for=-1, timeout=5).body.get("groups")
        except PunctualError:
            return  # the token may not inspect the topic, or no server answers yet
        if groups:
            raise InvalidError(f"topic {topic} has the groups {', '.join(groups)}: handle those with group=NAME")

    def stop(self, timeout: Optional[float] = None) -> None:
        """Claims nothing more, gives back what was not started, and waits for handlers that run.

        After ``timeout`` seconds (``shutdown_timeout``) it tells them to end, waits one second more, and
        raises TimeoutError. The message of a handler that fails now is given back and uses no attempt."""
        until = monotonic() + (self._shutdown_timeout if timeout is None else timeout)
        self.stopping.set()
        lanes = list(self._lanes.values()) if self._started else []
        for lane in lanes:
            with lane.lock:
                lane.changed.notify_all()
            lane.abort.end()
        for lane in lanes:
            lane.polls.join(max(0.0, until + 1 - monotonic()))
        running = self._wait(lanes, until)
        left = 0
        if running:
            for lane in lanes:
                for h in list(lane.held):
                    if not h.returned:
                        lane.end(h, ClosedError("the worker stops and its time is up"))
            left = self._wait(lanes, monotonic() + 1)
        if left == 0:
            self.over.set()
            for lane in lanes:
                with lane.lock:
                    lane.changed.notify_all()
                for _ in range(lane.threads):
                    lane.ready.put(None)
                lane.threads = 0
        if running:
            raise TimeoutError(f"handlers running when the time of stop was up: {running}, not returned since: {left}")

    def _wait(self, lanes: List[_Lane], until: float) -> int:
        for lane in lanes:
            with lane.lock:
                while lane.running or lane.unsettled:
                    if monotonic() >= until:
                        break
                    lane.changed.wait(max(0.001, until - monotonic()))
        return sum(lane.running + lane.unsettled for lane in lanes)

    def run(self) -> None:
        """Starts the worker, waits for SIGINT, SIGTERM or :meth:`stop`, and stops it."""
        signaled = threading.Event()
        before = {}
        if threading.current_thread() is threading.main_thread():
            for s in (signal.SIGINT, signal.SIGTERM):
                before[s] = signal.signal(s, lambda *_: signaled.set())
        try:
            self.start()
            while not signaled.wait(0.2) and not self.stopping.is_set():
                pass
            self.stop()
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def run_async(self) -> None:
        """Is :meth:`run` for asyncio: handlers that are coroutines run in the current loop. Ends when it is cancelled, or on a signal."""
        self._loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        signals = []
        for s in (signal.SIGINT, signal.SIGTERM):
            try:
                self._loop.add_signal_handler(s, ended.set)
                signals.append(s)
            except (NotImplementedError, RuntimeError, ValueError):
                pass  # not in the main thread, or not on this system
        try:
            await self._loop.run_in_executor(None, self.start)
            await ended.wait()
        finally:
            for s in signals:
                self._loop.remove_signal_handler(s)
            if self._started:
                await asyncio.shield(self._loop.run_in_executor(None, self.stop))

    async def __aenter__(self) -> Worker:
        self._loop = asyncio.get_running_loop()
        await self._loop.run_in_executor(None, self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.stop)

