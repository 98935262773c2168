"""weft as a backend of torch.distributed, for tensors in the memory of CPUs.

    import torch.distributed as dist
    dist.init_process_group("weft")

Programs need no import of this package: torch finds it by its entry point. With TORCH_WEFT_GLOO=1
in the environment, programs that name the backend gloo get weft in its place.
"""

__all__ = ["autoload", "register"]


def register() -> None:
    """Makes the backend known to torch.distributed. Torch calls this at its first use."""
    import torch.distributed as dist

    from torch_weft import _backend

    dist.Backend.register_backend("weft", _backend.create, extended_api=True, devices=["cpu"])


def autoload() -> None:
    """Registers weft in gloo's place, if the environment asks for that. Torch calls this when it
    is imported."""
    import os

    wish = os.environ.get("TORCH_WEFT_GLOO", "")
    if wish in ("", "0"):
        return
    if wish != "1":
        raise ValueError(f"TORCH_WEFT_GLOO={wish!r} is not understood: use 1 or 0")
    import torch.distributed as dist

    from torch_weft import _backend

    register()
    # The type of gloo itself would have torch take the backend for an object of its own class.
    dist.Backend.register_backend("gloo", _backend.create, extended_api=True, devices=["cpu"])
