"""Common clients: PyTorch, CuPy, JAX, Triton, Numba, nvcc's runtime. Each is skipped if it is not installed."""
import os, shutil, subprocess, sys

from .stage import MIB, Skip, answer, check, eventually, say, under


def torch(bench):
    if bench.sim or subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], capture_output=True).returncode:
        raise Skip("no PyTorch with a GPU here")


TRAINER = '''
    import torch
    reply(pid=os.getpid())
    weights = torch.randn(2048, 2048, device="cuda", requires_grad=True)
    held = []
    for line in sys.stdin:
        word, *rest = line.split() or [""]
        try:
            if word == "step":
                for _ in range(int(rest[0])):
                    (torch.randn(2048, 2048, device="cuda") @ weights).square().mean().backward()
                torch.cuda.synchronize(); reply(ok=True)
            elif word == "hold":
                held.append(torch.empty(int(rest[0]), dtype=torch.uint8, device="cuda")); reply(ok=True)
            elif word == "drop":
                held.clear(); torch.cuda.empty_cache(); reply(ok=True)
            elif word == "info": reply(info=torch.cuda.mem_get_info())
            elif word == "graph":
                side = torch.cuda.Stream(); side.wait_stream(torch.cuda.current_stream())
                x = torch.randn(512, 512, device="cuda")
                with torch.cuda.stream(side):
                    for _ in range(3): x @ x
                torch.cuda.current_stream().wait_stream(side)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph): y = x @ x
                graph.replay(); torch.cuda.synchronize()
                reply(ok=bool(torch.allclose(y, x @ x)))
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache(); reply(oom=True)
'''


@check
def pytorch_meets_its_quota_recovers_and_goes_on_when_it_is_raised(bench):
    torch(bench)
    client = bench.run(["--memory", "4GiB"], TRAINER)
    pid = answer(client)["pid"]
    assert say(client, "step 20").get("ok")
    assert say(client, f"hold {2048 * MIB}").get("ok")
    bench.ctl("quota", "set", str(pid), "3GiB")
    assert say(client, f"hold {1536 * MIB}").get("oom")
    assert say(client, "step 5").get("ok"), "training goes on after the refusal"
    bench.ctl("quota", "set", str(pid), "8GiB")
    assert say(client, f"hold {1536 * MIB}").get("ok")
    info, device = say(client, "info")["info"], bench.ps(pid)["devices"][0]
    assert info[1] == 8 << 30 and info[0] == info[1] - device["used_bytes"], (info, device)
    return {"launches": device["launches"], "denials": device["denials"], "used_bytes": device["used_bytes"]}


@check
def pytorch_expandable_segments_and_cuda_malloc_async_are_accounted(bench):
    torch(bench)
    out = {}
    for backend in ("expandable_segments:True", "backend:cudaMallocAsync"):
        bench.env["PYTORCH_CUDA_ALLOC_CONF"] = bench.env["PYTORCH_ALLOC_CONF"] = backend
        client = bench.run(["--memory", "4GiB"], TRAINER)
        pid = answer(client)["pid"]
        assert say(client, f"hold {1024 * MIB}").get("ok")
        used = bench.ps(pid)["devices"][0]["used_bytes"]
        assert used >= 1024 * MIB, (backend, used)
        assert say(client, f"hold {4096 * MIB}").get("oom"), backend
        out[backend] = used
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        bench.env.pop(name, None)
    return out


@check
def pytorch_graphs_survive_a_lock_policy(bench):
    torch(bench)
    bench.ctl("policy", "set", "all", "launches=4")
    a, b = bench.run([], TRAINER), bench.run([], TRAINER)
    answer(a), answer(b)
    for client in (a, b):
        client.stdin.write("step 50\n")
        client.stdin.flush()
    results = [answer(a).get("ok"), answer(b).get("ok"), say(a, "graph").get("ok"), say(b, "graph").get("ok")]
    bench.ctl("policy", "set", "all", "off")
    assert all(results), results
    return {}


