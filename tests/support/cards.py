"""A machine with stand-in NVIDIA cards: libraries in place of libnvidia-ml and libcuda, and a stand-in `nvidia-smi`.

They agree about the same cards, which environment variables describe:

- ``FAKE_CARDS``: their number.
- ``FAKE_MIG``: the first card is divided into two slices.
- ``FAKE_LOST``: ``5:3`` makes card 5 fall off the bus, for each process, once it has been looked up three times.
- ``FAKE_USES``: a folder in which libcuda notes who holds memory, for libnvidia-ml and `nvidia-smi`. A file ``broken``
  there makes libnvidia-ml fail.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support.libraries import compiled

_COMMON = """
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int cards(void) { const char *text = getenv("FAKE_CARDS"); return text ? atoi(text) : 0; }
static int divided(void) { return getenv("FAKE_MIG") != 0; }
static void name(int card, char *text) { sprintf(text, "GPU-%08x-abab-abab-abab-abababababab", card); }
"""

NVML = (
    _COMMON
    + """
typedef long Device;                                              /* card + 1; slices are 1001 and 1002 */
enum { MISSING = 6, SMALL = 7, LOST = 15, UNSUPPORTED = 3, INVALID = 2 };
static int looked[1024];
static int broken(void) {
    char path[512];
    if (!getenv("FAKE_USES")) return 0;
    snprintf(path, sizeof path, "%s/broken", getenv("FAKE_USES"));
    return access(path, F_OK) == 0;
}
int nvmlInitWithFlags(unsigned flags) { return broken() ? MISSING : 0; }
int nvmlInit_v2(void) { return broken() ? MISSING : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "Not Found"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strcpy(text, "580.0"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = cards(); return 0; }
static int lost(int card) {
    const char *text = getenv("FAKE_LOST");
    int which = -1, after = 0;
    if (text) sscanf(text, "%d:%d", &which, &after);
    return card == which && looked[card]++ >= after;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    if (index >= (unsigned)cards()) return INVALID;
    *device = index + 1;
    return lost(index) ? LOST : 0;
}
int nvmlDeviceGetHandleByUUID(const char *id, Device *device) {
    char text[64];
    for (int part = 0; divided() && part < 2; part++) {
        sprintf(text, "MIG-%d0000000-abab-abab-abab-abababababab", part);
        if (!strcmp(id, text)) { *device = 1001 + part; return 0; }
    }
    for (int card = 0; card < cards(); card++) {
        name(card, text);
        if (!strcmp(id, text)) { *device = card + 1; return lost(card) ? LOST : 0; }
    }
    return MISSING;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device slice, Device *device) {
    if (slice < 1001) return INVALID;
    *device = 1;
    return 0;
}
int nvmlDeviceGetUUID(Device device, char *text, unsigned size) {
    if (device > 1000) sprintf(text, "MIG-%ld0000000-abab-abab-abab-abababababab", device - 1001);
    else name(device - 1, text);
    return 0;
}
int nvmlDeviceGetName(Device device, char *text, unsigned size) {
    strcpy(text, device > 1000 ? "NVIDIA H100 80GB HBM3 MIG 3g.40gb" : "NVIDIA H100 80GB HBM3");
    return 0;
}
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, part; } Process;
static unsigned holders(Device device, Process *found, unsigned room) {
    unsigned seen = 0;
    DIR *folder = getenv("FAKE_USES") ? opendir(getenv("FAKE_USES")) : 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        int card, pid, size;
        if (sscanf(entry->d_name, "%d-%d-%d", &card, &pid, &size) != 3 || card + 1 != device || kill(pid, 0)) continue;
        if (seen < room) found[seen] = (Process){pid, (unsigned long long)size << 20, 0, 0};
        seen++;
    }
    if (folder) closedir(folder);
    return seen;
}
int nvmlDeviceGetMemoryInfo(Device device, unsigned long long *sizes) {
    Process found[64];
    unsigned count = holders(device, found, 64);
    if (broken()) return LOST;
    sizes[0] = (device > 1000 ? 40448ull : 81559ull) << 20;
    sizes[2] = 0;
    for (unsigned index = 0; index < count && index < 64; index++) sizes[2] += found[index].memory;
    sizes[1] = sizes[0] - sizes[2];
    return 0;
}
int nvmlDeviceGetPciInfo_v3(Device device, char *info) {
    memset(info, 0, 68);
    sprintf(info + 36, "00000000:%02lX:00.0", 0x10 + device - 1);
    return 0;
}
int nvmlDeviceGetMigMode(Device device, unsigned *now, unsigned *pending) {
    *now = *pending = divided() && device == 1;
    return 0;
}
int nvmlDeviceGetRemappedRows(Device device, unsigned *a, unsigned *b, unsigned *pending, unsigned *failed) {
    *a = *b = *pending = *failed = 0;
    return 0;
}
int nvmlDeviceGetRetiredPagesPendingStatus(Device device, unsigned *pending) { return UNSUPPORTED; }
int nvmlDeviceGetGpuFabricInfoV(Device device, void *info) { return UNSUPPORTED; }
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *found) {
    unsigned room = *count;
    *count = holders(device, found, room);
    return *count > room ? SMALL : 0;
}
"""
)

CUDA = (
    _COMMON
    + """
