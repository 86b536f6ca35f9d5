"""An inference server of one model: a transformer, one request at a time, requests in a Poisson stream.

    inference.py SECONDS [RATE]

Random weights. Latency counts from when a request arrives, so that one that queues behind another counts whole.
Prints a line for each round: p50_ms, p99_ms and how many requests there were. Needs PyTorch and a GPU.
"""
import random
import sys
import time

import torch
from common import Layer
from figures import Rounds, quantile
from together import end_of_last_stop, start_together

seconds, rate = float(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 40.0
torch.manual_seed(1)
model = torch.nn.Sequential(*[Layer(1024, 16) for _ in range(12)]).cuda().bfloat16().eval()
request = torch.randn(1, 128, 1024).bfloat16().pin_memory()


@torch.no_grad()
def answer():
    return model(request.cuda(non_blocking=True))[0, -1].float().cpu()


for _ in range(30):
    answer()
start_together()
draw = random.Random(7)
begin = time.perf_counter()
arrival, latencies = begin, Rounds(seconds, begin)
while True:
    arrival = max(arrival, end_of_last_stop()) + draw.expovariate(rate)
    if arrival > begin + seconds:
        break
    while time.perf_counter() < arrival:
        time.sleep(max(0.0, min(0.0002, arrival - time.perf_counter())))
    answer()
    latencies.took(arrival, (time.perf_counter() - arrival) * 1e3)
for latency in latencies.values():
    print(f"p50_ms={quantile(latency, 0.5):.2f} p99_ms={quantile(latency, 0.99):.2f} requests={len(latency)}", flush=True)
