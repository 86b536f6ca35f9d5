"""The figures that the programs beside this print. Needs nothing but Python."""


def quantile(values, share):
    """Returns the value below which a share of the values lies; nan if there are none."""
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")
