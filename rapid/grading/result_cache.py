"""A cache of results that each take long to compute, shared between threads."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class CachedResult(Generic[Result]):
    """A result, None until it is computed. `lock` is held while it is computed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.result: Result | None = None


class ResultCache(Generic[Result]):
    """Computes each result once, and keeps the last `max_results` that were used.

    If several threads need a result, one computes it and the others wait. If computing it raises an
    error, nothing is cached, and one of those that wait computes it again.
    """

    def __init__(self, max_results: int):
        self._max_results = max_results
        self._cache: OrderedDict[Hashable, CachedResult[Result]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Return the result with this key, which `compute` returns if it is not in the cache."""
        with self._lock:
            cached = self._cache.setdefault(key, CachedResult())
            self._cache.move_to_end(key)
            if len(self._cache) > self._max_results:
                self._cache.popitem(last=False)
        with cached.lock:
            if cached.result is None:
                cached.result = compute()
            return cached.result
