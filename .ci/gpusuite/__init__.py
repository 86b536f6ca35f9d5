"""The checks of `.ci/gpu`, by subject."""
from . import swappable  # noqa: F401: importing is registering
