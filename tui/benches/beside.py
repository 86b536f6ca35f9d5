#!/usr/bin/env python3
"""Cost of gpushare-top compared with nvitop, btop and htop, in one run on one machine.

    cargo build --release && cargo bench -p gpushare --bench cost --no-run
    python3 tui/benches/beside.py target/release/gpushare-top target/release/deps/cost-*

Each program gets a separate terminal of 120x40. The table has the processor time in per cent of a core, the private memory
(pages that the program has written: its text is a file, which the kernel may drop and share), the bytes per second to the
terminal, and the time to the first frame. A program that is not installed is left out. gpushare-top shows 64 processes on 8
devices with 100 hand-offs a second, at four frames a second.
"""

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

SECONDS = float(os.environ.get("SECONDS", "20"))
TICK = os.sysconf("SC_CLK_TCK")


def processor_time(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def own_memory(pid):
    lines = open(f"/proc/{pid}/smaps_rollup").read().splitlines()
    private = sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))
    return private / 1000


def measure(name, command, environment):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    start = time.monotonic()
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                             env={**os.environ, **environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"})
    os.close(theirs)
    seen = {"bytes": 0, "first": None}

    def read():
        while True:
            try:
                got = os.read(ours, 65536)
            except OSError:
                return
            if not got:
                return
            # The first frame is there when a screen's worth has come.
            seen["bytes"] += len(got)
            if seen["first"] is None and seen["bytes"] > 1500:
                seen["first"] = time.monotonic() - start

    threading.Thread(target=read, daemon=True).start()
    time.sleep(3)
    if child.poll() is not None:
        print(f"{name:14} ended with {child.returncode}")
        return
    before, sent = processor_time(child.pid), seen["bytes"]
    time.sleep(SECONDS)
    share = (processor_time(child.pid) - before) / SECONDS * 100
    memory = own_memory(child.pid)
    rate = (seen["bytes"] - sent) / SECONDS / 1000
    first = (seen["first"] or 0) * 1000
    print(f"{name:14} {share:6.2f} % of a core  {memory:6.1f} MB own  {rate:6.1f} kB/s  first frame {first:5.0f} ms", flush=True)
    child.send_signal(signal.SIGTERM)
    child.wait()
    os.close(ours)


def main():
    top, cost = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as home:
        stage_dir = os.path.join(home, "segments")
        os.mkdir(stage_dir, 0o700)
        stage = subprocess.Popen([cost, "stage", stage_dir])
        time.sleep(1)
        here = {"GPUSHARE_DIR": stage_dir}
        try:
            for _ in range(int(os.environ.get("ROUNDS", "1"))):
                measure("gpushare-top", [top, "--no-nvml"], here)
                for other in (["nvitop", "-m", "full"], ["btop"], ["htop", "-d", "2.5"]):
                    if shutil.which(other[0]):
                        measure(other[0], other, {})
        finally:
            stage.kill()


main()
