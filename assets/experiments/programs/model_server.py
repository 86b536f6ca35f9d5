"""One of several model servers on a GPU. It answers requests of a few tokens on a socket beside $START_FILE.

    model_server.py GIB

The model has GIB of random weights, all of which each token reads. $MODEL_MODE says how the model leaves the GPU:

    (unset)    it stays; whatever shares the GPU moves it
    hand       `sleep` copies the weights to pinned host memory, and `wake` copies them back: what sleep modes do
    restart    `sleep` ends the process that holds the model, and `wake` starts it again

Requests are lines: `ask N` answers `first` after the first token and `done TOKENS` after the last; `sleep` and `wake`
answer `done`. Needs PyTorch and a GPU.
"""
import fcntl
import os
import socket
import subprocess
import sys

from together import FOLDER

MODE = os.environ.get("MODEL_MODE", "")
WIDTH = 8192


class Model:
    """A chain of square layers. A token is the index of the largest output, and the next input."""

    def __init__(self, gib, seed):
        import torch

        self.torch = torch
        torch.manual_seed(seed)
        layers = max(1, int(gib * 2**30) // (2 * WIDTH * WIDTH))
        self.layers = [self.layer() for _ in range(layers)]
        self.inputs = torch.randn(256, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.host = None
        torch.cuda.synchronize()

    def layer(self):
        weights = self.torch.randn(WIDTH, WIDTH, device="cuda", dtype=self.torch.bfloat16)
        return weights.mul_(WIDTH**-0.5)

    def next(self, token):
        x = self.inputs[token % 256]
        for weights in self.layers:
            x = self.torch.mv(weights, x)
        return int(x.argmax().item())

    def sleep(self):
        torch = self.torch
        if self.host is None:
            self.host = [torch.empty_like(one, device="cpu", pin_memory=True) for one in self.layers]
        for host, weights in zip(self.host, self.layers):
            host.copy_(weights, non_blocking=True)
        torch.cuda.synchronize()
        self.layers = None
        torch.cuda.empty_cache()

    def wake(self):
        self.layers = [host.to("cuda", non_blocking=True) for host in self.host]
        self.torch.cuda.synchronize()


class Restarted:
    """A model in a process of its own, which is ended and started again."""

    def __init__(self):
        self.wake()

    def wake(self):
        words = [sys.executable, __file__, sys.argv[1], str(seed)]
        self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.child.stdout.readline() != "ready\n":
            sys.exit("the model did not start")

    def sleep(self):
        self.child.kill()
        self.child.wait()

    def next(self, token):
        print(token, file=self.child.stdin, flush=True)
        return int(self.child.stdout.readline())


def place():
    """Takes the first free number, and listens on its socket."""
    number = 0
    while True:
        try:
            os.close(os.open(FOLDER / f"model{number}.taken", os.O_CREAT | os.O_EXCL))
            return number
        except FileExistsError:
            number += 1


def serve(model, listener):
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:
            for line in stream:
                verb, *count = line.split()
                if verb == "ask":
                    tokens = [1]
                    for turn in range(int(count[0])):
                        tokens.append(model.next(tokens[-1]))
                        if turn == 0:
                            print("first", file=stream, flush=True)
                    print("done", *tokens[1:], file=stream, flush=True)
                else:
                    getattr(model, verb)()
                    print("done", file=stream, flush=True)


if len(sys.argv) > 2:
    model = Model(float(sys.argv[1]), int(sys.argv[2]))
    print("ready", flush=True)
    for line in sys.stdin:
        print(model.next(int(line)), flush=True)
    sys.exit()
seed = place()
listener = socket.socket(socket.AF_UNIX)
with open(FOLDER / "loads", "w") as loads:
    # By hand and by restart only as many may be awake as fit, so they load one after the other.
    if MODE:
        fcntl.flock(loads, fcntl.LOCK_EX)
    model = Restarted() if MODE == "restart" else Model(float(sys.argv[1]), seed)
    model.next(1)
    if MODE:
        model.sleep()
listener.bind(str(FOLDER / f"model{seed}"))
listener.listen(64)
print("ready", flush=True)
serve(model, listener)
