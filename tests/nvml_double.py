"""A library that answers like NVML, for the tests. The real library needs a driver and a card.

It is compiled from C, and nvidia-ml-py loads it as libnvidia-ml.so.1. So our code uses the real calls, structures and
error codes. The variable NVML_DOUBLE holds the answers as words `name=value`; `fail_<name>=code` makes a question fail.
"""

from __future__ import annotations

import os
from pathlib import Path

from process_helpers import compiled

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
typedef void *dev;
static double say(const char *name, double otherwise) {
    const char *all = getenv("NVML_DOUBLE"), *at = all;
    size_t length = strlen(name);
    while (at && (at = strstr(at, name))) {
        if ((at == all || at[-1] == ' ') && at[length] == '=') return atof(at + length + 1);
        at += length;
    }
    return otherwise;
}
static int fails(const char *name) { char key[64]; snprintf(key, 64, "fail_%s", name); return (int)say(key, 0); }
static double seconds(void) {
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
int nvmlInitWithFlags(unsigned f) { return fails("init"); }
int nvmlInit_v2(void) { return fails("init"); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) {
    return code == 3 ? "Not Supported" : code == 4 ? "Insufficient Permissions" : "Unknown Error"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = (unsigned)say("count", 2); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, dev *d) { *d = (dev)(size_t)(i + 1); return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, dev *d) { *d = (dev)strtoul(id + 5, NULL, 16); return 0; }
int nvmlDeviceGetGpuFabricInfoV(dev d, void *v) { return 3; }
int nvmlDeviceGetName(dev d, char *name, unsigned n) { snprintf(name, n, "Double %d", (int)(size_t)d); return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned n) { snprintf(text, n, "580.65.06"); return 0; }
int nvmlDeviceGetUtilizationRates(dev d, unsigned *u) { u[0] = (unsigned)say("gpu", 0); u[1] = 0;
    return fails("utilization"); }
int nvmlDeviceGetMemoryInfo(dev d, unsigned long long *m) {
    m[0] = 80ull << 30; m[2] = (unsigned long long)say("used", 5e8); m[1] = m[0] - m[2]; return 0; }
int nvmlDeviceGetClockInfo(dev d, unsigned k, unsigned *v) { 
    *v = (unsigned)(k == 1 ? say("sm", 1980) : k == 2 ? say("mem", 2619) : 1); return 0; }
int nvmlDeviceGetMaxClockInfo(dev d, unsigned k, unsigned *v) {
    *v = k == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetApplicationsClock(dev d, unsigned k, unsigned *v) {
    *v = (unsigned)(k == 1 ? say("clock", 1980) : say("memclock", 2619)); return fails("clock"); }
int nvmlDeviceGetPowerUsage(dev d, unsigned *v) { *v = 350000; return fails("power"); }
int nvmlDeviceGetPowerManagementLimit(dev d, unsigned *v) { *v = (unsigned)say("limit", 700) * 1000; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(dev d, unsigned *v) {
    *v = (unsigned)say("enforced", say("limit", 700)) * 1000; return 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(dev d, unsigned *v) { *v = 700000; return 0; }
int nvmlDeviceGetTemperatureThreshold(dev d, unsigned k, unsigned *v) { *v = k == 1 ? 90 : 83; return k == 1 ? 0 : 3; }
int nvmlDeviceGetCurrPcieLinkGeneration(dev d, unsigned *v) { *v = (unsigned)say("pcie", 5); return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(dev d, unsigned *v) { *v = 5; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(dev d, unsigned *v) { *v = (unsigned)say("lanes", 16); return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(dev d, unsigned *v) { *v = 16; return 0; }
int nvmlDeviceGetPcieReplayCounter(dev d, unsigned *v) { *v = (unsigned)say("replays", 0); return 0; }
int nvmlDeviceGetPciInfo_v3(dev d, char *bus) { memset(bus, 0, 68);  /* the old name is the first field, of 16 bytes */
    snprintf(bus + 36, 32, "00000000:%02X:00.0", 16 * (int)(size_t)d); return 0; }
int nvmlDeviceGetNvLinkState(dev d, unsigned link, unsigned *v) {
    if (link >= say("nvlinks", 4)) return link ? 2 : 3;
    *v = link != say("down", -1); return 0; }
int nvmlDeviceGetRetiredPages(dev d, unsigned cause, unsigned *n, unsigned long long *pages) {
    if (!pages) { *n = cause ? 0 : 2; return *n ? 7 : 0; }
    *n = cause ? 0 : 2; for (unsigned i = 0; i < *n; i++) pages[i] = i; return fails("pages"); }
int nvmlDeviceGetTemperature(dev d, unsigned k, unsigned *v) { *v = 61; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(dev d, unsigned long long *v) {
    *v = seconds() * 350000; return fails("energy"); }
int nvmlDeviceGetCurrentClocksEventReasons(dev d, unsigned long long *v) {
    *v = (unsigned long long)say("reasons", 4); return 0; }
int nvmlDeviceGetEccMode(dev d, unsigned *a, unsigned *b) { *a = *b = 1; return 0; }
int nvmlDeviceGetMigMode(dev d, unsigned *a, unsigned *b) {
    *a = *b = (unsigned)say("mig", 0); return say("mig", -1) < 0 ? 3 : 0; }
int nvmlDeviceGetMaxMigDeviceCount(dev d, unsigned *n) { *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(dev d, unsigned i, dev *slice) {  /* those that are there stand at the end */
    *slice = (dev)(size_t)(100 * (size_t)d + i); return i < 7 - say("slices", 0) ? 6 : 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, dev *d) { *d = (dev)(size_t)atoi(strchr(uuid, '-') + 1); return 0; }
/* What PyTorch asks where memory runs out, and XLA of the connections of cards. */
int nvmlDeviceGetComputeRunningProcesses(dev d, unsigned *n, void *p) { *n = 0; return 0; }
int nvmlDeviceGetNvLinkRemoteDeviceType(dev d, unsigned link, int *v) { return 3; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(dev d, unsigned link, void *v) { return 3; }
int nvmlDeviceGetP2PStatus(dev a, dev b, int index, void *v) { return 3; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return 0; }
int nvmlDeviceGetTotalEccErrors(dev d, unsigned kind, unsigned counter, unsigned long long *v) {
    *v = (unsigned long long)say(kind ? "uncorrected" : "corrected", 0) + (counter ? 100 : 0); return 0; }
int nvmlDeviceGetRemappedRows(dev d, unsigned *a, unsigned *b, unsigned *pending, unsigned *failed) {
    *a = 1; *b = *failed = 0; *pending = (unsigned)say("pending", 0); return 0; }
struct process { unsigned pid; unsigned long long memory; unsigned gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(dev d, unsigned *n, struct process *p) {
    unsigned there = (unsigned)say("pid", 0) && (size_t)d == 1;
    if (there > *n) { *n = there; return 7; }
    if (there) { memset(p, 0, sizeof *p); p->pid = (unsigned)say("pid", 0); p->memory = 3ull << 30; }
    *n = there; return 0; }
struct support { unsigned version, is; };
int nvmlGpmQueryDeviceSupport(dev d, struct support *s) { s->is = (unsigned)say("gpm", 1); return 0; }
int nvmlGpmSampleAlloc(void **s) { *s = malloc(8); return 0; }
int nvmlGpmSampleFree(void *s) { free(s); return 0; }
int nvmlGpmSampleGet(dev d, void *s) { return 0; }
struct metric { unsigned id; int returned; double value; struct { char *a, *b, *c; } info; };
struct metrics { unsigned version, count; void *first, *second; struct metric each[1]; };
int nvmlGpmMetricsGet(struct metrics *m) {
    for (unsigned i = 0; i < m->count; i++) {
        struct metric *one = &m->each[i];
        one->returned = one->id == 60 ? 3 : 0;  /* this card has no NVLink counter */
        one->value = one->id == 2 ? 90 : one->id == 5 ? 40 : one->id == 10 ? 55 : 1000;
    }
    return 0; }
"""


def build(folder: Path) -> Path:
    """Compile the library into `folder`, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return compiled(folder / "libnvidia-ml.so.1", SOURCE).parent


def variables(folder: Path, **answers: float) -> dict[str, str]:
    """Return the environment of a process that should find the library in `folder` and get these answers."""
    words = " ".join(f"{name}={value}" for name, value in answers.items())
    return dict(os.environ) | {"LD_LIBRARY_PATH": str(folder), "NVML_DOUBLE": words}
