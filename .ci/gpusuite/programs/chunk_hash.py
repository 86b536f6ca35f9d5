"""Compares the hashes of the library's kernel on the device with the processor's, and measures the kernel's rate.

    chunk_hash.py [CHUNKS]       CHUNKS of 2 MiB are hashed for the rate (default: 4096)
"""
import ctypes, json, random, struct, sys, time
from pathlib import Path

PTX = Path(__file__).resolve().parents[3] / "shim/abi/src/chunk_hash.ptx"
CHUNK, THREADS, PRIME = 2 << 20, 512, (1 << 61) - 1
cuda = ctypes.CDLL("libcuda.so.1")


def must(name, *args):
    code = getattr(cuda, name)(*args)
    if code:
        raise SystemExit(f"{name}: {code}")


def keys(random_bits):
    return struct.pack("<64I20Q", *[random_bits(28) for _ in range(64)], *[random_bits(60) for _ in range(20)])


def hash_of(keys, chunk):
    """What `shim/abi/src/chunk_hash.rs` says."""
    numbers, words, result = struct.unpack("<64I20Q", keys), struct.unpack(f"<{CHUNK // 4}I", chunk), []
    for side in range(2):
        halves = numbers[side * 32:side * 32 + 32]
        word_keys = [low + (high << 28) for low, high in zip(halves[::2], halves[1::2])]
        step, bits = numbers[64 + side], numbers[66 + 9 * side:75 + 9 * side]
        sums = [0] * THREADS
        for row in range(0, CHUNK // 4, THREADS * 16):
            for thread in range(THREADS):
                at = row + thread * 4
                found = [word for vector in range(4) for word in words[at + vector * THREADS * 4:at + vector * THREADS * 4 + 4]]
                sums[thread] = (sums[thread] * step + sum(map(int.__mul__, found, word_keys))) % PRIME
        for key in bits:
            half = len(sums) // 2
            sums = [(low + key * high) % PRIME for low, high in zip(sums[:half], sums[half:])]
        result.append(sums[0])
    return result


class Kernel:
    def __init__(self):
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        must("cuInit", 0)
        must("cuDeviceGet", ctypes.byref(device), 0)
        must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        must("cuCtxSetCurrent", context)
        began = time.perf_counter()
        must("cuModuleLoadDataEx", ctypes.byref(module), PTX.read_bytes() + b"\0", 0, None, None)
        self.function = ctypes.c_void_p()
        must("cuModuleGetFunction", ctypes.byref(self.function), module, b"gpushare_chunk_hash")
        self.load_ms = (time.perf_counter() - began) * 1e3

    def run(self, keys, chunks):
        """Returns the hash of each chunk, and the seconds."""
        page, count = ctypes.c_void_p(), len(chunks)
        must("cuMemHostAlloc", ctypes.byref(page), ctypes.c_size_t(24 * count), 2)
        ctypes.memmove(page.value + 16 * count, struct.pack(f"<{count}Q", *chunks), 8 * count)
        arguments = [ctypes.c_uint64(page.value + 16 * count), ctypes.c_uint64(page.value), (ctypes.c_char * 416).from_buffer_copy(keys)]
        pointers = (ctypes.c_void_p * 3)(*[ctypes.addressof(one) for one in arguments])
        began = time.perf_counter()
        must("cuLaunchKernel", self.function, count, 1, 1, THREADS, 1, 1, 0, None, pointers, None)
        must("cuCtxSynchronize")
        seconds = time.perf_counter() - began
        numbers = struct.unpack(f"<{2 * count}Q", ctypes.string_at(page.value, 16 * count))
        must("cuMemFreeHost", page)
        return [[number % PRIME for number in pair] for pair in zip(numbers[::2], numbers[1::2])], seconds


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    kernel, source, memory = Kernel(), random.Random(7), ctypes.c_uint64()
    ours, base = keys(random.SystemRandom().getrandbits), source.randbytes(CHUNK)
    chunks = {"zeros": bytes(CHUNK), "ones": b"\xff" * CHUNK, "random": base}
    for bit in (0, 63, 8 * 8192, 8 * 32768 * 63 + 8 * 8191, 8 * CHUNK - 1):
        other = bytearray(base)
        other[bit // 8] ^= 1 << bit % 8
        chunks[f"bit {bit}"] = bytes(other)
    must("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(max(count, len(chunks)) * CHUNK))
    for at, chunk in enumerate(chunks.values()):
        must("cuMemcpyHtoD_v2", ctypes.c_uint64(memory.value + at * CHUNK), chunk, ctypes.c_size_t(CHUNK))
    addresses = [memory.value + at * CHUNK for at in range(count)]
    found = dict(zip(chunks, kernel.run(ours, addresses[:len(chunks)])[0]))
    # The largest keys on the largest words: whatever could overflow does.
    largest = keys(lambda bits: (1 << bits) - 1)
    wrong = [name for name, chunk in chunks.items() if found[name] != hash_of(ours, chunk)]
    if kernel.run(largest, [addresses[1]])[0][0] != hash_of(largest, chunks["ones"]):
        wrong.append("largest keys")
    different = len({tuple(one) for one in found.values()}) == len(chunks)
    seconds = min(kernel.run(ours, addresses)[1] for _ in range(5))
    print(json.dumps(dict(wrong=wrong, zeros=found["zeros"] == [0, 0], different=different, load_ms=round(kernel.load_ms, 2), chunks=count,
                          ms=round(seconds * 1e3, 3), tb_s=round(count * CHUNK / seconds / 1e12, 3))))


main()
