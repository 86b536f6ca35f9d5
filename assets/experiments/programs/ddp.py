"""A training on several GPUs, one process each (DistributedDataParallel over NCCL), without a pause.

    torchrun --standalone --nproc-per-node 2 ddp.py SECONDS

Random weights and data. The first process prints one line: steps_per_s. Needs PyTorch and as many GPUs as processes.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
from common import training
from together import start_together
from torch.nn.parallel import DistributedDataParallel

seconds, rank = float(sys.argv[1]), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
step = training(lambda model: DistributedDataParallel(model, device_ids=[rank]))


def go_on(wanted):
    """What the first process decides holds for all: none may wait for a step that another does not make."""
    flag = torch.tensor([float(wanted)], device="cuda")
    dist.broadcast(flag, 0)
    return flag.item() > 0


for _ in range(5):
    step()
torch.cuda.synchronize()
dist.barrier()
if rank == 0:
    start_together()
go_on(True)
begin, steps = time.perf_counter(), 0
while True:
    step()
    steps += 1
    if steps % 10 == 0 and not go_on(time.perf_counter() < begin + seconds):
        break
torch.cuda.synchronize()
if rank == 0:
    print(f"steps_per_s={steps / (time.perf_counter() - begin):.2f}", flush=True)
dist.destroy_process_group()
