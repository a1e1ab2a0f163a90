"""Client and worker for Punctual, which delivers a message at the time asked for."""

from ._errors import PunctualError
from ._wire import *  # noqa: F401,F403 an error for each code
from .client import Amended, AsyncClient, Client, Delivery, PushedMessage, message, settlement
from .worker import Discard, Follow, Message, RetryAfter, Snooze, Worker

__all__ = [
    "Amended", "AsyncClient", "Client", "Delivery", "Discard", "Follow", "Message", "PunctualError", "PushedMessage", "RetryAfter", "Snooze", "Worker",
    "message", "settlement",
]
