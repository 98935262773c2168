"""Names of a cluster: a program claims a name, and others on all hosts find it and are told when it
comes and goes::

    import weft.names

    with weft.names.connect() as names:
        names.publish("pump:7", "10.0.0.1:4000")
        print(names.find("pump:7").address)

The agent of the host must be a member of a cluster (``weftd --cluster NAME``). A name is ``WORD``,
``WORD:INSTANCE`` or ``WORD:FIRST-LAST``. Claims end when they are withdrawn, or when their
connection or process ends.
"""

import sys as _sys

if _sys.version_info < (3, 11):
    _version = ".".join(map(str, _sys.version_info[:2]))
    raise ImportError(f"weft.names needs Python 3.11 or newer; this is {_version}")

from weft._weft import Event, Names, Owner, Watch, connect

__all__ = ["Event", "Names", "Owner", "Watch", "connect"]
