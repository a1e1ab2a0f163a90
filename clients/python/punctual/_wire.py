# Generated from /openapi.json by "go generate ./server". DO NOT EDIT.
"""The bodies of requests and answers, and the errors."""
from typing import Any, Dict, List, Literal, Type, TypedDict

from ._errors import PunctualError


Abilities = TypedDict(
    "Abilities",
    {
        "bounds_leases": bool,
        "duties": bool,
        "emit": bool,
        "follow": Literal["none", "family", "any"],
        "keys": bool,
    },
    total=False,
)


AmendAnswer = TypedDict(
    "AmendAnswer",
    {
        "results": List["AmendResult"],
    },
    total=False,
)


AmendItem = TypedDict(
    "AmendItem",
    {
        "at": str,
        "at_local": str,
        "change": Literal["cancel", "reschedule", "requeue", "delete"],
        "due": str,
        "id": str,
        "if_due": str,
        "in": str,
        "topic": str,
        "zone": str,
    },
    total=False,
)


AmendRequest = TypedDict(
    "AmendRequest",
    {
        "amendments": List["AmendItem"],
    },
    total=False,
)


AmendResult = TypedDict(
    "AmendResult",
    {
        "due": str,
        "error": "Problem",
        "id": str,
        "outcome": Literal["cancelled", "rescheduled", "requeued", "deleted"],
        "topic": str,
    },
    total=False,
)


BulkItem = TypedDict(
    "BulkItem",
    {
        "due": str,
        "id": str,
        "new_due": str,
    },
    total=False,
)


BulkReport = TypedDict(
    "BulkReport",
    {
        "changed": int,
        "complete": bool,
        "continued": str,
        "done": int,
        "error": "Problem",
        "failed": int,
        "failure": "Problem",
        "first": List["BulkItem"],
        "gone": int,
        "leased": int,
        "looked": int,
        "matched": int,
    },
    total=False,
)


BulkRequest = TypedDict(
    "BulkRequest",
    {
        "at": str,
        "at_local": str,
        "by": str,
        "do": str,
        "dry_run": bool,
        "due": str,
        "error": str,
        "from": str,
        "headers": Dict[str, str],
        "id": str,
        "id_prefix": str,
        "in": str,
        "key": str,
        "rate": int,
        "reason": str,
        "state": str,
        "to": str,
        "zone": str,
    },
    total=False,
)


CheckLine = TypedDict(
    "CheckLine",
    {
        "error": "Problem",
        "read": int,
        "report": "CheckReport",
    },
    total=False,
)


CheckReport = TypedDict(
    "CheckReport",
    {
        "dead": int,
        "live": int,
        "problems": List[str],
        "topics": int,
    },
    total=False,
)


ClaimAnswer = TypedDict(
    "ClaimAnswer",
    {
        "messages": List["Delivery"],
    },
    total=False,
)


ClaimRequest = TypedDict(
    "ClaimRequest",
    {
        "ids": List[str],
        "lease": str,
        "max": int,
        "per_topic": int,
        "topics": List[str],
        "wait": str,
    },
    total=False,
)


Clock = TypedDict(
    "Clock",
    {
        "now": str,
    },
    total=False,
)


ClockState = TypedDict(
    "ClockState",
    {
        "ahead": str,
        "follows": str,
        "from": str,
        "now": str,
        "steps": int,
        "to": str,
    },
    total=False,
)


Consumer = TypedDict(
    "Consumer",
    {
        "address": str,
        "claimed": int,
        "last_seen": str,
        "leases": int,
        "name": str,
        "next_end": str,
        "settled": int,
        "user": str,
        "waiting": int,
    },
    total=False,
)


Consumers = TypedDict(
    "Consumers",
    {
        "consumers": List["Consumer"],
        "others": "Consumer",
        "since": str,
    },
    total=False,
)


