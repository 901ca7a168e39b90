"""The gate: limits, baselines and comparisons, each ending in a verdict."""
