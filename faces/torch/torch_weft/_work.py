"""Operations that have begun."""

import threading

import torch
import torch.distributed as dist

from torch_weft._core import WeftError


class Result(list):
    """The tensors of an operation, and the rank that a message came from."""

    source = None


class Work(dist._Work):
    """An operation that has begun."""

    def __init__(self, core, tensors, copies=()):
        super().__init__()
        self._core = core
        self._tensors = tensors
        self._copies = copies
        self._future = None
        if copies:
            self._lock = threading.Lock()
            core.on_end(self._finish)

    def _finish(self):
        """Copies results to tensors whose elements are not in order; once."""
        if not self._copies:
            return
        with self._lock:
            copies, self._copies = self._copies, ()
            if not self._failed():
                with torch.no_grad():
                    for tensor, result in copies:
                        tensor.copy_(result)

    def _failed(self):
        try:
            self._core.result_now()
        except WeftError:
            return True
        return False

    def wait(self, timeout=None):
        """Waits until the operation has ended."""
        seconds = timeout.total_seconds() if timeout else None
        try:
            self._core.wait(seconds)
        except WeftError as error:
            raise dist.DistBackendError(str(error)) from None
        self._finish()
        return True

    def is_completed(self):
        """True if the operation has ended."""
        return self._core.is_done()

    def is_success(self):
        """True if the operation has ended without an error."""
        return self._core.is_done() and not self._failed()

    def exception(self):
        """Returns the error, if the operation has failed."""
        if self._core.is_done():
            try:
                self._core.result_now()
            except WeftError as error:
                return dist.DistBackendError(str(error))
        return None

    def result(self):
        """Returns the tensors of the operation."""
        return list(self._tensors)

    def source_rank(self):
        """Returns the rank that the message came from."""
        source = self._core.result_now()
        if source is None:
            raise RuntimeError("only a receive has a source")
        return source

    _source_rank = source_rank

    def synchronize(self):
        """Waits until the operation has ended."""
        self.wait()

    def get_future(self):
        """Returns a future that has the tensors once the operation has ended."""
        if self._future is None:
            self._future = torch.futures.Future()
            self._core.on_end(self._resolve)
        return self._future

    def _resolve(self):
        self._finish()
        try:
            source = self._core.result_now()
        except WeftError as error:
            self._future.set_exception(dist.DistBackendError(str(error)))
            return
        result = Result(self._tensors)
        result.source = source
        self._future.set_result(result)


class Together(dist._Work):
    """Operations that end when all of them have."""

    def __init__(self, works):
        super().__init__()
        self._works = works
        self._future = None

    def wait(self, timeout=None):
        """Waits until all operations have ended."""
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self):
        """True if all operations have ended."""
        return all(work.is_completed() for work in self._works)

    def result(self):
        """Returns the tensors of all operations."""
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self):
        """Returns a future that has the tensors once all operations have ended."""
        if self._future is None:
            futures = [work.get_future() for work in self._works]
            flat = lambda all: [tensor for one in all.value() for tensor in one.value()]
            self._future = torch.futures.collect_all(futures).then(flat)
        return self._future