Delivery = TypedDict(
    "Delivery",
    {
        "attempt": int,
        "body": str,
        "body_base64": str,
        "created": str,
        "delivered": str,
        "drop_expired": bool,
        "due": str,
        "expires": str,
        "failures": List["Failure"],
        "first_due": str,
        "headers": Dict[str, str],
        "headers_base64": Dict[str, str],
        "id": str,
        "key": str,
        "late_ms": int,
        "lease_until": str,
        "max_attempts": int,
        "remember": str,
        "timeout": str,
        "token": str,
        "topic": str,
        "total_late_ms": int,
        "turn": str,
    },
    total=False,
)


Examination = TypedDict(
    "Examination",
    {
        "error": "Problem",
        "findings": List["Finding"],
    },
    total=False,
)


Failure = TypedDict(
    "Failure",
    {
        "at": str,
        "attempt": int,
        "error": str,
    },
    total=False,
)


Finding = TypedDict(
    "Finding",
    {
        "name": str,
        "remedy": str,
        "severity": Literal["good", "warning", "bad"],
        "value": str,
    },
    total=False,
)


Finished = TypedDict(
    "Finished",
    {
        "at": str,
        "attempt": int,
        "by": str,
        "created": str,
        "delivered": str,
        "due": str,
        "failures": List["Failure"],
        "first_due": str,
        "id": str,
        "kept_until": str,
        "outcome": Literal["acked", "cancelled", "expired"],
        "topic": str,
    },
    total=False,
)


FinishedPage = TypedDict(
    "FinishedPage",
    {
        "next": str,
        "records": List["Finished"],
    },
    total=False,
)


Forecast = TypedDict(
    "Forecast",
    {
        "beyond": int,
        "counts": List[int],
        "from": str,
        "overdue": int,
        "step": str,
        "topic": str,
    },
    total=False,
)


Health = TypedDict(
    "Health",
    {
        "reasons": List[str],
        "status": Literal["ok", "degraded"],
    },
    total=False,
)


Info = TypedDict(
    "Info",
    {
        "abilities": "Abilities",
        "checker": bool,
        "compact": int,
        "durability": Literal["fsync", "replicated", "volatile"],
        "examiner": bool,
        "farewell": bool,
        "inspector": bool,
        "limits": "Limits",
        "repeats": str,
        "service": str,
        "version": str,
    },
    total=False,
)


Limits = TypedDict(
    "Limits",
    {
        "max_batch": int,
        "max_body": int,
        "max_claim": int,
        "max_request": int,
        "max_wait": str,
        "max_window": int,
    },
    total=False,
)


Message = TypedDict(
    "Message",
    {
        "attempt": int,
        "body": str,
        "body_base64": str,
        "cancel_requested": bool,
        "created": str,
        "died": str,
        "drop_expired": bool,
        "due": str,
        "expires": str,
        "failures": List["Failure"],
        "first_due": str,
        "headers": Dict[str, str],
        "headers_base64": Dict[str, str],
        "id": str,
        "key": str,
        "lease_until": str,
        "max_attempts": int,
        "reason": Literal["discarded", "attempts used up", "expired"],
        "remember": str,
        "state": Literal["scheduled", "ready", "leased", "dead"],
        "timeout": str,
        "topic": str,
        "waiting": bool,
    },
    total=False,
)


Names = TypedDict(
    "Names",
    {
        "mark": str,
        "topics": List[str],
    },
    total=False,
)


Occurrence = TypedDict(
    "Occurrence",
    {
        "at": str,
        "due": str,
        "id": str,
        "status": str,
    },
    total=False,
)


Occurrences = TypedDict(
    "Occurrences",
    {
        "kept": int,
        "occurrences": List["Occurrence"],
        "stored": int,
    },
    total=False,
)


Page = TypedDict(
    "Page",
    {
        "messages": List["Message"],
        "next": str,
    },
    total=False,
)


Problem = TypedDict(
    "Problem",
    {
        "code": Literal["indeterminate", "invalid", "too_large", "unsupported", "not_found", "duplicate", "lease_lost", "cancelled", "leased", "not_dead", "changed", "paused", "closed", "overloaded", "unreachable", "unauthenticated", "forbidden", "no_space", "locked", "corrupt", "store_failed", "durability", "canceled", "deadline", "internal"],
        "definite": bool,
        "detail": str,
        "remedy": str,
        "status": int,
        "title": str,
        "type": str,
    },
    total=False,
)


