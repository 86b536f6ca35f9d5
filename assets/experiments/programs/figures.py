"""The figures that the programs beside this print. Needs nothing but Python."""
import time

from together import ROUNDS, is_undisturbed


class Rounds:
    """What a program measures in each of the rounds of its time. What it did while it was stopped does not count."""

    def __init__(self, seconds, begin=None):
        self.begin = self.since = time.perf_counter() if begin is None else begin
        self.length = seconds / ROUNDS
        self.values, self.rates = [[] for _ in range(ROUNDS)], [[0, 0.0] for _ in range(ROUNDS)]

    def at(self, when):
        return min(ROUNDS - 1, int((when - self.begin) / self.length))

    def took(self, since, value):
        """Records a value of something that has ended now, and began at `since`."""
        if is_undisturbed(since):
            self.values[self.at(since)].append(value)

    def done(self, count=1):
        """Records that something was done again, or so many times, since the last call."""
        now = time.perf_counter()
        if is_undisturbed(self.since):
            rate = self.rates[self.at(self.since)]
            rate[0], rate[1] = rate[0] + count, rate[1] + now - self.since
        self.since = now

    def per_second(self):
        """Returns for each round how often it was done."""
        return [count / seconds if seconds else float("nan") for count, seconds in self.rates]


def quantile(values, share):
    """Returns the value below which a share of the values lies; nan if there are none."""
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")
