"""A server of a decoder of 4 billion parameters (the sizes of Qwen3-4B, random weights): prompts of 2 048 tokens, answers of 256.

    decoder.py SECONDS RESIDENT...

For each RESIDENT an equal part of the time, with so many requests resident on the GPU, in all copies of this program together: each of
$COPIES copies has its part of them. When an answer ends, the next prompt is read; a token of all others is one captured graph.
Prints for each part tokens_RESIDENT (tokens a second) and gap_RESIDENT_ms (the 99th percentile between tokens). Needs PyTorch and a GPU;
under $DEVICE the model is a tiny one.
"""
import functools
import os
import sys
import time

import torch
from common import captured
from figures import quantile
from together import parts, start_together
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu

DEVICE, COPIES = os.environ.get("DEVICE", "cuda"), int(os.environ.get("COPIES", "1"))
WIDTH, GROUPS, GROUP, SIDE, INNER, LAYERS, WORDS = (2560, 8, 4, 128, 9728, 36, 151936) if DEVICE == "cuda" else (64, 2, 2, 16, 128, 2, 1000)
PROMPT, ANSWER = (2048, 256) if DEVICE == "cuda" else (32, 8)
seconds, residents = float(sys.argv[1]), [int(word) for word in sys.argv[2:]]
most = max(residents) // COPIES
torch.manual_seed(7)
torch.set_grad_enabled(False)


def weights(rows, columns):
    return torch.randn(rows, columns, device=DEVICE, dtype=torch.bfloat16).mul_(0.02)


words = weights(WORDS, WIDTH)
heads, values = GROUPS * GROUP * SIDE, GROUPS * SIDE
layers = [(weights(heads + 2 * values, WIDTH), weights(WIDTH, heads), weights(2 * INNER, WIDTH), weights(WIDTH, INNER)) for _ in range(LAYERS)]
cache = torch.zeros(LAYERS, 2, most, GROUPS, PROMPT + ANSWER, SIDE, device=DEVICE, dtype=torch.bfloat16)
prompt = torch.randint(WORDS, (PROMPT,), device=DEVICE)
token = torch.zeros(most, dtype=torch.long, device=DEVICE)
place = torch.full((most,), PROMPT, device=DEVICE)
slots, places = torch.arange(most, device=DEVICE), torch.arange(PROMPT + ANSWER, device=DEVICE)


def run(tokens, attend):
    """Returns the next token of each row of tokens. `attend` keeps a layer's keys and values, and gives what the queries find."""
    x = embedding(tokens, words)
    for number, (ask, tell, up, down) in enumerate(layers):
        parts_of = linear(rms_norm(x, (WIDTH,)), ask).split([heads, values, values], dim=-1)
        x = x + linear(attend(number, *parts_of), tell)
        gate, inner = linear(rms_norm(x, (WIDTH,)), up).chunk(2, dim=-1)
        x = x + linear(silu(gate) * inner, down)
    return x


def next_of(x):
    return linear(rms_norm(x, (WIDTH,)), words).argmax(-1)


def read_prompt(slot):
    """Reads a prompt into a slot, and writes the first token of its answer."""

    def attend(number, query, key, value):
        query = query.view(PROMPT, GROUPS * GROUP, SIDE).transpose(0, 1)
        key, value = (one.view(PROMPT, GROUPS, SIDE).transpose(0, 1) for one in (key, value))
        cache[number, 0, slot, :, :PROMPT], cache[number, 1, slot, :, :PROMPT] = key, value
        found = scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True, enable_gqa=True)[0]
        return found.transpose(0, 1).reshape(PROMPT, heads)

    token[slot] = next_of(run(prompt, attend)[-1])
    place[slot] = PROMPT


def write_token(count):
    """Writes a token of the answers in the first slots."""
    rows, at = slots[:count], place[:count]
    seen = (places <= at[:, None])[:, None, None]

    def attend(number, query, key, value):
        keys, known = cache[number, 0, :count], cache[number, 1, :count]
        keys[rows, :, at], known[rows, :, at] = key.view(count, GROUPS, SIDE), value.view(count, GROUPS, SIDE)
        # The heads of a group are like several queries for its keys.
        found = scaled_dot_product_attention(query.view(count, GROUPS, GROUP, SIDE), keys, known, attn_mask=seen)
        return found.reshape(count, heads)

    token[:count] = next_of(run(token[:count], attend))
    place[:count] += 1


class Part:
    """A part of the time with so many resident requests."""

    def __init__(self, resident):
        self.resident, self.count = resident, resident // COPIES
        self.write = functools.partial(write_token, self.count)
        if DEVICE == "cuda":
            self.write = captured(self.write, warm_up=1)

    def serve(self, until):
        place[:self.count] = PROMPT
        # The answers end one after the other, as they do after a while.
        left = [(ANSWER - 1) * (slot + 1) // self.count for slot in range(self.count)]
        begin = last = time.perf_counter()
        written, gaps = 0, []
        while last < until:
            for slot in range(self.count):
                if left[slot] == 0:
                    read_prompt(slot)
                    left[slot], written = ANSWER - 1, written + 1
            self.write()
            token[:self.count].tolist()
            left, written = [one - 1 for one in left], written + self.count
            now = time.perf_counter()
            gaps.append((now - last) * 1e3)
            last = now
        self.said = f"tokens_{self.resident}={written / (last - begin):.1f} gap_{self.resident}_ms={quantile(gaps, 0.99):.2f}"


read_prompt(0)
all_parts = [Part(resident) for resident in residents]
start_together()
for part, until in parts(all_parts, seconds):
    part.serve(until)
print(" ".join(part.said for part in all_parts), flush=True)
