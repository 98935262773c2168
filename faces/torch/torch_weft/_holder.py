"""The objects by which torch holds operations of backends that are written in Python.

torch (2.14, 2.15) puts the operation of such a backend into an object of its own class `Work`,
which passes `wait` and `get_future` on and nothing else: it never says that the operation is
completed, and has no source of a message. `complete` has that class ask the future for the rest, if
it has no answer of its own.
"""

import torch.distributed as dist

from torch_weft._work import Result

_Work = dist._Work
_is_complete = False


def _ended(work):
    """Returns the future of an operation of this backend, if it has ended."""
    if type(work) is not _Work:
        return None
    try:
        future = work.get_future()
        if not future.done():
            return None
        return future if isinstance(future.value(), Result) else None
    except dist.DistBackendError:
        return future
    except RuntimeError:
        return None


def _error(future):
    try:
        future.value()
    except RuntimeError as error:
        return error
    return None


def complete():
    """Completes torch's class; once."""
    global _is_complete
    if _is_complete:
        return
    _is_complete = True
    is_completed, is_success = _Work.is_completed, _Work.is_success
    exception, result, source_rank = _Work.exception, _Work.result, _Work._source_rank

    def completed(self):
        return is_completed(self) or _ended(self) is not None

    def succeeded(self):
        future = _ended(self)
        return is_success(self) if future is None else _error(future) is None

    def failure(self):
        future = _ended(self)
        return exception(self) if future is None else _error(future)

    def results(self):
        future = _ended(self)
        return result(self) if future is None else list(future.value())

    def source(self):
        future = _ended(self)
        rank = None if future is None else future.value().source
        return source_rank(self) if rank is None else rank

    _Work.is_completed, _Work.is_success, _Work.exception = completed, succeeded, failure
    _Work.result, _Work.source_rank, _Work._source_rank = results, source, source