@check
def data_loader_workers_that_fork_do_not_disturb_training(bench):
    torch(bench)
    client = bench.run(["--memory", "8GiB"], """
        import torch
        from torch.utils.data import DataLoader
        class Rows(torch.utils.data.Dataset):
            def __len__(self): return 64
            def __getitem__(self, i): return torch.full((8,), float(i))
        x = torch.zeros(1, device="cuda")
        total = sum(float(batch.cuda(non_blocking=True).sum()) for batch in DataLoader(Rows(), batch_size=4, num_workers=2, pin_memory=True))
        reply(total=total, pid=os.getpid())
        sys.stdin.readline()
    """)
    at = answer(client)
    assert at["total"] == 8 * sum(range(64)), at
    assert len(bench.processes()) == 1
    return {}


@check
def cupy_computes_the_same_and_is_counted(bench):
    if bench.sim or subprocess.run([sys.executable, "-c", "import cupy"], capture_output=True).returncode:
        raise Skip("no CuPy with a GPU here")
    client = bench.run(["--memory", "4GiB"], """
        import cupy
        a = cupy.arange(1 << 20, dtype=cupy.float64)
        reply(sum=float(a.sum()), pid=os.getpid())
        sys.stdin.readline()
    """)
    at = answer(client)
    n = 1 << 20
    assert at["sum"] == n * (n - 1) / 2, at
    seen = lambda: bench.ps(at["pid"])["devices"][0]
    eventually("its launches are counted", lambda: seen()["launches"] > 0, 2)
    assert seen()["used_bytes"] >= 8 * n, seen()
    return {"used_bytes": seen()["used_bytes"], "launches": seen()["launches"]}


