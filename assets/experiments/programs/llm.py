"""An LLM in eager mode, batch 1: transformers' Llama of 16 layers of 2 048, which waits for its processor most of the time.

    llm.py SECONDS

Random weights; writes one token after the other with a cache of keys and values, and reads each before the next. Prints a line for each round:
p50_ms and p99_ms of a token. Needs PyTorch, transformers and a GPU.
"""
import sys
import time

import torch
from figures import Rounds, quantile
from together import start_together
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

seconds = float(sys.argv[1])
torch.manual_seed(4)
config = LlamaConfig(hidden_size=2048, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=16, intermediate_size=5632,
                     vocab_size=32000, max_position_embeddings=4096, attn_implementation="eager")
with torch.device("cuda"):
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(config).eval()
CONTEXT = 512


@torch.no_grad()
def tokens():
    """Writes answers without end, each to a full context; gives the time of each token in milliseconds."""
    while True:
        token, cache = torch.ones(1, 32, dtype=torch.long, device="cuda"), DynamicCache()
        for _ in range(CONTEXT - 32):
            begin = time.perf_counter()
            token = model(input_ids=token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
            token.item()
            yield (time.perf_counter() - begin) * 1e3


written = tokens()
for _ in range(30):
    next(written)
start_together()
times = Rounds(seconds)
while (now := time.perf_counter()) < times.begin + seconds:
    times.took(now, next(written))
for took in times.values():
    print(f"p50_ms={quantile(took, 0.5):.2f} p99_ms={quantile(took, 0.99):.2f}", flush=True)
