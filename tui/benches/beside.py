#!/usr/bin/env python3
"""Cost of gpushare-top beside nvitop, nvtop, btop and htop, in one run on one machine, in the form of an experiment's document.

    cargo build --release && python3 tui/benches/beside.py target/release > assets/results/dashboard.json

64 programs of the simulator share its GPU, which all monitors see by its NVML. Each monitor gets a terminal of 120x40 of its own,
one after the other; a monitor that is not installed is left out. `cpu` is processor time in user and kernel mode, so that other
load on the machine counts little; `nvml` is the part of it that is spent in the thread that calls NVML, if a monitor has one.
`memory` is what the program has written: its text is a file, which the kernel may drop and share. SECONDS is the length of each
measurement, ROUNDS their number.
"""

import datetime
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

SECONDS = float(os.environ.get("SECONDS", "20"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
WARM_UP = 5
PROGRAMS = 64
TICK = os.sysconf("SC_CLK_TCK")
FIGURES = {"cpu": "%", "nvml": "%", "memory": "MB", "output": "kB/s", "first frame": "ms"}
PROGRAM = "monitor"
OURS = "gpushare-top"


def processor_time(path):
    fields = open(f"{path}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def nvml_time(pid):
    """Returns the processor time of the thread that calls NVML; None for a program without a thread of that name."""
    tasks = [f"/proc/{pid}/task/{tid}" for tid in os.listdir(f"/proc/{pid}/task")]
    times = [processor_time(task) for task in tasks if open(f"{task}/comm").read().strip() == "nvml"]
    return times[0] if times else None


def own_memory(pid):
    lines = open(f"/proc/{pid}/smaps_rollup").read().splitlines()
    private = sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))
    return private * 1024 / 1e6


class Screen:
    """A program in a terminal of its own, whose output is counted."""

    def __init__(self, command, environment):
        self.bytes, self.first = 0, None
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.start = time.monotonic()
        self.child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                                      env={**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"})
        os.close(theirs)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while True:
            try:
                got = os.read(self.ours, 65536)
            except OSError:
                return
            self.bytes += len(got)
            # The first frame is there when a screen's worth has come.
            if self.first is None and self.bytes > 1500:
                self.first = time.monotonic() - self.start

    def end(self):
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        os.close(self.ours)


def measure(command, environment):
    screen = Screen(command, environment)
    time.sleep(WARM_UP)
    pid = screen.child.pid
    if screen.child.poll() is not None:
        os.close(screen.ours)
        return None
    before = processor_time(f"/proc/{pid}"), nvml_time(pid), screen.bytes, time.monotonic()
    time.sleep(SECONDS)
    seconds = time.monotonic() - before[3]
    figures = {
        "cpu": (processor_time(f"/proc/{pid}") - before[0]) / seconds * 100,
        "memory": own_memory(pid),
        "output": (screen.bytes - before[2]) / seconds / 1000,
        "first frame": (screen.first or 0) * 1000,
    }
    if before[1] is not None:
        figures["nvml"] = (nvml_time(pid) - before[1]) / seconds * 100
    screen.end()
    return figures


def stage(release, home):
    """Returns the environment of a simulated GPU, and the programs that share it."""
    libraries = os.path.join(home, "lib")
    os.mkdir(libraries)
    for built, soname in [("libcuda.so", "libcuda.so.1"), ("libnvidia_ml.so", "libnvidia-ml.so.1")]:
        os.symlink(os.path.join(release, built), os.path.join(libraries, soname))
    segments = os.path.join(home, "segments")
    os.mkdir(segments, 0o700)
    environment = {**os.environ, "GPUSHARE_DIR": segments, "LD_LIBRARY_PATH": libraries, "GPUSHARE_SIM": "1",
                   "GPUSHARE_SIM_SCENARIO": "one-gpu", "LC_ALL": "C.UTF-8"}
    preloaded = {**environment, "LD_PRELOAD": os.path.join(release, "libgpushare.so")}
    programs = []
    for number in range(PROGRAMS):
        # One in four wants the GPU all the time, the others now and then.
        gap_us = 0 if number % 4 == 0 else 100_000 + 10_000 * number
        command = [os.path.join(release, "gpushare-workload"), "--kernel-us", "2000", "--gap-us", str(gap_us),
                   "--memory", f"{16 + number}M", "--until-eof"]
        programs.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                         env={**preloaded, "GPUSHARE_NAME": f"worker-{number}"}))
    time.sleep(WARM_UP)
    subprocess.run([os.path.join(release, "gpushare"), "policy", "set", "0", "timeslice=10ms"], env=environment, check=True,
                   stdout=subprocess.DEVNULL)
    return environment, programs


