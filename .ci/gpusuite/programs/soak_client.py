"""A client of `.ci/soak`: uses a device in random ways, from a seed, until a command on its input stops it.

Each line of input is a command: `hold` (stop, and report the memory held) or `go`. Each reply is one line of JSON. It exits with
0 at the end of its input, or with 9 and a message on stderr when memory has lost its contents.
"""
import ctypes, json, os, random, select, sys, threading, time

OK, OOM, BUSY_CAPTURE = 0, 2, 900
MIB = 1 << 20
rng = random.Random(int(sys.argv[1]))
lib = ctypes.CDLL("libcuda.so.1")


def wrong(sentence):
    print(f"soak client: {sentence}", file=sys.stderr, flush=True)
    os._exit(9)


def call(name, *args, may=()):
    code = getattr(lib, name)(*args)
    if code != OK and code not in may:
        wrong(f"{name} answers {code}")
    return code


class Piece:
    """Device memory and the value of all its bytes."""

    def __init__(self, address, size, fill, stream=None):
        self.address, self.size, self.fill, self.stream = address, size, fill, stream

    def check(self):
        at = rng.randrange(self.size)
        n = min(4096, self.size - at)
        back = (ctypes.c_ubyte * n)()
        call("cuMemcpyDtoH_v2", back, ctypes.c_uint64(self.address.value + at), ctypes.c_size_t(n))
        if any(byte != self.fill for byte in back):
            wrong(f"{self.size} bytes at {self.address.value:#x} are not all {self.fill}")


class Client:
    def __init__(self):
        call("cuInit", 0)
        self.context, self.stream, self.pieces = ctypes.c_void_p(), ctypes.c_void_p(), []
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        call("cuCtxSetCurrent", self.context)
        call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def allocate(self):
        size, address, fill = rng.choice([4096, 100_001, MIB, 3 * MIB, 16 * MIB]), ctypes.c_uint64(), rng.randrange(256)
        asynchronous = rng.random() < 0.3
        if asynchronous:
            code = call("cuMemAllocAsync", ctypes.byref(address), ctypes.c_size_t(size), self.stream, may=[OOM])
        else:
            code = call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size), may=[OOM])
        if code == OK:
            piece = Piece(address, size, fill, self.stream if asynchronous else None)
            call("cuMemsetD8Async", address, fill, ctypes.c_size_t(size), self.stream)
            call("cuStreamSynchronize", self.stream)
            self.pieces.append(piece)

    def free(self, piece=None):
        if piece is None and not self.pieces:
            return
        piece = piece or self.pieces.pop(rng.randrange(len(self.pieces)))
        piece.check()
        if piece.stream:
            call("cuMemFreeAsync", piece.address, piece.stream)
            call("cuStreamSynchronize", piece.stream)
        else:
            call("cuMemFree_v2", piece.address)

    def look(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        if free.value > total.value:
            wrong(f"{free.value} bytes are free of {total.value}")
        if self.pieces:
            rng.choice(self.pieces).check()

    def submit(self):
        if self.pieces:
            piece = rng.choice(self.pieces)
            for _ in range(rng.randrange(1, 30)):
                call("cuMemsetD8Async", piece.address, piece.fill, ctypes.c_size_t(piece.size), self.stream)
            call(rng.choice(["cuStreamQuery", "cuStreamSynchronize"]), self.stream, may=[600])

    def graph(self):
        if not self.pieces:
            return
        piece, graph, ready = rng.choice(self.pieces), ctypes.c_void_p(), ctypes.c_void_p()
        call("cuStreamBeginCapture_v2", self.stream, 2)
        call("cuMemsetD8Async", piece.address, piece.fill, ctypes.c_size_t(piece.size), self.stream)
        call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_uint64(0))
        for _ in range(rng.randrange(1, 8)):
            call("cuGraphLaunch", ready, self.stream)
        call("cuStreamSynchronize", self.stream)
        call("cuGraphExecDestroy", ready)
        call("cuGraphDestroy", graph)

    def context_of_its_own(self):
        other, address = ctypes.c_void_p(), ctypes.c_uint64()
        call("cuCtxCreate_v2", ctypes.byref(other), 0, 0)
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(MIB), may=[OOM])
        call("cuCtxDestroy_v2", other)
        call("cuCtxSetCurrent", self.context)

    def threads(self):
        def work():
            call("cuCtxSetCurrent", self.context)
            address = ctypes.c_uint64()
            for _ in range(5):
                if call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(64 << 10), may=[OOM]) == OK:
                    call("cuMemFree_v2", address)

        all_of_them = [threading.Thread(target=work) for _ in range(3)]
        [thread.start() for thread in all_of_them]
        [thread.join() for thread in all_of_them]

    def fork(self):
        child = os.fork()
        if child == 0:
            lib.cuMemGetInfo_v2(ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t()))
            os._exit(0)
        os.waitpid(child, 0)

    def rest(self):
        time.sleep(rng.choice([0, 0.01, 0.1, 0.7]))

    def held(self):
        call("cuStreamSynchronize", self.stream)
        for piece in self.pieces:
            piece.check()
        return {"pid": os.getpid(), "pieces": sum(p.size for p in self.pieces if not p.stream), "pooled": any(p.stream for p in self.pieces)}


def main():
    client = Client()
    steps = [client.allocate] * 6 + [client.free] * 5 + [client.submit] * 5 + [client.look, client.graph, client.rest, client.rest]
    steps += [client.threads, client.context_of_its_own, client.fork]
    going, limit = True, rng.choice([4, 20])
    while True:
        if select.select([sys.stdin], [], [], 0 if going else None)[0]:
            word = sys.stdin.readline().strip()
            if not word:
                return
            going = word == "go"
            print(json.dumps({} if going else client.held()), flush=True)
        elif len(client.pieces) > limit:
            client.free()
        else:
            rng.choice(steps)()


main()
