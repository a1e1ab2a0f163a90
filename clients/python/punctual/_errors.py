"""The root of all errors. The kinds, one for each code, are in _wire.py."""

from __future__ import annotations

from typing import Any, Mapping, Optional


class PunctualError(Exception):
    """An operation failed.

    ``definite`` says whether the operation certainly did not happen. ``code`` is the same in every
    language, and ``remedy`` says what to do.
    """

    code: str = "internal"
    definite: bool = False
    remedy: str = "Look whether it happened; the server's log says more."

    def __init__(
        self, detail: str, *, code: Optional[str] = None, definite: Optional[bool] = None,
        remedy: Optional[str] = None, status: int = 0, retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        if code is not None:
            self.code = code
        if definite is not None:
            self.definite = definite
        if remedy:
            self.remedy = remedy
        self.status = status
        """The status of the server's answer, or 0 if the error is the client's own."""
        self.retry_after = retry_after
        """After how many seconds the server asks to try again, if it says so."""

    def __str__(self) -> str:
        return f"{self.detail} ({self.code}; {'did not happen' if self.definite else 'may have happened'}). {self.remedy}"


def error_of(problem: Mapping[str, Any], retry_after: Optional[float] = None) -> PunctualError:
    """The error that a problem in an answer says."""
    from ._wire import ERRORS

    code = str(problem.get("code", "internal"))
    kind = ERRORS.get(code, PunctualError)
    return kind(
        str(problem.get("detail", "")), code=code, definite=bool(problem.get("definite")),
        remedy=problem.get("remedy"), status=int(problem.get("status", 0)), retry_after=retry_after,
    )
