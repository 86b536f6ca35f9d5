"""How the programs beside this find each other and start together. Needs nothing but Python."""
import contextlib
import fcntl
import os
import signal
import tempfile
import time
from pathlib import Path

START_FILE = os.environ.get("START_FILE")
EXPERIMENT_DIR = os.environ.get("EXPERIMENT_DIR")
# The folder that the programs of a run share.
FOLDER = Path(START_FILE).parent if START_FILE else Path(tempfile.gettempdir())

# The parts of equal length in this program's time, each with its own line of figures.
ROUNDS = int(os.environ.get("ROUNDS", 1))
# The length of a turn, if those of several conditions take turns (gpushare experiment --switch), and this program is stopped meanwhile.
TURN = float(os.environ.get("TAKES_TURNS", 0))
# For so many seconds after a stop the GPU may still have work of the programs that ran meanwhile.
SETTLES = min(1.0, TURN / 4)
# Another thread may get the signal first, so a stop may be noted a little after the end of what it interrupted.
NOTICED = 0.5
stops = []


def went_on(*_):
    stops.append(time.perf_counter())


signal.signal(signal.SIGCONT, went_on)


def end_of_last_stop():
    """Returns when this program last went on after it was stopped, in seconds of time.perf_counter()."""
    return stops[-1] if stops else float("-inf")


def is_undisturbed(begin, end):
    """Returns true if this program was alone with those of its condition from `begin` to `end`, and shortly before."""
    if TURN and not (stops and begin >= stops[0]):
        return False
    return not any(begin - SETTLES < stop < end + NOTICED for stop in stops)


def start_together():
    """Says that this program is ready, and waits until all are: until $START_FILE is there."""
    print("ready", flush=True)
    while START_FILE and not os.path.exists(START_FILE):
        time.sleep(0.01)


@contextlib.contextmanager
def undisturbed():
    """Lets the programs of a run do what this holds one after the other."""
    if not START_FILE:
        yield
        return
    with open(FOLDER / "undisturbed", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measured_once(name, measure):
    """Returns a number that only the first run of an experiment measures, so that all runs have the same load."""
    if not EXPERIMENT_DIR:
        return measure()
    file = Path(EXPERIMENT_DIR) / name
    if not file.exists():
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(repr(measure()))
        new.rename(file)
    return float(file.read_text())


def parts(works, seconds):
    """Gives each work with the time at which its part ends. The parts begin together in all programs that started together."""
    begin = time.perf_counter()
    for number, work in enumerate(works, 1):
        yield work, begin + seconds * number / len(works)
