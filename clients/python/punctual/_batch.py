"""Gathers items of several threads into one request. No timer holds anything back: while requests
are under way the next items gather, and a lone item goes at once."""

from __future__ import annotations

import threading
from collections import deque
from typing import Callable, Deque, Generic, List, Optional, Sequence, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_ITEMS, MAX_BYTES = 1000, 4 << 20


class _Waiter(Generic[Item, Result]):
    def __init__(self, item: Item, size: int) -> None:
        self.item, self.size = item, size
        self.turn = threading.Event()
        self.batch: Optional[List[_Waiter[Item, Result]]] = None
        self.result: Optional[Result] = None
        self.error: Optional[BaseException] = None


class Batcher(Generic[Item, Result]):
    """Carries out items in batches, at most two at a time. The thread of the first item of a batch carries the batch out."""

    def __init__(self, run: Callable[[List[Item]], Sequence[Result]]) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._queue: Deque[_Waiter[Item, Result]] = deque()
        self._flights = 0

    def do(self, item: Item, size: int = 0) -> Result:
        w: _Waiter[Item, Result] = _Waiter(item, size)
        with self._lock:
            self._queue.append(w)
            if self._flights < 2:
                self._flights += 1
                self._begin()
        w.turn.wait()
        if w.batch is not None:
            self._carry_out(w.batch)
        if w.error is not None:
            raise w.error
        return w.result  # type: ignore[return-value]

    def _begin(self) -> None:
        """Makes a batch of what waits, and wakes its first item. The caller holds the lock."""
        batch, total = [self._queue.popleft()], 0
        while self._queue and len(batch) < MAX_ITEMS and total + self._queue[0].size <= MAX_BYTES:
            total += self._queue[0].size
            batch.append(self._queue.popleft())
        batch[0].batch = batch
        batch[0].turn.set()

    def _carry_out(self, batch: List[_Waiter[Item, Result]]) -> None:
        try:
            for w, result in zip(batch, self._run([w.item for w in batch])):
                w.result = result
        except BaseException as e:
            for w in batch:
                w.error = e
        with self._lock:
            if self._queue:
                self._begin()
            else:
                self._flights -= 1
        for w in batch[1:]:
            w.turn.set()
