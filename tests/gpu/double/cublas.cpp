// cuBLAS: the products with their shapes and types. The library's headers are not needed to build the fake driver, so its
// types stand here as numbers and untyped pointers.
#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "counting.h"
#include "devices.h"
#include "work.h"

namespace {

constexpr int success = 0, invalid_value = 7, not_supported = 15;

struct Handle {
  cudaStream_t stream = nullptr;
  int pointer_mode = 0, math_mode = 0;
};

cudaStream_t stream_of(void* handle) { return static_cast<Handle*>(handle)->stream; }

const char* type_name(int type) {
  switch (type) {
    case CUDA_R_32F: return "fp32";
    case CUDA_R_64F: return "fp64";
    case CUDA_R_16F: return "fp16";
    case CUDA_R_16BF: return "bf16";
    case CUDA_R_8F_E4M3: return "fp8_e4m3";
    case CUDA_R_8F_E5M2: return "fp8_e5m2";
    case CUDA_R_8I: return "int8";
    case CUDA_R_32I: return "int32";
    case CUDA_C_32F: return "complex64";
    case CUDA_C_64F: return "complex128";
    default: return "another type";
  }
}

struct Product {
  bool transposed_a, transposed_b;
  long m, n, k, batch;
  int type_a, type_b, type_c;
};

// "NT 128 x 64 x 32 bf16 bf16 -> fp32 batch 4", as column-major BLAS sees it.
std::string words(const Product& product) {
  auto made = counting::text("%c%c %ld x %ld x %ld %s %s -> %s", product.transposed_a ? 'T' : 'N',
                             product.transposed_b ? 'T' : 'N', product.m, product.n, product.k,
                             type_name(product.type_a), type_name(product.type_b), type_name(product.type_c));
  return product.batch > 1 ? made + counting::text(" batch %ld", product.batch) : made;
}

int multiply(cudaStream_t stream, const char* call, const Product& product) {
  bool failed = work::submit(stream, {cudaGraphNodeTypeKernel, "cublas", call, 0, words(product), {}});
  return failed ? 13 : success;  // CUBLAS_STATUS_EXECUTION_FAILED
}

int multiply(void* handle, const char* call, int a, int b, long m, long n, long k, int type, long batch = 1) {
  return multiply(stream_of(handle), call, {a != 0, b != 0, m, n, k, batch, type, type, type});
}

// What cublasLt keeps about a matrix, and about a product.
struct Layout {
  int32_t type;
  int64_t rows, columns, leading;
  int32_t order = 0, batch = 1;
  int64_t stride = 0, plane = 0;
};

// The place and the size of cublasLtMatrixLayoutAttribute_t's attributes, which have the numbers 0 to 7.
struct Field {
  void* place;
  size_t bytes;
};
Field field_of(Layout& layout, int attribute) {
  const Field fields[] = {{&layout.type, 4},    {&layout.order, 4}, {&layout.rows, 8},   {&layout.columns, 8},
                          {&layout.leading, 8}, {&layout.batch, 4}, {&layout.stride, 8}, {&layout.plane, 8}};
  return attribute >= 0 && attribute < 8 ? fields[attribute] : Field{nullptr, 0};
}
struct Description {
  int transposed[2] = {0, 0};
};

Product product_of(const Description& how, const Layout& a, const Layout& b, const Layout& d) {
  long k = how.transposed[0] ? a.rows : a.columns;
  return {how.transposed[0] != 0, how.transposed[1] != 0, d.rows, d.columns, k, d.batch, a.type, b.type, d.type};
}

bool is_fp8(int type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

// cublasLtMatmulHeuristicResult_t
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) {
  *handle = new Handle;
  return success;
}
int cublasDestroy_v2(void* handle) {
  delete static_cast<Handle*>(handle);
  return success;
}
int cublasSetStream_v2(void* handle, cudaStream_t stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return success;
}
int cublasGetStream_v2(void* handle, cudaStream_t* stream) {
  *stream = stream_of(handle);
  return success;
}
int cublasSetPointerMode_v2(void* handle, int mode) {
  static_cast<Handle*>(handle)->pointer_mode = mode;
  return success;
}
int cublasGetPointerMode_v2(void* handle, int* mode) {
  *mode = static_cast<Handle*>(handle)->pointer_mode;
  return success;
}
int cublasSetMathMode(void* handle, int mode) {
  static_cast<Handle*>(handle)->math_mode = mode;
  return success;
}
int cublasGetMathMode(void* handle, int* mode) {
  *mode = static_cast<Handle*>(handle)->math_mode;
  return success;
}
int cublasSetWorkspace_v2(void*, void*, size_t) { return success; }
int cublasSetSmCountTarget(void*, int) { return success; }
int cublasGetVersion_v2(void*, int* version) {
  *version = 130101;
  return success;
}

const char* cublasGetStatusString(int status) { return status ? "an error of the fake cuBLAS" : "success"; }
const char* cublasGetStatusName(int status) { return status ? "CUBLAS_STATUS of the fake driver" : "CUBLAS_STATUS_SUCCESS"; }

int cublasSgemm_v2(void* handle, int a, int b, int m, int n, int k, ...) {
  return multiply(handle, "cublasSgemm", a, b, m, n, k, CUDA_R_32F);
}
int cublasDgemm_v2(void* handle, int a, int b, int m, int n, int k, ...) {
  return multiply(handle, "cublasDgemm", a, b, m, n, k, CUDA_R_64F);
}
int cublasCgemm_v2(void* handle, int a, int b, int m, int n, int k, ...) {
  return multiply(handle, "cublasCgemm", a, b, m, n, k, CUDA_C_32F);
}
int cublasZgemm_v2(void* handle, int a, int b, int m, int n, int k, ...) {
  return multiply(handle, "cublasZgemm", a, b, m, n, k, CUDA_C_64F);
}
int cublasSgemv_v2(void* handle, int a, int m, int n, ...) {
  return multiply(handle, "cublasSgemv", a, 0, m, 1, n, CUDA_R_32F);
}
int cublasDgemv_v2(void* handle, int a, int m, int n, ...) {
  return multiply(handle, "cublasDgemv", a, 0, m, 1, n, CUDA_R_64F);
}
int cublasSdot_v2(void* handle, int n, ...) { return multiply(handle, "cublasSdot", 0, 0, 1, 1, n, CUDA_R_32F); }
int cublasDdot_v2(void* handle, int n, ...) { return multiply(handle, "cublasDdot", 0, 0, 1, 1, n, CUDA_R_64F); }
int cublasDotEx(void* handle, int n, const void*, int type, ...) {
  return multiply(handle, "cublasDotEx", 0, 0, 1, 1, n, type);
}

int cublasGemmEx(void* handle, int a, int b, int m, int n, int k, const void*, const void*, int type_a, int,
                 const void*, int type_b, int, const void*, void*, int type_c, ...) {
  return multiply(stream_of(handle), "cublasGemmEx", {a != 0, b != 0, m, n, k, 1, type_a, type_b, type_c});
}
int cublasSgemmEx(void* handle, int a, int b, int m, int n, int k, const void*, const void*, int type_a, int,
                  const void*, int type_b, int, const void*, void*, int type_c, int) {
  return multiply(stream_of(handle), "cublasSgemmEx", {a != 0, b != 0, m, n, k, 1, type_a, type_b, type_c});
}
int cublasGemmStridedBatchedEx(void* handle, int a, int b, int m, int n, int k, const void*, const void*, int type_a,
                               int, long long, const void*, int type_b, int, long long, const void*, void*,
                               int type_c, int, long long, int batch, int, int) {
  return multiply(stream_of(handle), "cublasGemmStridedBatchedEx",
                  {a != 0, b != 0, m, n, k, batch, type_a, type_b, type_c});
}
int cublasGemmBatchedEx(void* handle, int a, int b, int m, int n, int k, const void*, const void*, int type_a, int,
                        const void*, int type_b, int, const void*, void*, int type_c, int, int batch, int, int) {
  return multiply(stream_of(handle), "cublasGemmBatchedEx",
                  {a != 0, b != 0, m, n, k, batch, type_a, type_b, type_c});
}
int cublasSgemmStridedBatched(void* handle, int a, int b, int m, int n, int k, const void*, const void*, int,
                              long long, const void*, int, long long, const void*, void*, int, long long,
                              int batch) {
  return multiply(handle, "cublasSgemmStridedBatched", a, b, m, n, k, CUDA_R_32F, batch);
}
int cublasDgemmStridedBatched(void* handle, int a, int b, int m, int n, int k, const void*, const void*, int,
                              long long, const void*, int, long long, const void*, void*, int, long long,
                              int batch) {
  return multiply(handle, "cublasDgemmStridedBatched", a, b, m, n, k, CUDA_R_64F, batch);
}

size_t cublasLtGetVersion() { return 130101; }
size_t cublasLtGetCudartVersion() { return 13000; }
int cublasLtCreate(void** handle) { return cublasCreate_v2(handle); }
int cublasLtDestroy(void* handle) { return cublasDestroy_v2(handle); }

int cublasLtMatmulDescCreate(void** description, int, int) {
  *description = new Description;
  return success;
}
int cublasLtMatmulDescDestroy(void* description) {
  delete static_cast<Description*>(description);
  return success;
}
int cublasLtMatmulDescSetAttribute(void* description, int attribute, const void* value, size_t) {
  if (attribute == 3 || attribute == 4)  // CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB
    memcpy(&static_cast<Description*>(description)->transposed[attribute - 3], value, sizeof(int));
  return success;
}

int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = new Layout{type, int64_t(rows), int64_t(columns), leading};
  return success;
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return success;
}
int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  auto field = field_of(*static_cast<Layout*>(layout), attribute);
  if (!field.place || bytes < field.bytes) return invalid_value;
  memcpy(field.place, value, field.bytes);
  return success;
}
int cublasLtMatrixLayoutGetAttribute(void* layout, int attribute, void* value, size_t bytes, size_t* written) {
  auto field = field_of(*static_cast<Layout*>(layout), attribute);
  if (!field.place || bytes < field.bytes) return invalid_value;
  memcpy(value, field.place, field.bytes);
  if (written) *written = field.bytes;
  return success;
}

int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = calloc(1, 8);
  return success;
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  free(preference);
  return success;
}
int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return success; }

// One algorithm without a workspace. There is none for fp8 on cards older than 8.9.
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void* a, void*, void*, void*, void*, int asked, Heuristic* results,
                                   int* count) {
  *count = 0;
  if (is_fp8(static_cast<Layout*>(a)->type) && devices::capability() < 89) return not_supported;
  if (asked < 1) return success;
  results[0] = {};
  results[0].waves = 1;
  *count = 1;
  return success;
}

int cublasLtMatmul(void*, void* how, const void*, const void*, void* a, const void*, void* b, const void*,
                   const void*, void*, void*, void* d, const void*, void*, size_t, cudaStream_t stream) {
  auto product = product_of(*static_cast<Description*>(how), *static_cast<Layout*>(a), *static_cast<Layout*>(b),
                            *static_cast<Layout*>(d));
  if (is_fp8(product.type_a) && devices::capability() < 89) return not_supported;
  return multiply(stream, "cublasLtMatmul", product);
}
}