Purged = TypedDict(
    "Purged",
    {
        "purged": int,
        "topic": str,
    },
    total=False,
)


PushAnswer = TypedDict(
    "PushAnswer",
    {
        "results": List["PushResult"],
    },
    total=False,
)


PushItem = TypedDict(
    "PushItem",
    {
        "at": str,
        "at_local": str,
        "body": str,
        "body_base64": str,
        "drop_expired": bool,
        "due": str,
        "expire": str,
        "headers": Dict[str, str],
        "headers_base64": Dict[str, str],
        "id": str,
        "if_due": str,
        "if_exists": Literal["keep", "replace", "replace-dead", "fail"],
        "in": str,
        "key": str,
        "max_attempts": int,
        "remember": str,
        "timeout": str,
        "topic": str,
        "zone": str,
    },
    total=False,
)


PushRequest = TypedDict(
    "PushRequest",
    {
        "messages": List["PushItem"],
    },
    total=False,
)


PushResult = TypedDict(
    "PushResult",
    {
        "due": str,
        "error": "Problem",
        "existing": Literal["scheduled", "ready", "leased", "dead"],
        "id": str,
        "result": Literal["stored", "duplicate", "replaced"],
        "topic": str,
    },
    total=False,
)


Schedule = TypedDict(
    "Schedule",
    {
        "body": str,
        "body_base64": str,
        "changed": str,
        "counts": "ScheduleCounts",
        "created": str,
        "drop_expired": bool,
        "ended": bool,
        "except": List[str],
        "expire": str,
        "from": str,
        "grace": str,
        "headers": Dict[str, str],
        "headers_base64": Dict[str, str],
        "key": str,
        "last": List["Occurrence"],
        "limit": int,
        "max_attempts": int,
        "max_dead": int,
        "missed": Literal["latest", "all", "none"],
        "name": str,
        "next": List["Occurrence"],
        "overdue": str,
        "overlap": Literal["skip", "allow", "replace"],
        "paused": "SchedulePause",
        "problem": str,
        "remember": str,
        "result": Literal["stored", "duplicate", "replaced"],
        "spec": str,
        "spread": str,
        "timeout": str,
        "topic": str,
        "until": str,
        "warnings": List[str],
        "words": str,
        "zone": str,
    },
    total=False,
)


ScheduleCounts = TypedDict(
    "ScheduleCounts",
    {
        "missed": int,
        "skipped": int,
        "stored": int,
    },
    total=False,
)


ScheduleItem = TypedDict(
    "ScheduleItem",
    {
        "body": str,
        "body_base64": str,
        "drop_expired": bool,
        "except": List[str],
        "expire": str,
        "from": str,
        "grace": str,
        "headers": Dict[str, str],
        "headers_base64": Dict[str, str],
        "key": str,
        "limit": int,
        "max_attempts": int,
        "max_dead": int,
        "missed": Literal["latest", "all", "none"],
        "overlap": Literal["skip", "allow", "replace"],
        "remember": str,
        "spec": str,
        "spread": str,
        "timeout": str,
        "until": str,
        "zone": str,
    },
    total=False,
)


SchedulePause = TypedDict(
    "SchedulePause",
    {
        "at": str,
        "by": str,
        "note": str,
    },
    total=False,
)


Schedules = TypedDict(
    "Schedules",
    {
        "next": str,
        "schedules": List["Schedule"],
    },
    total=False,
)


Settings = TypedDict(
    "Settings",
    {
        "backoff": str,
        "dead_retention": str,
        "dedupe_window": str,
        "delivery_paused": bool,
        "emit": str,
        "emit_keep": str,
        "finished_retention": str,
        "groups": List[str],
        "in_order": bool,
        "keyed": bool,
        "late_after": str,
        "lease": str,
        "max_attempts": int,
        "max_key_leases": int,
        "max_key_rate": str,
        "max_leases": int,
        "max_rate": str,
        "partitions": int,
        "push_paused": bool,
    },
    total=False,
)


