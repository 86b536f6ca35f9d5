"""Asks the servers of model_server.py, and measures the time to the first token.

    ask_models.py SECONDS SERVERS AWAKE [zipf|turns]

First one request at a time to a random server, 0.1 s after the last was answered; `zipf` instead begins a request each
second, to server n with a probability as 1/n, whether the last was answered or not; `turns` asks one after the other.
Then three times all servers at once. A first token after more than 50 ms counts as one of a model that was not on the
GPU. $MODEL_MODE `hand` and `restart` let at most AWAKE models be on the GPU: the least recently asked one leaves first.

Prints p50_ms, out_p50_ms, out_p99_ms (not on the GPU), in_p50_ms (on the GPU), burst_ms (the last of all at once, median),
requests, out (how many were not on the GPU), wrong (answers that are not those of the first time).
"""
import os
import random
import socket
import sys
import threading
import time

from figures import quantile
from together import FOLDER, start_together

TOKENS, OUT = 8, 50
seconds, servers, awake = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
pattern = sys.argv[4] if len(sys.argv) > 4 else "random"
moved_by_hand = bool(os.environ.get("MODEL_MODE"))
chance = random.Random(1)
expected, wrong, router = {}, [], threading.Condition()
resident, busy = [], {}


def lines(server, *words):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(FOLDER / f"model{server}"))
        with connection.makefile("rw") as stream:
            print(*words, file=stream, flush=True)
            for line in stream:
                yield line.split()
                if line.startswith("done"):
                    return


def make_room(server):
    """What a router in front of sleeping servers does: puts the least recently asked idle one to sleep, and wakes this one."""
    with router:
        while True:
            if server in resident:
                resident.remove(server)
                resident.append(server)
                busy[server] = busy.get(server, 0) + 1
                return
            idle = [one for one in resident if not busy.get(one)]
            if len(resident) < awake or idle:
                break
            router.wait()
        if len(resident) >= awake:
            resident.remove(idle[0])
            list(lines(idle[0], "sleep"))
        list(lines(server, "wake"))
        resident.append(server)
        busy[server] = busy.get(server, 0) + 1


def ask(server):
    """Returns the time to the first token."""
    begin = time.perf_counter()
    if moved_by_hand:
        make_room(server)
    first = None
    for word, *tokens in lines(server, "ask", TOKENS):
        if word == "first":
            first = time.perf_counter() - begin
        elif expected.setdefault(server, tokens) != tokens:
            wrong.append(server)
    if moved_by_hand:
        with router:
            busy[server] -= 1
            router.notify_all()
    if first is None:
        sys.exit(f"server {server} has ended")
    return first


def together(asked):
    """Asks servers at the same moment. Returns the times to the first token."""
    times = []
    threads = [threading.Thread(target=lambda one=one: times.append(ask(one))) for one in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(times) != len(threads):
        os._exit(1)
    return times


start_together()
for server in range(servers):
    ask(server)
times, end, turn = [], time.perf_counter() + seconds, 0
if pattern == "zipf":
    weights = [1 / (server + 1) for server in range(servers)]
    under_way, next_time = [], time.perf_counter()
    while next_time < end:
        time.sleep(max(0, next_time - time.perf_counter()))
        [server] = chance.choices(range(servers), weights)
        under_way.append(threading.Thread(target=lambda server=server: times.append(ask(server))))
        under_way[-1].start()
        next_time += 1
    for thread in under_way:
        thread.join()
else:
    while time.perf_counter() < end:
        server = turn % servers if pattern == "turns" else chance.randrange(servers)
        turn += 1
        times.append(ask(server))
        time.sleep(0.1)
bursts = []
for _ in range(3):
    time.sleep(2)
    bursts.append(max(together(range(servers))))
times, bursts = [one * 1e3 for one in times], [one * 1e3 for one in bursts]
away = [one for one in times if one > OUT]
here = [one for one in times if one <= OUT]
print(
    f"p50_ms={quantile(times, 0.5):.1f} in_p50_ms={quantile(here, 0.5):.1f} out_p50_ms={quantile(away, 0.5):.1f}"
    f" out_p99_ms={quantile(away, 0.99):.1f} burst_ms={quantile(bursts, 0.5):.1f} requests={len(times)} out={len(away)}"
    f" wrong={len(wrong)}",
    flush=True,
)
