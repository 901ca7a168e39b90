"""A network of this process's own, with nothing in it but loopback.

Dynamo's event plane listens on every address whatever it is told; inside such a network, every address is this
process's own.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
import sys

_CLONE_NEWNET, _CLONE_NEWUSER = 0x40000000, 0x10000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 0x1
_REQUEST = "16sh14x"


def enter() -> None:
    """Move this process and its children into a network namespace; say so where the system does not allow it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) and libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        print(
            "no network namespace can be made here: Dynamo's event plane will listen on all addresses",
            file=sys.stderr,
        )
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        asked = struct.pack(_REQUEST, b"lo", 0)
        flags = struct.unpack(_REQUEST, fcntl.ioctl(control, _SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack(_REQUEST, b"lo", flags | _IFF_UP))
