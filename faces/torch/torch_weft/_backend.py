"""The backend: a process group's operations on tensors."""

import atexit
import os
import secrets
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, ErrorType

from torch_weft import _core, _holder, _members, _tensors
from torch_weft._tensors import check, combined, cut, pieces, read, split
from torch_weft._work import Together, Work

# Tags of the package itself; programs have those below.
_ARRIVED = 0xFFFF_FFFE
_PASSED = 0xFFFF_FFFF

# Process groups that are in use. Torch holds the object of C++ alone, which needs that of Python.
_open = set()


@atexit.register
def _leave():
    """Leaves the process groups that the program has left open."""
    for backend in list(_open):
        backend.shutdown()


def create(opts, options=None):
    """Makes the backend of a process group; torch calls this."""
    _holder.complete()
    if options is None:
        options = Backend.Options("weft", timeout=opts.timeout)
    options._timeout = opts.timeout
    options.global_ranks_in_group = opts.global_ranks_in_group
    options.group_name = opts.group_id
    options.enable_reconfigure = opts.enable_reconfigure
    backend = WeftBackend(opts.store, opts.group_rank, opts.group_size, options)
    if opts.enable_reconfigure:
        return _members.ChangingGroup(opts.store, backend)
    return backend


class WeftBackend(Backend):
    """A process group over weft."""

    def __init__(self, store, rank, size, options):
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._options = options
        self._seconds = options._timeout.total_seconds()
        self._together = None
        self._sequence = 0
        self._store = None
        if options.enable_reconfigure:
            ranks = options.global_ranks_in_group
            self._handle = _members.handle(ranks[rank] if ranks else rank, secrets.token_hex(4))
            self._store = store
            self._core = _Nothing()
        else:
            self._core = _core.Group(store, _name(options), rank, size, self._seconds)
        _open.add(self)

    def rank(self):
        """Returns the rank of this process."""
        return self._rank

    def size(self):
        """Returns the number of ranks."""
        return self._size

    @property
    def options(self):
        """The options of the process group."""
        return self._options

    @property
    def supports_splitting(self):
        """True: `split` makes a process group of some ranks."""
        return True

    @property
    def supports_coalescing(self):
        """True: operations may begin together."""
        return True

    def getBackendName(self):
        """Returns the name of the backend."""
        return "weft"

    def set_timeout(self, timeout):
        """Sets the longest time of operations that begin later."""
        self._seconds = timeout.total_seconds()
        self._options._timeout = timeout

    def _set_default_timeout(self, timeout):
        self.set_timeout(timeout)

    def _get_sequence_number_for_group(self):
        return self._sequence

    def _set_sequence_number_for_group(self):
        self._sequence = 0

    def _how(self, opts, tensors):
        seconds = opts.timeout.total_seconds()
        return (seconds if seconds > 0 else self._seconds, not opts.asyncOp, tensors)

    def _begun(self, core, tensors, copies=()):
        self._sequence += 1
        work = Work(core, tensors, copies)
        if self._together is not None:
            self._together.append(work)
        return work

    def start_coalescing(self):
        """Begins a set of operations that end together."""
        self._together = []

    def end_coalescing(self):
        """Returns the operations that began since `start_coalescing` as one."""
        works, self._together = self._together, None
        return Together(works)

    def allreduce(self, tensors, opts):
        """Combines tensors of all ranks, on every rank."""
        check(tensors)
        how, factor = combined(tensors, opts.reduceOp)
        if factor is not None:
            for tensor in tensors:
                tensor.mul_(factor)
        plain, copies = _inout(tensors)
        core = self._core.allreduce(pieces(plain), how, self._how(opts, plain))
        return self._begun(core, tensors, copies)

    def allreduce_coalesced(self, tensors, opts):
        """Combines tensors of all ranks, on every rank, by one operation."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts):
        """Combines tensors of all ranks, at the root."""
        check(tensors)
        how, factor = combined(tensors, opts.reduceOp)
        plain, copies = _inout(tensors)
        if factor is not None:
            plain, copies = _scaled(plain, factor, copies if self.rank() == opts.rootRank else ())
        is_root = self.rank() == opts.rootRank
        core = self._core.reduce(opts.rootRank, pieces(plain), how, self._how(opts, plain))
        return self._begun(core, tensors, copies if is_root else ())

    def broadcast(self, tensors, opts):
        """Gives tensors of the root to all ranks."""
        check(tensors)
        plain, copies = _inout(tensors)
        is_root = self.rank() == opts.rootRank
        core = self._core.broadcast(opts.rootRank, pieces(plain), self._how(opts, plain))
        return self._begun(core, tensors, () if is_root else copies)

    def allgather(self, output_lists, inputs, opts):
        """Gives every rank a tensor of each rank."""
        outputs = _one(output_lists, "lists of outputs")
        return self._gathered([outputs], [_one(inputs, "inputs")], opts)

    def allgather_coalesced(self, output_lists, inputs, opts):
        """Gives every rank tensors of each rank: a list of outputs for each rank."""
        if len(output_lists) != self.size():
            raise ValueError(f"{len(output_lists)} lists of outputs for {self.size()} ranks")
        by_input = [list(outputs) for outputs in zip(*output_lists)]
        return self._gathered(by_input, inputs, opts)

    def _gathered(self, outputs_by_input, inputs, opts):
        flat = [output for outputs in outputs_by_input for output in outputs]
        check(inputs)
        check(flat)
        for outputs, input in zip(outputs_by_input, inputs, strict=True):
            self._check_each(outputs, input, "outputs")
        plain, copies = _out(flat)
        given = [read(input) for input in inputs]
        ranks = range(self.size())
        by_rank = [pieces(plain[rank :: self.size()]) for rank in ranks]
        keep = (given, plain)
        core = self._core.allgather(pieces(given), by_rank, self._how(opts, keep))
        return self._begun(core, flat, copies)

    def all_gather_single(self, output, input, opts):
        """Gives every rank the tensors of all as one."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        """Gives every rank the tensors of all, as one for each input."""
        check(inputs)
        check(outputs)
        for output, input in zip(outputs, inputs, strict=True):
            if output.dtype != input.dtype:
                raise ValueError(f"output of type {output.dtype}, input of type {input.dtype}")
            if output.numel() != input.numel() * self.size():
                raise ValueError(
                    f"an output of {output.numel()} elements for {self.size()} ranks "
                    f"with {input.numel()} each"
                )
        plain, copies = _out(outputs)
        given = [read(input) for input in inputs]
        by_output = [cut(output, self.size()) for output in plain]
        by_rank = [[part for parts in each for part in parts] for each in zip(*by_output)]
        core = self._core.allgather(pieces(given), by_rank, self._how(opts, (given, plain)))
        return self._begun(core, outputs, copies)

    def gather(self, output_lists, inputs, opts):
        """Gives the root a tensor of each rank."""
        input = _one(inputs, "inputs")
        root = opts.rootRank
        outputs = []
        if self.rank() == root:
            outputs = _one(output_lists, "lists of outputs")
            self._check_each(outputs, input, "outputs")
        elif output_lists:
            raise ValueError(f"outputs of a gather are those of its root, rank {root}")
        check([input, *outputs])
        plain, copies = _out(outputs)
        given = read(input)
        tensors = (pieces([given]), [pieces([each]) for each in plain])
        core = self._core.gather(root, tensors, self._how(opts, (given, plain)))
        return self._begun(core, outputs, copies)

    def scatter(self, outputs, input_lists, opts):
        """Gives each rank its tensor of the root's list."""
        output = _one(outputs, "outputs")
        root = opts.rootRank
        inputs = []
        if self.rank() == root:
            inputs = _one(input_lists, "lists of inputs")
            self._check_each(inputs, output, "inputs")
        elif input_lists:
            raise ValueError(f"inputs of a scatter are those of its root, rank {root}")
        check([output, *inputs])
        plain, copies = _out([output])
        given = [read(input) for input in inputs]
        tensors = ([pieces([each]) for each in given], pieces(plain))
        core = self._core.scatter(root, tensors, self._how(opts, (given, plain)))
        return self._begun(core, outputs, copies)

    def reduce_scatter(self, outputs, input_lists, opts):
        """Combines lists of tensors, and gives each rank the one at its place."""
        output, inputs = _one(outputs, "outputs"), _one(input_lists, "lists of inputs")
        if len(inputs) != self.size():
            raise ValueError(f"{len(inputs)} inputs for {self.size()} ranks")
        if inputs[self.rank()].numel() != output.numel():
            raise ValueError(
                f"an output of {output.numel()} elements for an input of "
                f"{inputs[self.rank()].numel()}"
            )
        check([output, *inputs])
        how, factor = combined([output, *inputs], opts.reduceOp)
        given = _factored([read(input) for input in inputs], factor)
        return self._scattered([[piece] for piece in pieces(given)], given, [output], (how, opts))

    def reduce_scatter_single(self, output, input, opts):
        """Combines tensors, and gives each rank its part of the result."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        """Combines tensors, and gives each rank its part of each result."""
        check(inputs)
        check(outputs)
        how, factor = combined([*outputs, *inputs], opts.reduceOp)
        for output, input in zip(outputs, inputs, strict=True):
            if input.numel() != output.numel() * self.size():
                raise ValueError(
                    f"an input of {input.numel()} elements for {self.size()} ranks "
                    f"with outputs of {output.numel()}"
                )
        given = _factored([read(input) for input in inputs], factor)
        by_input = [cut(input, self.size()) for input in given]
        by_rank = [[part for parts in each for part in parts] for each in zip(*by_input)]
        return self._scattered(by_rank, given, outputs, (how, opts))

    def _scattered(self, by_rank, given, outputs, how_opts):
        how, opts = how_opts
        plain, copies = _out(outputs)
        keep = self._how(opts, (given, plain))
        core = self._core.reduce_scatter(by_rank, pieces(plain), how, keep)
        return self._begun(core, outputs, copies)

    def all_to_all_single(self, output, input, output_sizes, input_sizes, opts):
        """Sends each rank a part of the input, and gets a part of the output of each."""
        check([output, input])
        if output.dtype != input.dtype:
            raise ValueError(f"output of type {output.dtype}, input of type {input.dtype}")
        plain, copies = _out([output])
        given = read(input)
        sent = split(given, input_sizes, self.size())
        come = split(plain[0], output_sizes, self.size())
        core = self._core.alltoall(sent, come, self._how(opts, (given, plain)))
        return self._begun(core, [output], copies)

    def alltoall(self, outputs, inputs, opts):
        """Sends a tensor to each rank, and gets one of each."""
        for tensors, name in ((outputs, "outputs"), (inputs, "inputs")):
            if len(tensors) != self.size():
                raise ValueError(f"{len(tensors)} {name} for {self.size()} ranks")
        check([*outputs, *inputs])
        plain, copies = _out(outputs)
        given = [read(input) for input in inputs]
        sent = [pieces([each]) for each in given]
        come = [pieces([each]) for each in plain]
        core = self._core.alltoall(sent, come, self._how(opts, (given, plain)))
        return self._begun(core, outputs, copies)

    def barrier(self, opts):
        """Ends when all ranks have begun it."""
        return self._begun(self._core.barrier(self._how(opts, ())), [])

    def send(self, tensors, rank, tag=0):
        """Sends a tensor to a rank."""
        check(tensors)
        given = [read(tensor) for tensor in tensors]
        core = self._core.send((rank, _tag(tag)), pieces(given), (self._seconds, False, given))
        return self._begun(core, tensors)

    def recv(self, tensors, rank, tag=0):
        """Receives a tensor from a rank."""
        return self._received(tensors, rank, tag)

    def recv_anysource(self, tensors, tag=0):
        """Receives a tensor from any rank."""
        return self._received(tensors, None, tag)

    def _received(self, tensors, rank, tag):
        check(tensors)
        plain, copies = _out(tensors)
        core = self._core.recv((rank, _tag(tag)), pieces(plain), (self._seconds, False, plain))
        return self._begun(core, tensors, copies)

    def monitored_barrier(self, opts, wait_all_ranks=False):
        """Waits for all ranks; rank 0 names those that do not come."""
        seconds = opts.timeout.total_seconds()
        seconds = seconds if seconds >= 0 else self._seconds
        until = time.monotonic() + seconds
        how = (seconds, True, ())
        if self.rank() != 0:
            self._core.send((0, _ARRIVED), [], how)
            try:
                self._core.recv((0, _PASSED), [], how).wait()
            except _core.WeftError as error:
                raise dist.DistBackendError(
                    f"Rank {self.rank()} successfully reached monitoredBarrier, but received "
                    f"errors while waiting for send/recv from rank 0: {error}"
                ) from None
            return
        others = range(1, self.size())
        come = {rank: self._core.recv((rank, _ARRIVED), [], how) for rank in others}
        late = {}
        milliseconds = round(seconds * 1000)
        for rank, work in come.items():
            if time.monotonic() >= until and not late:
                raise dist.DistBackendError(
                    f"[Rank 0]: Rank 0 timed out in monitoredBarrier after {milliseconds} ms"
                )
            try:
                work.wait()
            except _core.WeftError as error:
                late[rank] = error
                if not wait_all_ranks:
                    break
        if late:
            first, error = next(iter(late.items()))
            names = ", ".join(str(rank) for rank in late)
            word = f"Ranks {names}" if wait_all_ranks else f"Rank {first}"
            raise dist.DistBackendError(
                f"[Rank 0]: {word} failed to pass monitoredBarrier in {milliseconds} ms: {error}"
            )
        for rank in others:
            self._core.send((rank, _PASSED), [], how).wait()

    def split(self, store, ranks, opts):
        """Makes a process group of some ranks; None on the other ranks."""
        ranks = list(ranks)
        if self.rank() not in ranks:
            return None
        options = opts or Backend.Options("weft", timeout=self._options._timeout)
        all_ranks = self._options.global_ranks_in_group
        known = len(all_ranks) == self.size()
        options.global_ranks_in_group = [all_ranks[rank] for rank in ranks] if known else ranks
        return WeftBackend(store, ranks.index(self.rank()), len(ranks), options)

    @property
    def supports_reconfigure(self):
        """True if the ranks of the process group may change."""
        return self._store is not None

    def get_reconfigure_handle(self):
        """Returns the name by which other processes take this one into a process group."""
        if self._store is None:
            raise RuntimeError("ranks change where a program asks for it: enable_reconfigure=True")
        return self._handle

    def reconfigure(self, opts):
        """Makes the process group one of these processes; what is under way fails."""
        own = self.get_reconfigure_handle()
        handles, rank = _members.ordered(opts.handles, own)
        store = dist.PrefixStore(f"reconfigure/{opts.uuid}", self._store)
        _members.claim(store, opts.uuid, rank, own)
        seconds = self._seconds if opts.timeout is None else opts.timeout.total_seconds()
        self._core.shutdown()
        self._core = _Nothing()
        name = f"{_name(self._options)}-{opts.uuid}"
        self._core = _core.Group(store, name, rank, len(handles), seconds)
        _open.add(self)
        self._rank, self._size, self._sequence = rank, len(handles), 0
        self._options.global_ranks_in_group = _members.stable_ranks(handles)
        return Together([])

    def get_error(self):
        """Returns no error: each operation has its own."""
        return ErrorType.SUCCESS

    def shutdown(self):
        """Sends what is queued and leaves the process group."""
        self._core.shutdown()
        _open.discard(self)

    def abort(self):
        """Leaves the process group at once: operations under way fail."""
        self._core.abort()
        _open.discard(self)

    def _check_each(self, tensors, like, name):
        if len(tensors) != self.size():
            raise ValueError(f"{len(tensors)} {name} for {self.size()} ranks")
        for tensor in tensors:
            if tensor.dtype != like.dtype or tensor.numel() != like.numel():
                raise ValueError(
                    f"a tensor of {tensor.numel()} elements of {tensor.dtype} among {name}, "
                    f"beside one of {like.numel()} of {like.dtype}"
                )


class _Nothing:
    """The core of a process group before its first `reconfigure`, and after one that failed."""

    def shutdown(self):
        """Leaves nothing."""

    abort = shutdown

    def __getattr__(self, name):
        raise dist.DistBackendError(
            f"{name}: the process group has no ranks yet: call _reconfigure with their handles"
        )


def _name(options):
    run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return f"torch-{run}-{options.group_name}"


def _tag(tag):
    if not 0 <= tag < _ARRIVED:
        raise ValueError(f"a tag is a number from 0 to {_ARRIVED - 1}, and this one is {tag}")
    return tag


def _one(tensors, name):
    if len(tensors) != 1:
        raise ValueError(f"{len(tensors)} {name}, where there is one device: pass one")
    return tensors[0]


def _out(tensors):
    """Returns tensors for results, and those of them that are copied after the end."""
    plain = [
        tensor if _tensors.is_plain(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)
        for tensor in tensors
    ]
    copies = [(tensor, new) for tensor, new in zip(tensors, plain) if new is not tensor]
    return plain, copies


def _inout(tensors):
    """Returns tensors that are read and written, and those that are copied after the end."""
    plain = [read(tensor) for tensor in tensors]
    copies = [(tensor, new) for tensor, new in zip(tensors, plain) if new is not tensor]
    return plain, copies


def _factored(tensors, factor):
    return tensors if factor is None else [tensor * factor for tensor in tensors]


def _scaled(plain, factor, copies):
    """Returns products for a reduction at a root, and the copies of its results."""
    targets = {id(new): tensor for tensor, new in copies}
    scaled = [tensor * factor for tensor in plain]
    return scaled, [(targets.get(id(old), old), new) for old, new in zip(plain, scaled)]
