"""The vendor table: how the accelerators of each type are counted by Ray and shown to a process.

A leaf: a new vendor is a new row here, nothing else in rankplan tells vendors apart.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_ACCEL = "NO_ACCEL"
"""The accelerator type of a node, or of a process, without accelerators."""


@dataclass(frozen=True, slots=True)
class Vendor:
    """One type of accelerator.

    ``resource`` is the name under which Ray counts it, ``visibility`` the variable that lists the devices a process
    may use, and ``hands_off`` the variable that tells Ray to leave ``visibility`` alone (``None``: Ray never sets it).
    """

    accelerator_type: str
    resource: str
    visibility: str
    hands_off: str | None


VENDORS: tuple[Vendor, ...] = (
    Vendor("NV_GPU", "GPU", "CUDA_VISIBLE_DEVICES", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"),
    Vendor("AMD_GPU", "GPU", "HIP_VISIBLE_DEVICES", "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES"),
    Vendor("INTEL_GPU", "GPU", "ZE_AFFINITY_MASK", "RAY_EXPERIMENTAL_NOSET_ZE_AFFINITY_MASK"),
    Vendor("NPU", "NPU", "ASCEND_RT_VISIBLE_DEVICES", "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"),
    Vendor("MUSA_GPU", "GPU", "MUSA_VISIBLE_DEVICES", None),
    Vendor("KUNLUN_XPU", "GPU", "CUDA_VISIBLE_DEVICES", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"),
)

_BY_TYPE = {row.accelerator_type: row for row in VENDORS}


def vendor(accelerator_type: str) -> Vendor | None:
    """Return the row of a type, or ``None`` for ``NO_ACCEL``; an unknown type is a ``ValueError``."""
    if accelerator_type == NO_ACCEL:
        return None
    try:
        return _BY_TYPE[accelerator_type]
    except KeyError:
        known = ", ".join([*_BY_TYPE, NO_ACCEL])
        raise ValueError(f"unknown accelerator type {accelerator_type!r}; the types are {known}") from None
