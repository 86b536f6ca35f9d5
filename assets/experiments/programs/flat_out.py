"""A program that keeps the GPU busy without a pause, in one of several frameworks.

    flat_out.py KIND SECONDS

KIND is one of the functions below. Each gives `submit()`, which submits one round of work and returns what waits for that round; at most
two rounds are under way. Prints rounds_per_s, a line for each round of the experiment. Needs the framework and a GPU.
"""
import collections
import sys
import time

from figures import Rounds
from together import start_together


def torch_rounds(work):
    """Makes rounds of a function that submits to PyTorch's stream."""
    import torch

    def submit():
        work()
        done = torch.cuda.Event()
        done.record()
        return done.synchronize

    return submit


def resnet():
    """A ResNet-50 in training, 64 images a step, with SGD in mixed precision."""
    import timm
    import torch

    model = timm.create_model("resnet50").cuda().to(memory_format=torch.channels_last).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (64,), device="cuda")

    def step():
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()

    return torch_rounds(step)


def embedding():
    """A BERT-large that embeds 32 texts of 128 tokens a round."""
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    model = BertModel(config).cuda().bfloat16().eval()
    texts = torch.randint(30000, (32, 128), device="cuda")

    @torch.no_grad()
    def embed():
        model(input_ids=texts)

    return torch_rounds(embed)


def pytorch():
    """A transformer in training, in plain operations."""
    import common

    return torch_rounds(common.training())


def matmul():
    """A matrix product in one kernel of about 90 ms on an H100: 32-bit, without tensor cores."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    left, right = torch.randn(13312, 13312, device="cuda"), torch.randn(13312, 13312, device="cuda")
    made = torch.empty_like(left)
    return torch_rounds(lambda: torch.mm(left, right, out=made))


def full_card():
    """A kernel that fills every multiprocessor for 40 ms."""
    import cupy

    code = """extern "C" __global__ void busy(float *out, long long rounds) {
        float a = threadIdx.x, b = 1.0001f;
        for (long long i = 0; i < rounds; i++) a = fmaf(a, b, 0.5f);
        if (a == 0.0f) *out = a;
    }"""
    kernel, out = cupy.RawKernel(code, "busy"), cupy.zeros(1, cupy.float32)
    attributes = cupy.cuda.Device().attributes
    blocks = 2 * attributes["MultiProcessorCount"]

    def launch(rounds):
        kernel((blocks,), (1024,), (out, cupy.int64(rounds)))
        done = cupy.cuda.Event()
        done.record()
        return done.synchronize

    # Measured on an H200: 21.1 cycles a round. A measurement here would count the kernels of the programs beside it.
    rounds = int(0.040 * attributes["ClockRate"] * 1000 / 21.1)
    return lambda: launch(rounds)


def with_cupy():
    """Matrix products of 4 096 in CuPy."""
    import cupy

    left, right = cupy.random.rand(4096, 4096, dtype=cupy.float32), cupy.random.rand(4096, 4096, dtype=cupy.float32)
    made = cupy.empty_like(left)

    def submit():
        for _ in range(4):
            cupy.matmul(left, right, out=made)
        done = cupy.cuda.Event()
        done.record()
        return done.synchronize

    return submit


def with_jax():
    """A network of eight layers in JAX, forward and backward."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(1), 9)
    weights = [jax.random.normal(key, (2048, 2048), jnp.bfloat16) * 0.02 for key in keys[:8]]
    batch = jax.random.normal(keys[8], (4096, 2048), jnp.bfloat16)

    def loss(weights):
        x = batch
        for weight in weights:
            x = jax.nn.relu(x @ weight)
        return jnp.square(x.astype(jnp.float32)).mean()

    step = jax.jit(lambda weights: [w - 1e-4 * g for w, g in zip(weights, jax.grad(loss)(weights))])
    state = [step(weights)]

    def submit():
        state[0] = step(state[0])
        return state[0][0].block_until_ready

    return submit


def with_triton():
    """An elementwise kernel of Triton's over 1 GiB."""
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def scale(values, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(values + at, tl.load(values + at, mask=at < count) * 0.999 + 0.001, mask=at < count)

    values = torch.randn(1 << 28, device="cuda")
    return torch_rounds(lambda: [scale[(values.numel() // 1024,)](values, values.numel(), BLOCK=1024) for _ in range(4)])


KINDS = {work.__name__: work for work in (resnet, embedding, pytorch, matmul, full_card, with_cupy, with_jax, with_triton)}
submit, seconds = KINDS[sys.argv[1]](), float(sys.argv[2])
under_way = collections.deque()
for _ in range(5):
    submit()()
start_together()
done = Rounds(seconds)
while time.perf_counter() < done.begin + seconds:
    under_way.append(submit())
    if len(under_way) > 2:
        under_way.popleft()()
        done.done()
while under_way:
    under_way.popleft()()
    done.done()
for rate in done.per_second():
    print(f"rounds_per_s={rate:.2f}", flush=True)