SettingsPatch = TypedDict(
    "SettingsPatch",
    {
        "backoff": str,
        "dead_retention": str,
        "dedupe_window": str,
        "delivery_paused": bool,
        "emit": str,
        "emit_keep": str,
        "finished_retention": str,
        "groups": List[str],
        "if": Any,
        "in_order": bool,
        "keyed": bool,
        "late_after": str,
        "lease": str,
        "max_attempts": int,
        "max_key_leases": int,
        "max_key_rate": str,
        "max_leases": int,
        "max_rate": str,
        "partitions": int,
        "push_paused": bool,
    },
    total=False,
)


SettleAnswer = TypedDict(
    "SettleAnswer",
    {
        "results": List["SettleResult"],
    },
    total=False,
)


SettleBody = TypedDict(
    "SettleBody",
    {
        "then": List["PushItem"],
    },
    total=False,
)


SettleItem = TypedDict(
    "SettleItem",
    {
        "at": str,
        "at_local": str,
        "due": str,
        "error": str,
        "id": str,
        "in": str,
        "then": List["PushItem"],
        "token": str,
        "topic": str,
        "verb": Literal["ack", "retry", "snooze", "discard", "release", "extend"],
        "zone": str,
    },
    total=False,
)


SettleRequest = TypedDict(
    "SettleRequest",
    {
        "settlements": List["SettleItem"],
    },
    total=False,
)


SettleResult = TypedDict(
    "SettleResult",
    {
        "error": "Problem",
        "id": str,
        "topic": str,
    },
    total=False,
)


Space = TypedDict(
    "Space",
    {
        "free": int,
        "reserve": int,
        "total": int,
    },
    total=False,
)


StreamLine = TypedDict(
    "StreamLine",
    {
        "error": "Problem",
        "message": "Delivery",
    },
    total=False,
)


Topic = TypedDict(
    "Topic",
    {
        "dead": int,
        "leased": int,
        "next_due": str,
        "ready": int,
        "scheduled": int,
        "settings": "Settings",
        "topic": str,
        "waiting": int,
    },
    total=False,
)


Topics = TypedDict(
    "Topics",
    {
        "topics": List["Topic"],
    },
    total=False,
)


class IndeterminateError(PunctualError):
    """The operation may or may not have happened; repeat it with the same ID, or look."""

    code = "indeterminate"
    definite = False
    remedy = "Repeat it with the same ID or request key, or look."


class InvalidError(PunctualError):
    """An argument is malformed; the text says which and what to use instead."""

    code = "invalid"
    definite = True
    remedy = "Mend the request; the detail says what."


class TooLargeError(PunctualError):
    """A body, header or batch is beyond its limit."""

    code = "too_large"
    definite = True
    remedy = "Send less at a time; GET /v1 lists the limits."


class UnsupportedError(PunctualError):
    """This store does not have the operation."""

    code = "unsupported"
    definite = True
    remedy = "Use another way, or another store below the server."


class NotFoundError(PunctualError):
    """There is no such message or topic."""

    code = "not_found"
    definite = True
    remedy = "It is finished, was removed, or never was; the detail says if it is something else."


class DuplicateError(PunctualError):
    """The ID is already in use by a dead message, or by any message and the push asked to fail then."""

    code = "duplicate"
    definite = True
    remedy = "Use another ID, requeue the message if it is dead, or say if_exists=replace."


class LeaseLostError(PunctualError):
    """The token is not the current one; somebody else may work on the message."""

    code = "lease_lost"
    definite = True
    remedy = "Drop the work; another claim brings the message if it is still to be done."


class CancelledError(PunctualError):
    """The message was cancelled while leased; it ends with this attempt."""

    code = "cancelled"
    definite = True
    remedy = "Drop the work, or ack it."


