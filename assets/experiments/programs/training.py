"""A training: a transformer of eight layers, forward, backward and optimiser without a pause.

    training.py SECONDS [PART]

Random weights and data. With PART, a number below 1, each step also changes that part of the GPU's memory, as an optimiser with
much state does. Prints one line: steps_per_s. Needs PyTorch and a GPU.
"""
import sys
import time

import torch
from common import training
from together import start_together

seconds = float(sys.argv[1])
step = training()
ballast = None
if len(sys.argv) > 2:
    total = torch.cuda.get_device_properties(0).total_memory
    ballast = torch.zeros(int(total * float(sys.argv[2])) // 4, device="cuda")


def next_loss():
    loss = step()
    if ballast is not None:
        ballast.add_(1)
    return loss


for _ in range(5):
    next_loss()
start_together()
begin, steps = time.perf_counter(), 0
while time.perf_counter() < begin + seconds:
    loss = next_loss()
    steps += 1
    if steps % 10 == 0:
        loss.item()
torch.cuda.synchronize()
print(f"steps_per_s={steps / (time.perf_counter() - begin):.2f}", flush=True)
