"""The vendor table: how Ray counts the accelerators of each type, and how a process sees them.

A new vendor is a new row here, or one that `register_accelerator` adds; no other code distinguishes vendors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from itertools import takewhile
from typing import Any

from rankplan.frozen import frozen

NO_ACCEL = "NO_ACCEL"
"""The accelerator type of a node, or of a process, without accelerators."""

_NO_ID = r"-\d+|\d+-\d+|[A-Za-z]*|.*[\s;].*"  # -1, a range, empty, NoDevFiles, 0;1


@frozen
class Vendor:
    """One type of accelerator.

    ``vendor`` is the vendor's name. ``resource`` is Ray's name of the resource, and ``manager`` Ray's class that
    detects it on a node (``None``: Ray cannot detect it, a node label states it). ``env_var`` is the variable that
    lists the devices of a process, and ``noset_env_var`` the one that tells Ray not to set it (``None``: Ray never
    does).

    ``prefix`` precedes each id in ``env_var``. ``bounds`` are the further variables that a process needs, by its number
    of devices. ``unordered`` is the reason why the order of the ids in ``env_var`` cannot be chosen, empty if a process
    counts its devices in that order. ``conflicts`` are other variables that hide devices or change the meaning of an
    id, each with a pattern of the values that do so even if ``env_var`` is set.

    ``torch_device`` is PyTorch's name of the device type, and ``torch_plugin`` the module that registers it (``None``:
    PyTorch itself). ``resource_key`` is the resource of a Kubernetes node that counts the devices, as the vendor's
    device plugin names it (``None``: there are several, or none).
    """

    accelerator_type: str
    vendor: str
    resource: str
    manager: str | None
    env_var: str
    noset_env_var: str | None
    prefix: str = ""
    bounds: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    unordered: str = ""
    conflicts: Mapping[str, str] = field(default_factory=dict)
    torch_device: str | None = None
    torch_plugin: str | None = None
    resource_key: str | None = None

    @property
    def variables(self) -> set[str]:
        """Every variable that affects which of these devices a process sees."""
        beside = {name for variables in self.bounds.values() for name in variables}
        return {self.env_var, *([self.noset_env_var] if self.noset_env_var else []), *beside, *self.conflicts}

    def showing(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the variables that show these devices to a process, in this order, and that Ray does not change."""
        listed = [self.prefix + name.removeprefix(self.prefix) for name in ids]
        noset = {self.noset_env_var: "1"} if self.noset_env_var else {}
        return {self.env_var: ",".join(listed), **noset, **self.bounds.get(len(listed), {})}

    def shown(self, environment: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the ids that a process with this environment sees, in order; ``None`` if it sees all devices.

        The list ends at the first invalid id, as in the vendors' own libraries.
        """
        if self.env_var not in environment:
            return None
        parts = (part.strip().removeprefix(self.prefix) for part in environment[self.env_var].split(","))
        return tuple(dict.fromkeys(takewhile(lambda part: not re.fullmatch(_NO_ID, part), parts)))

    def disturbed(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of this environment that override or distort ``env_var``."""
        here = {name: environment[name] for name in self.conflicts if name in environment}
        if self.env_var not in environment:
            return here
        return {name: value for name, value in here.items() if re.fullmatch(self.conflicts[name], value)}


def _vendor(
    accelerator_type: str,
    vendor: str,
    resource: str,
    manager: str | None,
    env_var: str,
    noset: str = "",
    conflicts: Iterable[str] | Mapping[str, str] = (),
    **more: Any,
) -> Vendor:
    """Return a row whose ``noset_env_var`` is Ray's usual name for ``env_var``, or for ``noset`` if that differs.

    ``manager`` is the start of the name of Ray's class. ``conflicts`` without patterns count with any value.
    """
    manager = f"{manager}AcceleratorManager" if manager else None
    noset_env_var = f"RAY_EXPERIMENTAL_NOSET_{noset or env_var}"
    patterns = conflicts if isinstance(conflicts, Mapping) else dict.fromkeys(conflicts, _ANY)
    return Vendor(accelerator_type, vendor, resource, manager, env_var, noset_env_var, conflicts=patterns, **more)


_CUDA = "CUDA_VISIBLE_DEVICES"
_ANY = ".*"
_UNKNOWN = "its documentation does not state that the order of a mask counts"
_OWN_ORDER = "Level Zero counts the devices of a mask in its own order"
_ASCENDING = "the Ascend runtime requires ascending ids"
_ONE_PROCESS = "a chip belongs to one process only"
_OF_HIP = ["ROCR_VISIBLE_DEVICES", _CUDA, "GPU_DEVICE_ORDINAL"]
"""HIP counts within the devices of ROCR and falls back to CUDA's variable. The last one is OpenCL's."""
_OF_SYCL = {"ONEAPI_DEVICE_SELECTOR": r".*\d.*"}
"""SYCL counts within the devices of the mask; a value such as level_zero:gpu selects only a backend."""
_OF_TPU = ["TPU_VISIBLE_DEVICES", "RAY_TPU_RESOURCE_PER_CHIP"]
"""With the second one, Ray counts parts of chips, which a process cannot see one by one."""
_BOUNDS = {count: {"TPU_CHIPS_PER_HOST_BOUNDS": f"1,{count},1", "TPU_HOST_BOUNDS": "1,1,1"} for count in (1, 2)}
"""libtpu needs the shape of a part of a host, and that the part is independent.

Ray: ``TPUAcceleratorManager.set_current_process_visible_accelerator_ids``.
"""

_MUSA: Any = {"torch_device": "musa", "torch_plugin": "torch_musa"}
_ASCEND: Any = {"torch_device": "npu", "torch_plugin": "torch_npu", "resource_key": "huawei.com/Ascend910"}
_GAUDI: Any = {"torch_device": "hpu", "torch_plugin": "habana_frameworks.torch", "resource_key": "habana.ai/gaudi"}

VENDORS: list[Vendor] = [
    _vendor("NV_GPU", "NVIDIA", "GPU", "NvidiaGPU", _CUDA, torch_device="cuda", resource_key="nvidia.com/gpu"),
    # PyTorch for ROCm keeps the name cuda, and so does Kunlun's, as RLinf's manager shows.
    _vendor(
        *("AMD_GPU", "AMD", "GPU", "AMDGPU", "HIP_VISIBLE_DEVICES"),
        conflicts=_OF_HIP,
        torch_device="cuda",
        resource_key="amd.com/gpu",
    ),
    _vendor(
        *("INTEL_GPU", "Intel", "GPU", "IntelGPU", "ZE_AFFINITY_MASK"),
        conflicts=_OF_SYCL,
        unordered=_OWN_ORDER,
        torch_device="xpu",
        resource_key="gpu.intel.com/i915",
    ),
    _vendor("NPU", "Huawei Ascend", "NPU", "NPU", "ASCEND_RT_VISIBLE_DEVICES", unordered=_ASCENDING, **_ASCEND),
    Vendor("MUSA_GPU", "Moore Threads", "GPU", None, "MUSA_VISIBLE_DEVICES", None, **_MUSA),
    _vendor("KUNLUN_XPU", "Kunlun", "GPU", None, _CUDA, conflicts=["XPU_VISIBLE_DEVICES"], torch_device="cuda"),
    _vendor("METAX_GPU", "MetaX", "GPU", "MetaxGPU", _CUDA, conflicts=["MACA_VISIBLE_DEVICES"], torch_device="cuda"),
    _vendor("HPU", "Intel Gaudi", "HPU", "HPU", "HABANA_VISIBLE_MODULES", unordered=_UNKNOWN, **_GAUDI),
    _vendor(
        *("NEURON", "AWS Neuron", "neuron_cores", "Neuron", "NEURON_RT_VISIBLE_CORES"),
        conflicts=["NEURON_RT_NUM_CORES"],
        unordered=_UNKNOWN,
        torch_device="xla",
        resource_key="aws.amazon.com/neuroncore",
    ),
    _vendor(
        *("TPU", "Google TPU", "TPU", "TPU", "TPU_VISIBLE_CHIPS"),
        conflicts=_OF_TPU,
        unordered=_ONE_PROCESS,
        bounds=_BOUNDS,
        torch_device="xla",
        resource_key="google.com/tpu",
    ),
    _vendor("RBLN", "Rebellions", "RBLN", "RBLN", "RBLN_DEVICES", "RBLN_RT_VISIBLE_DEVICES", unordered=_UNKNOWN),
    _vendor("FURIOSA", "FuriosaAI", "FURIOSA", "Furiosa", "FURIOSA_DEVICES", prefix="npu:", unordered=_UNKNOWN),
    _vendor(
        "MBLT", "Mobilint", "MBLT", "MBLT", "QBRUNTIME_VISIBLE_DEVICES", "MBLT_RT_VISIBLE_DEVICES", unordered=_UNKNOWN
    ),
    _vendor(
        *("TTNPU", "Tenstorrent", "TTNPU", "TTNPU", "TT_VISIBLE_DEVICES", "TENSTORRENT_VISIBLE_DEVICES"),
        conflicts=["TT_METAL_VISIBLE_DEVICES"],
        unordered=_UNKNOWN,
    ),
]
"""Every row; registered ones come last."""

_BUILT_IN = len(VENDORS)
_BY_TYPE = {row.accelerator_type: row for row in VENDORS}

TYPES = [*_BY_TYPE, NO_ACCEL]
"""Every accelerator type, including `NO_ACCEL`."""

VARIABLES = {name for row in VENDORS for name in row.variables}
"""Every variable that affects which accelerators of any vendor a process sees."""


def register_accelerator(
    accelerator_type: str,
    *,
    env_var: str,
    resource: str = "GPU",
    vendor: str = "",
    noset_env_var: str | None = None,
    prefix: str = "",
    conflicts: Iterable[str] = (),
) -> None:
    """Make a type of accelerator known, as if it were a row of rankplan's table. Inventories may then name it.

    ``env_var`` is the variable that lists the devices of a process. ``resource`` is the Ray resource that counts them,
    ``vendor`` the vendor's name (default: the type), and ``noset_env_var`` the variable that tells Ray not to set
    ``env_var`` (``None``: Ray never sets it). ``prefix`` precedes each id in ``env_var``. ``conflicts`` are other
    variables that hide devices: a node group cannot set them, and a process that has one set is reported.

    Ray cannot detect a registered type: start it with ``--labels=rankplan.io/accelerator-type=TYPE`` and the number of
    devices. Register before `Cluster` connects; the processes on the nodes get the registration from there. Registering
    the same again does nothing.

    Raises ``ValueError`` if the type is known with other values, or if a name is empty or has blanks, ``,`` or ``=``.
    """
    others = tuple(conflicts)
    names = [accelerator_type, env_var, resource, *([] if noset_env_var is None else [noset_env_var]), *others]
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[^\s,=]+", name) or not name.isprintable():
            raise ValueError(f"{name!r} is not a name: it must be text without blanks, commas and equals signs")
    more: Any = {"prefix": prefix, "conflicts": dict.fromkeys(others, _ANY)}
    adopt([Vendor(accelerator_type, vendor or accelerator_type, resource, None, env_var, noset_env_var, **more)])


def registered() -> list[Vendor]:
    """Return the rows that `register_accelerator` has added."""
    return VENDORS[_BUILT_IN:]


def adopt(rows: Iterable[Vendor]) -> None:
    """Add rows, e.g. those registered by the driver. Raises ``ValueError`` for a type known with other values."""
    for row in rows:
        if row.accelerator_type == NO_ACCEL or _BY_TYPE.get(row.accelerator_type, row) != row:
            raise ValueError(f"accelerator type {row.accelerator_type!r} is already known, with other values")
        if row.accelerator_type not in _BY_TYPE:
            _BY_TYPE[row.accelerator_type] = row
            VENDORS.append(row)
            TYPES.insert(-1, row.accelerator_type)
            VARIABLES.update(row.variables)


def vendor(accelerator_type: str) -> Vendor | None:
    """Return the row of a type, or ``None`` for ``NO_ACCEL``. Raises ``ValueError`` for an unknown type."""
    if accelerator_type == NO_ACCEL:
        return None
    if accelerator_type not in _BY_TYPE:
        raise ValueError(f"unknown accelerator type {accelerator_type!r}; the types are {', '.join(TYPES)}")
    return _BY_TYPE[accelerator_type]
