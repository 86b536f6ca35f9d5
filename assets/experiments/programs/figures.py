"""The figures that the programs beside this print. Needs nothing but Python."""
import time

from together import ROUNDS, is_undisturbed


class Rounds:
    """What a program measures in each of the rounds of its time. What it did around a stop does not count."""

    def __init__(self, seconds, begin=None):
        self.begin = self.since = time.perf_counter() if begin is None else begin
        self.length = seconds / ROUNDS
        self.spans = []

    def took(self, since, value):
        """Records a value of something that has ended now, and began at `since`."""
        self.spans.append((since, time.perf_counter(), value))

    def done(self, count=1):
        """Records that something was done again, or so many times, since the last call."""
        since, self.since = self.since, time.perf_counter()
        self.spans.append((since, self.since, count))

    def rounds(self):
        """Returns the lengths and values of each round. They are judged at the end, when all stops are known."""
        found = [[] for _ in range(ROUNDS)]
        for since, until, value in self.spans:
            if is_undisturbed(since, until):
                found[min(ROUNDS - 1, int((since - self.begin) / self.length))].append((until - since, value))
        return found

    def values(self):
        """Returns the values of each round."""
        return [[value for _, value in spans] for spans in self.rounds()]

    def per_second(self):
        """Returns for each round how often it was done."""
        sums = [(sum(count for _, count in spans), sum(length for length, _ in spans)) for spans in self.rounds()]
        return [count / seconds if seconds else float("nan") for count, seconds in sums]


def quantile(values, share):
    """Returns the value below which a share of the values lies; nan if there are none."""
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")
