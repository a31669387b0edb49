"""The sources of small libraries in place of libcuda and libEGL."""

from __future__ import annotations

# Four cards whose uuids end in 0 to 3. CUDA_VISIBLE_DEVICES works as in CUDA: indices in the order of FAKE_ORDER, and
# the first invalid one ends the list. FAKE_CARDS are the cards of the machine.
CUDA = """
#include <stdlib.h>
#include <string.h>
static int seen[16], count;
int cuInit(unsigned flags) {
    const char *mask = getenv("CUDA_VISIBLE_DEVICES"), *cards = getenv("FAKE_CARDS"), *fail = getenv("FAKE_INIT");
    if (!cards) cards = "0123";
    if (fail) return atoi(fail);
    if (!mask) { for (count = 0; cards[count]; count++) seen[count] = cards[count] - '0'; return 0; }
    for (count = 0; *mask; mask++) {
        if (*mask < '0' || *mask - '0' >= (int)strlen(cards)) break;
        seen[count++] = cards[*mask - '0'] - '0';
        if (mask[1] && *++mask != ',') break;
    }
    return count ? 0 : 100;
}
int cuDeviceGetCount(int *number) { *number = count; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, 0xab, 16); uuid[15] = seen[device]; return 0; }
"""
EGL = """
#include <string.h>
typedef long Device;
static int query(int most, Device *devices, int *count) {
    for (int index = 0; index < 3; index++) devices[index] = index + 1;
    *count = 3;
    return 1;
}
static int number(Device device, int key, long *value) {  /* EGL's order is not CUDA's; the last one is software */
    if (key != 0x323A || device == 3) return 0;
    *value = 2 - device;
    return 1;
}
static const char *text(Device device, int key) { return key == 0x3233 && device < 3 ? "/dev/dri/card7" : 0; }
void *eglGetProcAddress(const char *name) {
    if (!strcmp(name, "eglQueryDevicesEXT")) return query;
    if (!strcmp(name, "eglQueryDeviceAttribEXT")) return number;
    return strcmp(name, "eglQueryDeviceStringEXT") ? 0 : (void *)text;
}
"""


def uuid(card: int) -> str:
    return "ab" * 15 + f"{card:02x}"
