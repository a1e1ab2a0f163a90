"""Writes what testdata/celery-5.2.6.ndjson holds, with Celery 5.2.6, kombu 5.2.4 and redis-py 4.3.4.

redis-server --port 7999 --save '' & PYTHONPATH=. python3 write.py > ../celery-5.2.6.ndjson

The queue held is what a worker has given back that was stopped with TERM.
"""
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone

import redis
from celery import Celery

app = Celery("write", broker="redis://127.0.0.1:7999/0")


@app.task(name="order.close")
def close(no, why=None):
    print("closed", no)


def write():
    later = datetime(2100, 12, 1, 9, 0, 0, 1, tzinfo=timezone(timedelta(hours=1)))
    close.apply_async(["A-1"], eta=later, task_id="A-1")
    close.apply_async(["A-2"], {"why": "late"}, eta=later, expires=later + timedelta(minutes=15), task_id="A-2", priority=5)
    close.apply_async(["A-3"], task_id="A-3", retries=2, headers={"tenant": "t1", "weight": 7})
    close.apply_async(["A-4"], eta=later, task_id="A-4", queue="mail", priority=9, time_limit=30, soft_time_limit=20)
    (close.s("A-5").set(task_id="A-5") | close.si("A-6")).apply_async(eta=later)
    close.apply_async(["A-7"], eta=later, task_id="A-7", link=close.si("A-8"))
    close.apply_async(["A-9"], eta=later, task_id="A-9", serializer="pickle")
    close.apply_async(["A-10"], eta=later, expires=later - timedelta(minutes=15), task_id="A-10")
    close.apply_async(["A-11"], eta=later, task_id="A-11", queue="held")
    worker = subprocess.Popen([sys.executable, "-m", "celery", "-A", "write", "worker", "-Q", "held", "-c", "1"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "C_FORCE_ROOT": "1"})
    r = redis.Redis(port=7999, decode_responses=True)
    while r.hlen("unacked") == 0:
        time.sleep(0.1)
    time.sleep(2)
    worker.send_signal(signal.SIGTERM)
    worker.wait()
    for key in sorted(r.keys("*")):
        if r.type(key) == "list":
            print(json.dumps({"key": key, "list": r.lrange(key, 0, -1)}))
        elif r.type(key) == "set":
            print(json.dumps({"key": key, "set": sorted(r.smembers(key))}))


if __name__ == "__main__":
    write()