static int seen[1024], count, current;
int cuInit(unsigned flags) {
    const char *mask = getenv("CUDA_VISIBLE_DEVICES");
    char text[64], *rest, *copy;
    count = 0;
    if (!mask) for (; count < cards(); count++) seen[count] = count;
    else for (copy = strdup(mask); (rest = strsep(&copy, ","));) {     /* the first invalid id ends the list */
        int card = 0;
        for (; card < cards(); card++) {
            char index[16];
            sprintf(index, "%d", card);
            name(card, text);
            if (!strcmp(rest, index) || !strcmp(rest, text)) break;
        }
        if (card == cards()) break;
        seen[count++] = card;
    }
    return count ? 0 : 100;
}
int cuDeviceGetCount(int *number) { *number = count; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < count ? 0 : 101; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    memset(uuid, 0xab, 16);
    for (int byte = 0; byte < 4; byte++) uuid[byte] = seen[device] >> (8 * (3 - byte));
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { current = seen[device]; *context = &current; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuMemAlloc_v2(unsigned long long *address, size_t size) {
    char path[512];
    FILE *file;
    if (!getenv("FAKE_USES")) return 2;
    sprintf(path, "%s/%d-%d-%zu", getenv("FAKE_USES"), current, getpid(), size >> 20);
    file = fopen(path, "w");
    return file ? fclose(file) : 2;
}
"""
)

_SMI = '''#!{python}
"""A stand-in for `nvidia-smi`, which knows the cards from the environment."""
import os, sys
from pathlib import Path

count, divided = int(os.environ["FAKE_CARDS"]), "FAKE_MIG" in os.environ
uuids = [f"GPU-{{card:08x}}-abab-abab-abab-abababababab" for card in range(count)]
argument = sys.argv[1]
if argument == "-L":
    for card, uuid in enumerate(uuids):
        print(f"GPU {{card}}: NVIDIA H100 80GB HBM3 (UUID: {{uuid}})")
        for part in range(2 if divided and card == 0 else 0):
            print(f"  MIG 3g.40gb     Device  {{part}}: (UUID: MIG-{{part}}0000000-abab-abab-abab-abababababab)")
elif argument.startswith("--query-gpu="):
    for card, uuid in enumerate(uuids):
        mig = "Enabled" if divided and card == 0 else "Disabled"
        facts = {{"index": card, "uuid": uuid, "pci.bus_id": f"00000000:{{0x10 + card:02X}}:00.0"}}
        facts |= {{"name": "NVIDIA H100 80GB HBM3", "memory.total": 81559}}
        facts |= {{"mig.mode.current": mig, "driver_version": "580.0"}}
        print(", ".join(str(facts[name]) for name in argument.partition("=")[2].split(",")))
elif argument.startswith("--query-compute-apps="):
    for path in Path(os.environ["FAKE_USES"]).iterdir():
        card, pid, size = map(int, path.name.split("-"))
        if Path("/proc", str(pid)).exists():
            facts = {{"gpu_uuid": uuids[card], "pid": pid, "used_memory": size}}
            print(", ".join(str(facts[name]) for name in argument.partition("=")[2].split(",")))
'''


def libraries(folder: Path) -> Path:
    """Build the libraries in a folder and return it."""
    compiled(folder, "libnvidia-ml.so.1", NVML)
    return compiled(folder, "libcuda.so.1", CUDA)


def stand_in(folder: Path, count: int, **more: str) -> dict[str, str]:
    """Build the libraries and the program in a folder; return the environment of a machine with these cards."""
    libraries(folder)
    smi = folder / "nvidia-smi"
    smi.write_text(_SMI.format(python=sys.executable))
    smi.chmod(0o755)
    uses = folder / "uses"
    uses.mkdir(exist_ok=True)
    return {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(folder),
        "FAKE_CARDS": str(count),
        "FAKE_USES": str(uses),
        **more,
    }
