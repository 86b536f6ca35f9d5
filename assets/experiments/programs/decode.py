"""A server that generates text: one captured graph for each token, four requests resident.

    decode.py SECONDS

Random weights, 24 layers of width 2560. Prints one line: tokens_per_s, and p50_ms and p99_ms between tokens. Needs
PyTorch and a GPU.
"""
import sys
import time

import torch
from common import Layer, captured
from figures import quantile
from together import start_together

seconds = float(sys.argv[1])
torch.manual_seed(3)
model = torch.nn.Sequential(*[Layer(2560, 20) for _ in range(24)]).cuda().bfloat16().eval()
token = torch.randn(4, 1, 2560, device="cuda", dtype=torch.bfloat16)
replay = captured(lambda: model(token))
for _ in range(20):
    replay()
torch.cuda.synchronize()
start_together()
begin = last = time.perf_counter()
gaps = []
while last < begin + seconds:
    replay()[0, 0, 0].item()
    now = time.perf_counter()
    gaps.append((now - last) * 1e3)
    last = now
tokens = 4 * len(gaps) / (last - begin)
print(f"tokens_per_s={tokens:.1f} p50_ms={quantile(gaps, 0.5):.2f} p99_ms={quantile(gaps, 0.99):.2f}", flush=True)
