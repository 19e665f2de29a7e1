"""Measures the memory of this process."""

import resource
import sys


def measure_peak_memory_mb() -> float:
    """Return the peak memory of this process in 1e6 bytes.

    On a GPU it is the memory that torch reserved, on a CPU the peak resident set size.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.max_memory_reserved() / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6  # macOS counts bytes, Linux KiB
