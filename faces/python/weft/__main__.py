"""``python -m weft`` is the command ``weft``."""

import os
import sys

import weft

path = str(weft.command())
try:
    os.execv(path, [path, *sys.argv[1:]])
except OSError as error:
    sys.exit(f"{path}: {error.strerror}; install the package weft again")
