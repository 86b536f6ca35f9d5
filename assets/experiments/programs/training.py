"""A training: a transformer of eight layers, forward, backward and optimiser without a pause.

    training.py SECONDS [PART]

Random weights and data. With PART, a number below 1, each step also changes that part of the GPU's memory, as an optimiser with
much state does. Prints steps_per_s, a line for each round. Needs PyTorch and a GPU.
"""
import sys
import time

import torch
from common import training
from figures import Rounds
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
steps, submitted = Rounds(seconds), 0
while time.perf_counter() < steps.begin + seconds:
    loss = next_loss()
    submitted += 1
    if submitted % 10 == 0:
        loss.item()
        steps.done(10)
torch.cuda.synchronize()
steps.done(submitted % 10)
for rate in steps.per_second():
    print(f"steps_per_s={rate:.2f}", flush=True)
