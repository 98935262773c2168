"""Requests under ``await``."""

from __future__ import annotations

import asyncio
import time

#: Seconds of a wait in which the loop's other work alone separates two checks, and the longest
#: pause between two checks afterwards.
SPIN = 0.0005
PAUSE = 0.001


async def ended(request):
    """Returns the result of a request once it has ended; the loop goes on meanwhile."""
    begun = time.monotonic()
    while not request.test():
        waited = time.monotonic() - begun
        await asyncio.sleep(0 if waited < SPIN else min(waited / 8, PAUSE))
    return request.wait(0)
