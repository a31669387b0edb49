"""Hold memory of the first CUDA device of this process until the standard input ends: ``hold.py MEBIBYTES``.

It prints ``held`` once it has the memory. It imports only ctypes, so that the driver is all that it needs.
"""

from __future__ import annotations

import ctypes
import sys


def hold(mebibytes: int, ordinal: int = 0) -> None:
    """Take the memory of a device in its context. Raises ``OSError`` if the driver refuses."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    steps = (
        (cuda.cuInit, (0,)),
        (cuda.cuDeviceGet, (ctypes.byref(device), ordinal)),
        (cuda.cuDevicePrimaryCtxRetain, (ctypes.byref(context), device)),
        (cuda.cuCtxSetCurrent, (context,)),
        (cuda.cuMemAlloc_v2, (ctypes.byref(address), ctypes.c_size_t(mebibytes << 20))),
    )
    for function, arguments in steps:
        status = function(*arguments)
        if status:
            raise OSError(f"{function.__name__} fails with error {status}")


if __name__ == "__main__":
    try:
        hold(int(sys.argv[1]))
    except OSError as refused:
        sys.exit(str(refused))
    print("held", flush=True)
    sys.stdin.read()
