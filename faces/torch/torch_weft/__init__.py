"""weft as a backend of torch.distributed, for tensors in the memory of CPUs.

    import torch.distributed as dist
    dist.init_process_group("weft")

Programs need no import of this package: torch finds it by its entry point.
"""

__all__ = ["register"]


def register() -> None:
    """Makes the backend known to torch.distributed. Torch calls this at its first use."""
    import torch.distributed as dist

    from torch_weft import _backend

    dist.Backend.register_backend("weft", _backend.create, extended_api=True, devices=["cpu"])
