"""Message passing for the network people already have.

The package holds the commands ``weft`` and ``weftd``, the libfabric provider for MPI programs, and
the C library with its header. The functions below tell where these lie.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

__version__ = "@VERSION@"

__all__ = ["command", "include_dir", "library_dir", "pkgconfig_dir", "provider_dir"]


def _prefix() -> Path:
    # The folder below which pip has put this package's own files.
    for parent in Path(__file__).resolve().parents:
        if (parent / "lib" / "weft" / "libweft-fi.so").is_file():
            return parent
    return Path(sysconfig.get_path("data"))


def command() -> Path:
    """The path of the command ``weft``."""
    return _prefix() / "bin" / "weft"


def include_dir() -> Path:
    """The folder of ``weft.h``."""
    return _prefix() / "include"


def library_dir() -> Path:
    """The folder of the C library."""
    return _prefix() / "lib"


def pkgconfig_dir() -> Path:
    """The folder of ``weft.pc``, for ``PKG_CONFIG_PATH``."""
    return _prefix() / "lib" / "pkgconfig"


def provider_dir() -> Path:
    """The folder of the libfabric provider, for ``FI_PROVIDER_PATH``."""
    return _prefix() / "lib" / "weft"
