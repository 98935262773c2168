"""Tensors as memory."""

import torch
from torch.distributed import ReduceOp

_NAMES = {
    dtype: str(dtype).removeprefix("torch.")
    for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32,
        torch.uint64, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
        torch.complex64, torch.complex128,
    )
}
_CPU = torch.device("cpu")


def check(tensors):
    """Raises an error for tensors that are not in the memory of a CPU."""
    for tensor in tensors:
        if tensor.device != _CPU:
            raise ValueError(
                f"the backend weft has tensors on cpu, and this one is on {tensor.device}: "
                "use another backend for that device, as in "
                "init_process_group('cpu:weft,cuda:nccl'), or tensor.cpu()"
            )
        if tensor.layout != torch.strided:
            raise ValueError(f"the backend weft has dense tensors, and this one is {tensor.layout}")


def is_plain(tensor):
    """True if the memory of a tensor has its elements in order, without gaps."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def read(tensor):
    """Returns a tensor with the same elements in order, without gaps: itself, if it can."""
    if is_plain(tensor):
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)


def pieces(tensors):
    """Returns address and length in bytes of each tensor."""
    return [(tensor.data_ptr(), tensor.nbytes) for tensor in tensors]


def cut(tensor, parts):
    """Returns as many pieces of the memory of a tensor, of the same length."""
    count, rest = divmod(tensor.numel(), parts)
    if rest:
        raise ValueError(f"{tensor.numel()} elements cannot be divided among {parts} ranks")
    size = count * tensor.element_size()
    address = tensor.data_ptr()
    return [[(address + at * size, size)] for at in range(parts)]


def split(tensor, sizes, parts):
    """Returns pieces of the memory of a tensor by the lengths of its first dimension."""
    if not sizes:
        if tensor.dim() and tensor.size(0) % parts:
            raise ValueError(
                f"the first dimension, of {tensor.size(0)}, cannot be divided among {parts} ranks: "
                "pass the sizes of the parts"
            )
        return cut(tensor, parts)
    if len(sizes) != parts:
        raise ValueError(f"{len(sizes)} sizes of parts for {parts} ranks")
    rows = tensor.size(0) if tensor.dim() else 1
    if sum(sizes) != rows:
        raise ValueError(f"parts of {sum(sizes)} in all for a first dimension of {rows}")
    row = tensor.nbytes // rows if rows else 0
    at, found = tensor.data_ptr(), []
    for size in sizes:
        found.append([(at, size * row)])
        at += size * row
    return found


def combined(tensors, reduction):
    """Returns the names of the elements' type and of a reduction, and its factor or None."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        if tensor.dtype != dtype:
            raise ValueError(f"tensors of types {dtype} and {tensor.dtype} in one reduction")
    op = getattr(reduction, "op", reduction)
    name, factor = op.name, None
    if op == ReduceOp.PREMUL_SUM:
        name, factor = "SUM", reduction.factor
    return (_NAMES.get(dtype) or str(dtype).removeprefix("torch."), name), factor