def version(command):
    asked = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=10)
    found = re.search(r"\d+\.\d+(\.\d+)?", asked.stdout + asked.stderr)
    return found.group() if found else ""


def row(name, samples):
    return {"condition": name, "kind": "monitor", "samples": samples, "median": statistics.median(samples), "min": min(samples),
            "max": max(samples), "of_alone": None, "of_bare": None, "why": None}


def document(runs, date, gpushare):
    names = list(dict.fromkeys(run["condition"] for run in runs))
    samples = {name: {figure: [] for figure in FIGURES} for name in names}
    for run in runs:
        for figure in run["figures"]:
            samples[run["condition"]][figure["figure"]].append(figure["value"])
    return {
        "schema_version": 1,
        "gpushare": gpushare,
        "title": f"Monitors beside {PROGRAMS} programs on one GPU",
        "date": date,
        "machine": {"host": os.uname().nodename, "devices": ["Simulated GPU"], "driver": "580.95.05", "simulated": True},
        "seconds": SECONDS,
        "switch": None,
        "copies": 1,
        "repeats": ROUNDS,
        "warm_up": 0,
        "interrupted_by": None,
        "figures": [{"program": PROGRAM, "count": 1, "figure": figure, "unit": unit, "better": "lower", "together": "mean",
                     "conditions": [row(name, samples[name][figure]) for name in names if samples[name][figure]]} for figure, unit in FIGURES.items()],
        "skipped": [],
        "runs": runs,
        "plan": open(__file__).read(),
    }


def show(document):
    """Prints a document with a line for each figure and each run."""
    keys = []
    for key, value in document.items():
        items = ",\n    ".join(json.dumps(item) for item in value) if isinstance(value, list) else ""
        keys.append(f"  {json.dumps(key)}: " + (f"[\n    {items}\n  ]" if items else json.dumps(value)))
    print("{\n" + ",\n".join(keys) + "\n}")


def main():
    release = os.path.abspath(sys.argv[1])
    monitors = {
        OURS: [os.path.join(release, "gpushare-top")],
        "nvitop": ["nvitop", "-m", "full"],
        "nvtop": ["nvtop"],
        "btop": ["btop", "--utf-force"],
        "htop": ["htop"],
    }
    monitors = {name: command for name, command in monitors.items() if shutil.which(command[0])}
    versions = {name: version(command[0]) for name, command in monitors.items()}
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    runs = []
    with tempfile.TemporaryDirectory() as home:
        environment, programs = stage(release, home)
        try:
            for number in range(ROUNDS):
                for name, command in monitors.items():
                    figures = measure(command, environment)
                    if not figures:
                        sys.exit(f"{name} ended early")
                    print(name, {key: round(value, 2) for key, value in figures.items()}, file=sys.stderr)
                    runs.append({
                        "condition": name if name == OURS else f"{name} {versions[name]}", "round": number, "warm_up": False, "seconds": SECONDS, "failure": None,
                        "figures": [{"program": PROGRAM, "figure": key, "value": round(value, 3), "each": [round(value, 3)]}
                                    for key, value in figures.items()],
                        "lock": None,
                    })
            alive = sum(program.poll() is None for program in programs)
        finally:
            for program in programs:
                program.stdin.close()
    if alive < PROGRAMS:
        sys.exit(f"only {alive} of {PROGRAMS} programs ran to the end")
    show(document(runs, date, versions[OURS]))


main()
