"""Durations and times as they travel."""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta, timezone
from typing import Any, Optional, Union

from ._wire import InvalidError

Duration = Union[str, int, float, timedelta]
"""A length of time: seconds, a timedelta, or a text such as "30m" or "2h30m"."""

Instant = Union[str, datetime]
"""A point in time: an aware datetime, or a text of RFC 3339."""


def duration_text(d: Duration, name: str = "delay") -> str:
    """The text of a duration, rounded up to a millisecond."""
    if isinstance(d, str):
        return d
    seconds = d.total_seconds() if isinstance(d, timedelta) else d
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        raise InvalidError(f"{name} {d!r} is no duration: use seconds, a timedelta or a text such as '30m'")
    return f"{math.ceil(round(seconds * 1000, 6))}ms"


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def seconds_of(text: Optional[str]) -> Optional[float]:
    """The seconds of a duration as a server writes it, such as 2h30m."""
    if not text:
        return None
    total, number, at = 0.0, "", 0
    while at < len(text):
        if text[at].isdigit() or text[at] == ".":
            number += text[at]
            at += 1
            continue
        unit = "ms" if text.startswith("ms", at) else text[at]
        if unit not in _UNITS or not number:
            raise InvalidError(f"duration {text!r} is not understood")
        total, number, at = total + float(number) * _UNITS[unit], "", at + len(unit)
    return total


def instant_text(t: Instant, name: str = "at") -> str:
    """The text of an instant, rounded up to a millisecond."""
    if isinstance(t, str):
        return t
    if not isinstance(t, datetime) or t.tzinfo is None:
        raise InvalidError(f"{name} {t!r} is no instant: use a datetime with a time zone, or a text of RFC 3339")
    t = t.astimezone(timezone.utc)
    if t.microsecond % 1000:
        t += timedelta(microseconds=1000 - t.microsecond % 1000)
    return f"{t:%Y-%m-%dT%H:%M:%S}.{t.microsecond // 1000:03d}Z".zfill(24)


def instant_of(text: Any) -> Optional[datetime]:
    """The instant that a server tells."""
    if not text:
        return None
    whole, _, fraction = text.rstrip("Z").partition(".")
    t = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return t + timedelta(milliseconds=int((fraction + "000")[:3]))


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLI = timedelta(milliseconds=1)


def millis_of(text: str) -> int:
    """The milliseconds since 1970 of an instant that a server tells."""
    t = instant_of(text)
    assert t is not None
    return (t - _EPOCH) // _MILLI


def millis_text(ms: float) -> str:
    """The text of milliseconds since 1970."""
    return instant_text(_EPOCH + int(ms) * _MILLI)


def monotonic() -> float:
    """The seconds of a clock that does not run backwards and that goes on while the machine sleeps, where the system has one."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(boot) if boot is not None else time.monotonic()
