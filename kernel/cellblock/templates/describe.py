"""Count, mean, spread and quartiles of some numbers."""

import statistics


def run(state: dict) -> dict:
    """Return what describes ``state["numbers"]``, rounded to ``digits`` (3) places."""
    numbers, digits = state["numbers"], state.get("digits", 3)
    low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
    found = {
        "count": len(numbers),
        "mean": statistics.fmean(numbers),
        "deviation": statistics.stdev(numbers),
        "least": min(numbers),
        "quartile 1": low,
        "median": middle,
        "quartile 3": high,
        "most": max(numbers),
    }
    return {name: round(value, digits) for name, value in found.items()}
