"""Sums of gradients over the ranks of a job: in place, in the optimizer's flat arrays, bucket by
bucket.

All ranks send their buckets in the same order, from the last parameters to the first, as backward
comes to them. With a thread for it, a bucket is on its way while backward works on the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..core.graph import Node
from ..core.tensor import Tensor
from ..optim import Optimizer
from ..optim.optimizer import FlatGroup

if TYPE_CHECKING:  # loaded where it is used: it takes as long as all of minigrad
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Buckets"]


class Buckets:
    """`add_up(array)` makes a stretch of the flat gradients the sum over all ranks, in place.

    `bytes` and `count` tell what was summed, `seconds` how long that took, and `waited` how much of
    it the thread that computes had to wait for: for the ranks that are slower, too.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        add_up: Callable[[np.ndarray], object],
        bucket_bytes: int,
        overlap: bool,
    ) -> None:
        self.groups, self.add_up = optimizer._groups, add_up
        self.stretches: list[tuple[FlatGroup, slice]] = []
        self._bucket_of: dict[Tensor, int] = {}
        for group in reversed(self.groups):
            self._divide(group, max(1, bucket_bytes // group.data.itemsize))
        self._sizes = [0] * len(self.stretches)
        for bucket in self._bucket_of.values():
            self._sizes[bucket] += 1
        self._thread = _thread() if overlap else None
        self._under_way: list[Future[None]] = []
        self.begin()
        self.bytes, self.count, self.seconds, self.waited = 0, 0, 0.0, 0.0

    def _divide(self, group: FlatGroup, size: int) -> None:
        """Cut a group into stretches of whole parameters, of at least `size` numbers but for the
        last.
        """
        stop = group.size
        for p, place in reversed(list(zip(group.parameters, group.places))):
            self._bucket_of[p] = len(self.stretches)
            if stop - place.start >= size or place.start == 0:
                self.stretches.append((group, slice(place.start, stop)))
                stop = place.start

    # -- a step ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Nothing is sent yet."""
        self._sent = 0
        self._missing = list(self._sizes)
        self._places = {p._node: bucket for p, bucket in self._bucket_of.items()}

    def on_leaf(self, node: Node) -> None:
        """Send what is complete, now that the gradient of this leaf is whole."""
        bucket = self._places.get(node)
        if bucket is None or getattr(node.grad, "base", None) is not self.stretches[bucket][0].grad:
            return  # not a parameter, or brought to its place by `gather`
        self._missing[bucket] -= 1
        while self._sent < len(self._missing) and self._missing[self._sent] == 0:
            self._send()

    def gather(self) -> None:
        """Bring all gradients of this process to their places: zeros for parameters that have none."""
        for group in self.groups:
            group.fill()
        self.bind(self.present())

    def present(self) -> np.ndarray:
        """Which parameters have a gradient (1 or 0)."""
        return np.array(
            [p.grad is not None for group in self.groups for p in group.parameters], np.int64
        )

    def bind(self, present: np.ndarray) -> None:
        """What is in its place now is the gradient of these parameters."""
        places = [
            (group, p, place)
            for group in self.groups
            for p, place in zip(group.parameters, group.places)
        ]
        for (group, p, place), there in zip(places, present):
            if there:
                p.grad = group.grad[place].reshape(p.shape)

    def send_rest(self) -> None:
        """Send the buckets that are left, and wait until all have been summed."""
        began = time.perf_counter()
        while self._sent < len(self.stretches):
            self._send()
        while self._under_way:
            self._under_way.pop(0).result()
        self.waited += time.perf_counter() - began

    # -- sending -----------------------------------------------------------------------------------

    def _send(self) -> None:
        group, stretch = self.stretches[self._sent]
        self._sent += 1
        if self._thread is not None:
            self._under_way.append(self._thread.submit(self._sum, group.grad[stretch]))
        else:
            self._sum(group.grad[stretch])

    def _sum(self, part: np.ndarray) -> None:
        began = time.perf_counter()
        self.add_up(part)
        self.seconds += time.perf_counter() - began
        self.bytes += part.nbytes
        self.count += 1


def _thread() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, "minigrad-mpi")
