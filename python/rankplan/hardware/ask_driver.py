"""Print the uuids of the devices that CUDA shows to this process, or why the driver does not answer.

`driver.py` runs this file as a program, once for each rank. It imports only ctypes: that takes a third of the time.
"""

from __future__ import annotations

import ctypes

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE: an answer, not a fault


def ask() -> str:
    """Return ``devices`` and their uuids, each 32 hexadecimal digits, or ``problem`` and its description."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "problem libcuda.so.1 cannot be loaded"
    status = cuda.cuInit(0)
    if status == NO_DEVICE:
        return "devices"
    if status:
        return f"problem cuInit fails with error {status}"
    count = ctypes.c_int()
    if status := cuda.cuDeviceGetCount(ctypes.byref(count)):
        return f"problem cuDeviceGetCount fails with error {status}"
    # version 2 tells MIG devices apart
    uuid_of = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    uuids = []
    for ordinal in range(count.value):
        device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        status = cuda.cuDeviceGet(ctypes.byref(device), ordinal) or uuid_of(ctypes.byref(uuid), device)
        if status:
            return f"problem device {ordinal} cannot be queried: error {status}"
        uuids.append(bytes(uuid).hex())
    return " ".join(["devices", *uuids])


if __name__ == "__main__":
    try:
        print(ask())
    except AttributeError as missing:
        print(f"problem libcuda.so.1 is not a CUDA driver: {missing}")