@check
def an_nvcc_program_computes_the_same(bench):
    """The static runtime: one dlsym, then hundreds of cuGetProcAddress lookups."""
    if bench.sim or not shutil.which("nvcc"):
        raise Skip("no nvcc with a GPU here")
    source, program = bench.dir / "sum.cu", bench.dir / "sum"
    source.write_text("""
        #include <cstdio>
        __global__ void add(int *to, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicAdd(to, i); }
        int main() {
            int *to; if (cudaMalloc(&to, 4)) return 1;
            cudaMemset(to, 0, 4); add<<<32, 256>>>(to, 8192); int out = 0;
            if (cudaMemcpy(&out, to, 4, cudaMemcpyDeviceToHost)) return 2;
            size_t free, total; cudaMemGetInfo(&free, &total);
            printf("%d %zu %zu\\n", out, free, total);
            void *big; return cudaMalloc(&big, size_t(2) << 30) == cudaErrorMemoryAllocation ? 0 : 3;
        }""")
    done = subprocess.run(["nvcc", "-o", program, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = under(bench, True, [program], GPUSHARE_MEMORY="1GiB")
    want = [sum(range(8192)), (1 << 30) - 4, 1 << 30]
    assert done.returncode == 0 and [int(word) for word in done.stdout.split()] == want, (done.returncode, done.stdout, done.stderr)
    return {}


def installed(bench, module):
    if bench.sim or subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode:
        raise Skip(f"no {module} with a GPU here")


@check
def jax_takes_its_part_of_the_quota_not_of_the_card(bench):
    installed(bench, "jax")
    client = bench.run(["--memory", "16GiB"], """
        import jax, jax.numpy as jnp
        x = jnp.arange(1 << 20, dtype=jnp.float32).reshape(1024, 1024)
        y = jax.jit(lambda m: (m @ m.T).sum())(x)
        reply(platform=jax.devices()[0].platform, finite=bool(jnp.isfinite(y)), pid=os.getpid())
        sys.stdin.readline()
    """)
    at = answer(client)
    assert at["platform"] == "gpu" and at["finite"], at
    device = bench.ps(at["pid"])["devices"][0]
    assert 0 < device["used_bytes"] <= 16 << 30, device
    return {"used_bytes": device["used_bytes"], "launches": device["launches"]}


def same_with_and_without(bench, name, text):
    """Runs a script without the library, and under a quota and a lock policy: its own assertions must hold and its output must be equal."""
    script = bench.dir / f"{name}.py"
    script.write_text(text)
    bare = under(bench, False, [sys.executable, script])
    if bare.returncode:
        raise Skip(f"{name} does not run here without us either: {bare.stderr.strip().splitlines()[-1]}")
    ours = under(bench, True, [sys.executable, script], GPUSHARE_MEMORY="4GiB", GPUSHARE_POLICY="timeslice=5ms")
    assert (ours.returncode, ours.stdout) == (0, bare.stdout), (ours.returncode, ours.stdout, ours.stderr[-600:])


@check
def triton_compiles_and_launches_as_without_us(bench):
    torch(bench)
    installed(bench, "triton")
    same_with_and_without(bench, "triton_add", """
import torch, triton, triton.language as tl
@triton.jit
def add(x, y, to, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)
x = torch.arange(1 << 16, device="cuda", dtype=torch.float32)
to = torch.empty_like(x)
add[(64,)](x, x, to, x.numel(), BLOCK=1024)
print(torch.equal(to, 2 * x))
""")
    return {}


@check
def numba_compiles_and_launches_as_without_us(bench):
    installed(bench, "numba_cuda")
    same_with_and_without(bench, "numba_twice", """
import numpy
from numba import cuda
@cuda.jit
def twice(a):
    i = cuda.grid(1)
    if i < a.size: a[i] *= 2
a = numpy.arange(1 << 16, dtype=numpy.float32)
on = cuda.to_device(a)
twice[256, 256](on)
print((on.copy_to_host() == 2 * a).all())
""")
    return {}


@check
def two_trainers_end_with_the_weights_they_have_alone(bench):
    """Sharing changes when kernels run, never their results: the same training alone, and two of it under each policy."""
    torch(bench)
    script = bench.dir / "train.py"
    script.write_text("""
import torch
torch.manual_seed(7); torch.use_deterministic_algorithms(True)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
adam = torch.optim.Adam(model.parameters())
for step in range(300):
    x = torch.randn(128, 256, device="cuda")
    adam.zero_grad(); (model(x) - x).square().mean().backward(); adam.step()
print(sum(p.double().sum().item() for p in model.parameters()).hex())
""")
    settings = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    alone = under(bench, False, [sys.executable, script], **settings)
    assert alone.returncode == 0, alone.stderr[-600:]
    for policy in ("off", "timeslice=2ms", "launches=5", "always"):
        bench.ctl("policy", "set", "all", policy)
        env = {**bench.env, **settings, "LD_PRELOAD": str(bench.bin / "libgpushare.so")}
        both = [subprocess.Popen([sys.executable, script], env=env, text=True, stdout=subprocess.PIPE) for _ in range(2)]
        bench.children.extend(both)
        for child in both:
            assert child.communicate(timeout=120)[0] == alone.stdout, policy
    return {"sum": alone.stdout.strip()}


@check
def cuda_bindings_finds_a_card_of_its_quota_exactly(bench):
    """Fills the device in pieces of the driver's size: 64 of 256 MiB are 16 GiB."""
    if subprocess.run([sys.executable, "-c", "from cuda.bindings import driver"], capture_output=True).returncode:
        raise Skip("no cuda-bindings here")
    script = bench.dir / "fill.py"
    script.write_text("""
from cuda.bindings import driver as cu
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
held = []
while True:
    code, address = cu.cuMemAlloc(256 << 20)
    if code != cu.CUresult.CUDA_SUCCESS: break
    held.append(address)
left = cu.cuMemGetInfo()[1]
for address in held: cu.cuMemFree(address)
print(code.name, len(held), left, cu.cuMemGetInfo()[1] >> 30)
""")
    settings = {"LD_LIBRARY_PATH": str(bench.driver().parent)} if bench.sim else {}
    done = under(bench, True, [sys.executable, script], GPUSHARE_MEMORY="16GiB", **settings)
    assert (done.returncode, done.stdout) == (0, "CUDA_ERROR_OUT_OF_MEMORY 64 0 16\n"), (done.stdout, done.stderr[-400:])
    return {}