class LeasedError(PunctualError):
    """Somebody works on the message; after a cancel no further attempt will be made."""

    code = "leased"
    definite = True
    remedy = "Somebody works on it: look again when that has ended."


class NotDeadError(PunctualError):
    """Only a dead message can be requeued."""

    code = "not_dead"
    definite = True
    remedy = "Reschedule a message that is to be delivered."


class ChangedError(PunctualError):
    """The message is not due at the instant named any more, or the topic has other settings than those named; somebody changed them meanwhile."""

    code = "changed"
    definite = True
    remedy = "Read the message again, and decide anew."


class PausedError(PunctualError):
    """The topic takes no messages for now."""

    code = "paused"
    definite = True
    remedy = "Let pushes in again with POST /v1/topics/TOPIC/resume."


class ClosedError(PunctualError):
    """The store, queue or worker was closed."""

    code = "closed"
    definite = True
    remedy = "Try again; the server is ending or starting anew."


class OverloadedError(PunctualError):
    """Too much is under way; try again later."""

    code = "overloaded"
    definite = True
    remedy = "Try again after the time of Retry-After."


class UnreachableError(PunctualError):
    """No server answers; the call was never sent, or only read."""

    code = "unreachable"
    definite = True
    remedy = "See that the storage below the server runs, then try again."


class UnauthenticatedError(PunctualError):
    """The server asks for credentials and got none that are valid."""

    code = "unauthenticated"
    definite = True
    remedy = "Send a valid token: Authorization: Bearer TOKEN."


class ForbiddenError(PunctualError):
    """The server does not let these credentials, or this origin, do it."""

    code = "forbidden"
    definite = True
    remedy = "Use credentials that may do this."


class NoSpaceError(PunctualError):
    """The storage is nearly full; pushes are refused, acks and cancels pass."""

    code = "no_space"
    definite = True
    remedy = "Free some space, or purge what is not needed; acks and cancels pass."


class LockedError(PunctualError):
    """Another process owns the store."""

    code = "locked"
    definite = True
    remedy = "End the other owner of the store, or try again."


class CorruptError(PunctualError):
    """Stored data is damaged; nothing was skipped or repaired."""

    code = "corrupt"
    definite = True
    remedy = "Keep a copy of the storage as it is; a check lists what is wrong."


class StoreFailedError(PunctualError):
    """The storage failed earlier and the store has stopped; mend it and reopen."""

    code = "store_failed"
    definite = True
    remedy = "Mend the storage, then start the server again."


class DurabilityError(PunctualError):
    """The server cannot give the durability asked for."""

    code = "durability"
    definite = True
    remedy = "See what the storage stands on with 'punctual doctor'."


__all__ = [
    "IndeterminateError",
    "InvalidError",
    "TooLargeError",
    "UnsupportedError",
    "NotFoundError",
    "DuplicateError",
    "LeaseLostError",
    "CancelledError",
    "LeasedError",
    "NotDeadError",
    "ChangedError",
    "PausedError",
    "ClosedError",
    "OverloadedError",
    "UnreachableError",
    "UnauthenticatedError",
    "ForbiddenError",
    "NoSpaceError",
    "LockedError",
    "CorruptError",
    "StoreFailedError",
    "DurabilityError",
]

ERRORS: Dict[str, Type[PunctualError]] = {
    "indeterminate": IndeterminateError,
    "invalid": InvalidError,
    "too_large": TooLargeError,
    "unsupported": UnsupportedError,
    "not_found": NotFoundError,
    "duplicate": DuplicateError,
    "lease_lost": LeaseLostError,
    "cancelled": CancelledError,
    "leased": LeasedError,
    "not_dead": NotDeadError,
    "changed": ChangedError,
    "paused": PausedError,
    "closed": ClosedError,
    "overloaded": OverloadedError,
    "unreachable": UnreachableError,
    "unauthenticated": UnauthenticatedError,
    "forbidden": ForbiddenError,
    "no_space": NoSpaceError,
    "locked": LockedError,
    "corrupt": CorruptError,
    "store_failed": StoreFailedError,
    "durability": DurabilityError,
}
