"""Shared parts of every check: a private segment directory, scripted clients, C programs, time limits."""
import json, os, shutil, subprocess, sys, tempfile, textwrap, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20
DRIVER_PLACES = [
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/local/cuda/compat",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
]
CHECKS = []


def check(f):
    CHECKS.append(f)
    return f


class Skip(Exception):
    """The machine lacks something that the check needs."""


class Bench:
    """A private segment directory and the programs in it."""

    def __init__(self, bin_dir, sim):
        self.bin, self.sim = Path(bin_dir).resolve(), sim
        self.dir = Path(tempfile.mkdtemp(prefix="gpushare-gpu-"))
        self.env = {**os.environ, "GPUSHARE_DIR": str(self.dir)}
        self.children = []

    def ctl(self, *args, ok=True, parse=False, limit=60):
        done = subprocess.run([self.bin / "gpushare", *args], env=self.env, text=True, capture_output=True, timeout=limit)
        if ok and done.returncode:
            raise AssertionError(f"gpushare {' '.join(args)}: exit {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout) if parse else done

    def run(self, flags, source):
        """Runs a scripted Python client under `gpushare run`; `say` returns its replies."""
        sim = ["--sim"] if self.sim else []
        argv = [self.bin / "gpushare", "run", *sim, *flags, "--", sys.executable, "-u", "-c", PRELUDE + textwrap.dedent(source)]
        child = subprocess.Popen(argv, env=self.env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.children.append(child)
        return child

    def processes(self):
        """Returns the processes under gpushare. Others' programs and MPS servers on the machine's GPUs are in `ps` too, and not part of a check."""
        return [p for p in self.ctl("ps", "--json", parse=True)["processes"] if p["state"] not in ("unmanaged", "server")]

    def ps(self, pid):
        for process in self.processes():
            if process["pid"] == pid:
                return process
        raise AssertionError(f"ps does not show {pid}")

    def driver(self):
        """Returns the path of the installed libcuda.so.1."""
        if self.sim:
            link = self.dir / "libcuda.so.1"
            if not link.exists():
                link.symlink_to(self.bin / "libcuda.so")
            return link
        for place in DRIVER_PLACES:
            if Path(place, "libcuda.so.1").exists():
                return Path(place, "libcuda.so.1")
        raise Skip("libcuda.so.1 is in none of the usual places")

    def close(self):
        for child in self.children:
            child.kill()
            child.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def say(child, word=""):
    """Sends one command line to a client and returns its reply."""
    child.stdin.write(word + "\n")
    child.stdin.flush()
    return answer(child)


def answer(child):
    line = child.stdout.readline()
    if not line:
        raise AssertionError(f"the client ended with {child.wait()}")
    return json.loads(line)


def eventually(what, test, limit=10.0):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = test()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {limit} s: {what}")


def spin(bench, seconds, *flags, kernel_us=5000, burst=1):
    args = ["--kernel-us", str(kernel_us), "--burst", str(burst), "--seconds", str(seconds), "--report-json"]
    sim = ["--sim"] if bench.sim else []
    argv = [bench.bin / "gpushare", "run", *sim, *flags, "--", bench.bin / "gpushare-workload", *args]
    child = subprocess.Popen(argv, env=bench.env, text=True, stdout=subprocess.PIPE)
    bench.children.append(child)
    return child


def cc(bench, source, *flags):
    """Compiles one of the project's C programs against the installed driver."""
    out = bench.dir / Path(source).stem
    driver = bench.driver()
    bench.env["LD_LIBRARY_PATH"] = f"{driver.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run(["cc", "-O2", "-w", "-pthread", *flags, source, driver, "-o", out], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr[-400:])
    return out


def under(bench, preload, argv, timeout=120, **env):
    env = {**bench.env, **env}
    if preload:
        env["LD_PRELOAD"] = str(bench.bin / "libgpushare.so")
    return subprocess.run([str(a) for a in argv], env=env, capture_output=True, text=True, timeout=timeout)


# A client without PyTorch: the driver API through ctypes. `serve` answers each command with a line of JSON.
PRELUDE = textwrap.dedent('''
    import ctypes, json, os, sys, time
    def reply(**answer): print(json.dumps(answer), flush=True)
    class Cuda:
        def __init__(self):
            self.lib = ctypes.CDLL("libcuda.so.1")
            self.must("cuInit", 0)
            device, context = ctypes.c_int(), ctypes.c_void_p()
            self.must("cuDeviceGet", ctypes.byref(device), 0)
            self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self.must("cuCtxSetCurrent", context)
        def call(self, name, *args): return getattr(self.lib, name)(*args)
        def must(self, name, *args):
            code = self.call(name, *args)
            if code: raise SystemExit(f"{name}: {code}")
        def alloc(self, size):
            pointer = ctypes.c_uint64()
            code = self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
            return code, pointer
        def free(self, pointer): return self.call("cuMemFree_v2", pointer)
        def info(self):
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            self.must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            return free.value, total.value
''')
