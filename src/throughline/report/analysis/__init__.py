"""Compute what records come to: medians, speedups, comparisons, goals, costs, doubts. It knows nothing of render/."""
