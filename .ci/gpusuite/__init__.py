"""The checks of `.ci/gpu`, by subject."""
