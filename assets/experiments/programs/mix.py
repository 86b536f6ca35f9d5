"""The work of public benchmarks: parts of equal length, each with a model that answers requests or is trained.

    mix.py SECONDS PART...

A PART is one of

    train:MODEL:BATCH          a training without a pause
    answer:MODEL:BATCH:WHEN    a server that answers requests of BATCH inputs, one after the other

WHEN is `always` (the next request waits already), `N/s` (a Poisson stream of N requests a second), `load=P` (a Poisson stream that needs the
part P of the time), or `interval=P` (the next request comes from half to one and a half of an interval after the last one began, of which
an answer needs the part P). A request that comes while another one is answered waits, and its time counts from when it came; not so
under `interval`, where it comes only then. P is told by the mean of answers before the start, while no other program of the run works; all
runs of an experiment take that of the first, so that their requests come at the same times.

MODEL is bert, gpt2, transformer or a name of torchvision.models; random weights. The parts of all programs of a run begin together. With
$GRAPH an answer is one captured graph. Prints for each part PARTn_per_s, and of answers PARTn_p50_ms, PARTn_p95_ms, PARTn_p99_ms. Needs a GPU,
PyTorch, and transformers or torchvision; $DEVICE may name another device.
"""
import collections
import functools
import os
import random
import sys
import time
from statistics import mean

import torch
from common import Layer, captured
from figures import quantile
from together import measured_once, parts, start_together, undisturbed

DEVICE = os.environ.get("DEVICE", "cuda")
GRAPH = bool(os.environ.get("GRAPH"))


def network(name, batch):
    """Returns a model and its inputs."""
    torch.manual_seed(6)
    if name == "transformer":
        return torch.nn.Sequential(*[Layer(1024, 16) for _ in range(12)]), torch.randn(batch, 192, 1024)
    if name in ("bert", "gpt2"):
        from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2ForSequenceClassification

        kind = BertForSequenceClassification(BertConfig()) if name == "bert" else GPT2ForSequenceClassification(GPT2Config(pad_token_id=0))
        return kind, torch.randint(1, 30000, (batch, 192))
    import torchvision

    side = 32 if name.startswith("shufflenet") else 224
    model, images = torchvision.models.get_model(name), torch.randn(batch, 3, side, side)
    return model.to(memory_format=torch.channels_last), images.contiguous(memory_format=torch.channels_last)


def output(model, inputs):
    made = model(inputs)
    return made.logits if hasattr(made, "logits") else made


@functools.cache
def trained(name, batch):
    """Returns the step of a training in mixed precision; at most two steps are under way."""
    model, inputs = network(name, batch)
    model, inputs = model.to(DEVICE).train(), inputs.to(DEVICE)
    optimiser, under_way = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), collections.deque()

    def step():
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = output(model, inputs).float().square().mean()
        loss.backward()
        optimiser.step()
        if DEVICE == "cuda":
            under_way.append(torch.cuda.Event())
            under_way[-1].record()
            if len(under_way) > 2:
                under_way.popleft().synchronize()

    return step


@functools.cache
def answering(name, batch):
    """Returns what answers a request: from inputs in the host's memory to outputs there."""
    model, request = network(name, batch)
    model = model.to(DEVICE, torch.bfloat16).eval()
    if request.is_floating_point():
        request = request.bfloat16()
    inputs = request.to(DEVICE)
    if DEVICE == "cuda":
        request = request.pin_memory()

    def forward():
        return output(model, inputs)

    if GRAPH and DEVICE == "cuda":
        forward = captured(forward)

    @torch.no_grad()
    def answer():
        inputs.copy_(request, non_blocking=True)
        return forward().float().cpu()

    return answer


class Part:
    """A part: `run` works until a time, `say` prints the figures."""

    def __init__(self, words):
        kind, name, batch, *when = words.split(":")
        self.work = (trained if kind == "train" else answering)(name, int(batch))
        self.times = []
        with undisturbed():
            warm = [self.timed() for _ in range(60 if DEVICE == "cuda" else 2)]
            needs = measured_once(f"{kind}-{name}-{batch}", lambda: mean(warm[len(warm) // 3 :]))
        self.next = self.stream(when[0] if when else "always", needs)

    def timed(self):
        began = time.perf_counter()
        self.work()
        return time.perf_counter() - began

    @staticmethod
    def stream(when, needs):
        """Returns what gives the time of the next request: from when the last one came and from when it began."""
        draw = random.Random(7)
        if when == "always":
            return lambda came, began: time.perf_counter()
        if when.startswith("interval="):
            interval = needs / float(when[9:])
            return lambda came, began: max(time.perf_counter(), began + draw.uniform(interval / 2, interval * 3 / 2))
        rate = float(when[5:]) / needs if when.startswith("load=") else float(when.removesuffix("/s"))
        return lambda came, began: came + draw.expovariate(rate)

    def run(self, until):
        self.began = time.perf_counter()
        came = self.next(self.began, self.began)
        while max(came, time.perf_counter()) < until:
            while (left := came - time.perf_counter()) > 0:
                time.sleep(min(0.0002, left))
            began = time.perf_counter()
            self.work()
            self.ended = time.perf_counter()
            self.times.append((self.ended - came) * 1e3)
            came = self.next(came, began)

    def say(self, number):
        rate = len(self.times) / (self.ended - self.began) if self.times else 0.0
        shown = [f"{share}_ms={quantile(self.times, int(share[1:]) / 100):.3f}" for share in ("p50", "p95", "p99")]
        print(" ".join(f"part{number}_{figure}" for figure in [f"per_s={rate:.2f}", *shown]), flush=True)


seconds, all_parts = float(sys.argv[1]), [Part(words) for words in sys.argv[2:]]
start_together()
for part, until in parts(all_parts, seconds):
    part.run(until)
for number, part in enumerate(all_parts, 1):
    part.say(number)
