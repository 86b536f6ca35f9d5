"""Asks the servers of serve_llm.py over HTTP, and measures the time to the first token.

    ask_llms.py SECONDS SERVERS

Asks each server twice, then the next, one request at a time: the first of two finds a model that may have left the GPU, the second one
that is there. Prints first_p50_ms, first_p99_ms, again_p50_ms, again_p99_ms, requests, and wrong (answers that are not those of the
first time).
"""
import json
import sys
import time

from figures import quantile
from llm_http import answer_of
from together import FOLDER, start_together

seconds, servers, expected, wrong = float(sys.argv[1]), int(sys.argv[2]), None, 0


def ask(port):
    """Returns the milliseconds to the first token, and the answer."""
    begin, first, text = time.perf_counter(), None, ""
    with answer_of(port, tokens=8, stream=True) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line[6:]).get("choices", []):
                if choice.get("delta", {}).get("content"):
                    first = first or (time.perf_counter() - begin) * 1e3
                    text += choice["delta"]["content"]
    if first is None:
        sys.exit("an answer without a token")
    return first, text


start_together()
ports = [path.name.split(".")[1] for path in FOLDER.glob("llm.[0-9]*")]
if len(ports) != servers:
    sys.exit(f"{len(ports)} of {servers} servers are ready")
for port in ports:
    ask(port)
times, end = ([], []), time.perf_counter() + seconds
while time.perf_counter() < end:
    for port in ports:
        for turn in range(2):
            first, text = ask(port)
            expected = expected or text
            wrong += text != expected
            times[turn].append(first)
print(
    f"first_p50_ms={quantile(times[0], 0.5):.1f} first_p99_ms={quantile(times[0], 0.99):.1f} again_p50_ms={quantile(times[1], 0.5):.1f}"
    f" again_p99_ms={quantile(times[1], 0.99):.1f} requests={len(times[0]) + len(times[1])} wrong={wrong}",
    flush=True,
)
