"""Carries out the steps of scenarios that a client has to do: commands come as lines of JSON on
standard input, answers and events go as lines to standard output. See ../../scenarios/README.md."""

import asyncio
import json
import os
import sys
import threading
import time
from datetime import datetime

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import punctual  # noqa: E402

lock = threading.Lock()


def say(**line):
    with lock:
        sys.stdout.write(json.dumps(line, default=shown) + "\n")
        sys.stdout.flush()


def shown(value):
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    if isinstance(value, punctual.PunctualError):
        return {"code": value.code, "definite": value.definite, "detail": value.detail, "remedy": value.remedy}
    if hasattr(value, "raw"):
        return value.raw
    return vars(value)


def code_of(error):
    if error is None:
        return ""
    return {"TimeoutError": "deadline", "CancelledError": "canceled"}.get(type(error).__name__, "internal") if not isinstance(error, punctual.PunctualError) else error.code


class Runner:
    def __init__(self):
        self.client = self.worker = None
        self.gates, self.once = {}, set()

    def open(self, record=False, **options):
        self.loop = None
        if options.pop("async", False):  # calls and the worker are those of asyncio
            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.client = punctual.Client(options.pop("urls"), **options)
        if record:
            self.record(self.client.transport)

    def record(self, transport):
        """Tells of each call and its answer, for the ledger."""
        call, counter = transport.call, [0]

        def recorded(method, path, body=None, **options):
            with lock:
                counter[0] += 1
                n = counter[0]
            wanted = method == "POST" and path in ("/v1/push", "/v1/claim", "/v1/settle", "/v1/amend") and not options.get("not_after") and options.get("retry_for") != 3  # the last two release what a claim that was ended had leased
            if wanted:
                say(line="call", k=n, path=path, request=body, at=int(time.time() * 1000))
            try:
                answer = call(method, path, body, **options)
            except punctual.PunctualError as e:
                if wanted:
                    say(line="answer", k=n, error=e, at=int(time.time() * 1000))
                raise
            if wanted:
                say(line="answer", k=n, answer=answer.body or {}, doubt=answer.doubt, at=int(time.time() * 1000))
            return answer

        transport.call = recorded

    def work(self, topics, **options):
        self.worker = punctual.Worker(self.client, observer=self.observe, **options)
        for t in topics:
            t = dict(t)
            self.worker.handle(t.pop("topic"), self.coroutine if t.pop("async", False) else self.handle, **t)
        if self.loop is None:
            self.worker.start()
        else:
            self.wait(self.worker.__aenter__())

    def stop(self, **options):
        if self.loop is None:
            self.worker.stop(**options)
        else:
            self.wait(self.worker.__aexit__())

    def wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def gate(self, *ids):
        for id in ids:
            self.gate_of(id).set()

    def gate_of(self, id):
        with lock:
            return self.gates.setdefault(id, threading.Event())

    def observe(self, event, message, error, verb):
        if message is None:
            say(event=event, code=code_of(error), detail=str(error))
            return
        say(event=event, topic=message.topic, id=message.id, attempt=message.attempt, token=message.token, life=message.headers.get("name", ""),
            until=message.raw["lease_until"], verb=verb, code=code_of(error), at=int(time.time() * 1000))

    def plan(self, message):
        plan = json.loads(message.headers.get("plan", "{}"))
        return plan.get(str(message.attempt), plan.get("*", plan))

    def handle(self, message):
        plan = self.plan(message)
        until = time.monotonic() + plan.get("sleep", 0)
        while time.monotonic() < until and (plan.get("deaf") or not message.ended.is_set()):
            time.sleep(0.002)
        while plan.get("gate") and not self.gate_of(message.id).is_set() and (plan.get("deaf") or not message.ended.is_set()):
            time.sleep(0.002)
        if message.ended.is_set() and not plan.get("deaf"):
            say(event="told", topic=message.topic, id=message.id, attempt=message.attempt, code=code_of(message.reason))
            raise message.reason
        return self.end(message, plan)

    async def coroutine(self, message):
        plan = self.plan(message)
        try:
            await asyncio.sleep(plan.get("sleep", 0))
            while plan.get("gate") and not self.gate_of(message.id).is_set():
                await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            say(event="told", topic=message.topic, id=message.id, attempt=message.attempt, code=code_of(message.reason))
            raise
        return self.end(message, plan)

    def end(self, message, plan):
        how = plan.get("end", "ack")
        if "once" in plan and message.id not in self.once:
            self.once.add(message.id)
            how = plan["once"]
        then = [punctual.message(**m) for m in plan.get("then", [])]
        if how == "fail":
            raise ValueError("as planned")
        if how == "retry":
            raise punctual.RetryAfter(plan["delay"], "as planned")
        if how == "snooze":
            raise punctual.Snooze(plan["delay"], then=then)
        if how == "discard":
            raise punctual.Discard("as planned", then=then)
        return punctual.Follow(*then) if then else None

    def call(self, method, args, options):
        if self.loop is not None:
            return self.wait(self.call_async(method, args, options))
        result = getattr(self.client, method)(*args, **options)
        if hasattr(result, "__next__"):
            result = list(result)
        return result

    async def call_async(self, method, args, options):
        client = punctual.AsyncClient(self.client)
        result = getattr(client, method)(*args, **options)
        return [item async for item in result] if hasattr(result, "__anext__") else await result

    def push_many(self, *messages):
        return self.client.push_many(punctual.message(**m) for m in messages)

    def carry_out(self, command):
        try:
            do = command["do"]
            if do == "call":
                value = self.call(command["call"], command.get("args") or [], command.get("options") or {})
            elif do in ("gate", "push_many"):
                value = getattr(self, do)(*command["args"])
            else:
                value = getattr(self, do)(**(command.get("options") or {}))
            say(n=command["n"], value=value)
        except BaseException as e:
            say(n=command["n"], error={"code": code_of(e), "definite": getattr(e, "definite", False), "detail": str(e)})


def main():
    runner = Runner()
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "open":  # the calls after it need it
            runner.carry_out(command)
        else:
            threading.Thread(target=runner.carry_out, args=(command,), daemon=True).start()


main()
