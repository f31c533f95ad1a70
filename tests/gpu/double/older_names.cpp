// Functions under the names that they had before the headers gave them a version. The headers rename what is written
// without one, so they are not included here.
extern "C" {

int cuCtxPushCurrent_v2(void*);
int cuCtxPopCurrent_v2(void**);
int cuDeviceTotalMem_v2(unsigned long*, int);
int cuMemAlloc_v2(unsigned long long*, unsigned long);
int cuMemFree_v2(unsigned long long);

int cuCtxPushCurrent(void* context) { return cuCtxPushCurrent_v2(context); }
int cuCtxPopCurrent(void** context) { return cuCtxPopCurrent_v2(context); }
int cuDeviceTotalMem(unsigned long* bytes, int device) { return cuDeviceTotalMem_v2(bytes, device); }
int cuMemAlloc(unsigned long long* pointer, unsigned long bytes) { return cuMemAlloc_v2(pointer, bytes); }
int cuMemFree(unsigned long long pointer) { return cuMemFree_v2(pointer); }
int cuDevicePrimaryCtxRelease(int) { return 0; }
int cuDevicePrimaryCtxReset(int) { return 0; }
int cuDevicePrimaryCtxReset_v2(int) { return 0; }
int cuDevicePrimaryCtxSetFlags(int, unsigned) { return 0; }
}
