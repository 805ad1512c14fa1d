/* A stand-in for libnvidia-ml.so.1 whose GPUs are as well or as ill as FAKE_* variables say. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct gpu { u32 index; u32 part; } gpu; /* part: 0 a whole GPU, n a MIG instance of it */

static gpu gpus[64], parts[64][8];

static long number(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value && *value ? strtol(value, NULL, 10) : otherwise;
}

static int is(const char *name, const char *value) {
    const char *set = getenv(name);
    return set && strcmp(set, value) == 0;
}

static void trouble(const char *where) {
    if (is("FAKE_HANG", where)) for (;;) sleep(60);
    if (is("FAKE_CRASH", where)) raise(SIGSEGV);
}

/* The code of a call on one GPU: lost, not supported, or well. `odd` calls are the first to be refused. */
static int state(gpu *g, int odd) {
    char where[16];
    snprintf(where, sizeof where, "gpu%u", g->index);
    trouble(where);
    if (number("FAKE_LOST", -1) == (long)g->index) return 15;
    if (odd && number("FAKE_HALF", 0)) return 3;
    return 0;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlInit_v2(void) {
    trouble("init");
    write(1, "noise on stdout\n", 16); /* a library may say things; nobody should hear them */
    return (int)number("FAKE_INIT", 0);
}

int nvmlDeviceGetCount_v2(u32 *count) { *count = (u32)number("FAKE_GPUS", 2); return 0; }
int nvmlSystemGetDriverVersion(char *text, u32 size) { snprintf(text, size, "580.159.04"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }

int nvmlDeviceGetHandleByIndex_v2(u32 index, gpu **out) {
    if (number("FAKE_SHUT", -1) == (long)index) return 4;
    if (number("FAKE_GONE", -1) == (long)index) return 15;
    gpus[index].index = index;
    *out = &gpus[index];
    return 0;
}

int nvmlDeviceGetPciInfo_v3(gpu *g, char *out) {
    trouble("pci");
    memset(out, 0, 68);
    snprintf(out, 16, "0000:%02X:00.0", g->index + 0x1b);
    snprintf(out + 36, 32, "00000000:%02X:00.0", g->index + 0x1b);
    return 0; /* it is known even of a lost GPU */
}

int nvmlDeviceGetName(gpu *g, char *text, u32 size) {
    snprintf(text, size, g->part ? "NVIDIA H200 MIG 1g.18gb" : "NVIDIA \"H200\", 141GB");
    return state(g, 0);
}

int nvmlDeviceGetUUID(gpu *g, char *text, u32 size) {
    snprintf(text, size, "%s-0000000%u-1111-2222-3333-44444444444%u", g->part ? "MIG" : "GPU", g->index, g->part);
    return state(g, 0);
}

int nvmlDeviceGetMemoryInfo(gpu *g, u64 *out) {
    out[0] = g->part ? 18ull << 30 : 141ull << 30;
    out[1] = out[0] - (1ull << 30);
    out[2] = 1ull << 30;
    return state(g, 0);
}

#define ONE(name, odd, value) int name(gpu *g, u32 *out) { *out = (value); return state(g, odd); }
#define TWO(name, odd, a, b) int name(gpu *g, u32 *x, u32 *y) { *x = (a); *y = (b); return state(g, odd); }
TWO(nvmlDeviceGetCudaComputeCapability, 0, 9, 0)
ONE(nvmlDeviceGetComputeMode, 0, 3)
ONE(nvmlDeviceGetPersistenceMode, 1, 1)
TWO(nvmlDeviceGetMigMode, 1, (u32)number("FAKE_MIG", 0) > 0, 0)
TWO(nvmlDeviceGetEccMode, 1, 1, 1)
ONE(nvmlDeviceGetCurrPcieLinkGeneration, 1, 5)
ONE(nvmlDeviceGetCurrPcieLinkWidth, 1, 8)
ONE(nvmlDeviceGetMaxPcieLinkGeneration, 0, 5)
ONE(nvmlDeviceGetMaxPcieLinkWidth, 0, 16)
ONE(nvmlDeviceGetEnforcedPowerLimit, 1, 650500)
ONE(nvmlDeviceGetPowerManagementDefaultLimit, 1, 700000)
ONE(nvmlDeviceGetPowerUsage, 1, 75250)
ONE(nvmlDeviceGetMinorNumber, 0, g->index)
ONE(nvmlDeviceGetBrand, 0, 14)
ONE(nvmlDeviceGetMaxMigDeviceCount, 1, 7)

int nvmlDeviceGetMigDeviceHandleByIndex(gpu *g, u32 place, gpu **out) {
    /* Instances stand in the odd places: the even ones are free. */
    if (place % 2 == 0 || place / 2 >= (u32)number("FAKE_MIG", 0)) return 6;
    parts[g->index][place].index = g->index;
    parts[g->index][place].part = place;
    *out = &parts[g->index][place];
    return 0;
}

int nvmlDeviceGetTotalEccErrors(gpu *g, int type, int counter, u64 *out) {
    *out = type == 1 && counter == 0 ? 7 : 12345;
    return state(g, 1);
}

int nvmlDeviceGetRemappedRows(gpu *g, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failure) {
    if (number("FAKE_RETIRED", -1) >= 0) return 3; /* a GPU before Ampere */
    *corrected = 2; *uncorrected = 1; *pending = 1; *failure = 0;
    return state(g, 1);
}

/* One nvmlFieldValue_t of 40 bytes: the recovery action (230) and the recoveries of NVLink (59). */
int nvmlDeviceGetFieldValues(gpu *g, int count, char *row) {
    u32 field, kind, code = 0;
    u64 value;
    memcpy(&field, row, 4);
    kind = field == 230 ? 1 : 3;
    value = field == 230 ? 0xffffffff00000000ull | (u64)number("FAKE_RECOVERY", 0) : 4;
    if (count != 1 || (field != 230 && field != 59)) code = 2;
    if (number("FAKE_HALF", 0)) code = 3;
    memcpy(row + 24, &kind, 4);
    memcpy(row + 28, &code, 4);
    memcpy(row + 32, &value, 8);
    return state(g, 0);
}

ONE(nvmlDeviceGetRetiredPagesPendingStatus, 0, (u32)number("FAKE_RETIRED", 0))

int nvmlDeviceGetTemperature(gpu *g, int sensor, u32 *out) { *out = sensor == 0 ? 41 : 0; return state(g, 0); }
int nvmlDeviceGetCurrentClocksThrottleReasons(gpu *g, u64 *out) { *out = 0x1 | 0x4 | 0x40; return state(g, 1); }
int nvmlDeviceGetClockInfo(gpu *g, int type, u32 *out) { *out = type == 1 ? 345 : 0; return state(g, 0); }
int nvmlDeviceGetMaxClockInfo(gpu *g, int type, u32 *out) { *out = type == 1 ? 1980 : 0; return state(g, 0); }

int nvmlDeviceGetNvLinkState(gpu *g, u32 link, u32 *out) {
    if (link >= 12) return 2;
    *out = link != 3;
    return state(g, 1);
}

/* Rows of FAKE_ROWS bytes, as different drivers have written them under one name. */
int nvmlDeviceGetComputeRunningProcesses_v3(gpu *g, u32 *count, char *out) {
    u32 processes = (u32)number("FAKE_PROCESSES", 2), size = (u32)number("FAKE_ROWS", 24);
    u32 room = *count;
    *count = processes;
    if (processes > room) return 7;
    for (u32 i = 0; i < processes; i++) {
        char *row = out + (u64)i * size;
        u64 used = i == 1 ? ~0ull : (u64)(i + 1) << 30;
        u32 pid = 1000 + i, whole = 0xffffffff;
        memset(row, 0, size);
        memcpy(row, &pid, 4);
        memcpy(row + 8, &used, 8);
        if (size >= 24) { memcpy(row + 16, &whole, 4); memcpy(row + 20, &whole, 4); }
    }
    return state(g, 0);
}
