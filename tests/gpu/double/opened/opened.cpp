// Answer dlopen for CUDA's libraries with the fake driver, for frameworks that open them by name and look functions up in
// what they get (XLA, TensorFlow). A double that is only loaded in front is passed by there.
//
// It is a library of its own, libcudaopened.so, because most programs must not have their dlopen replaced.
#include <dlfcn.h>

#include <cstring>
#include <initializer_list>

namespace {

using Open = void* (*)(const char*, int);

Open real_open() {
  static auto known = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));
  return known;
}

// libcuda.so.1 in the folder of this library
const char* path_of_the_double() {
  static char path[4096];
  Dl_info where{};
  dladdr(reinterpret_cast<void*>(&path_of_the_double), &where);
  strncpy(path, where.dli_fname, sizeof path - 20);
  char* slash = strrchr(path, '/');
  strcpy(slash ? slash + 1 : path, "libcuda.so.1");
  return path;
}

bool is_doubled(const char* name) {
  for (const char* library : {"libcudart.so", "libcuda.so", "libcublas.so", "libcublasLt.so", "libcudnn.so",
                              "libnccl.so"})
    if (name && strstr(name, library)) return true;
  return false;
}

}  // namespace

// Both calls are the last thing that happens here, so the compiler makes jumps of them. The real dlopen then sees the
// true caller, and searches the folders of that library.
extern "C" void* dlopen(const char* name, int mode) {
  Open open = real_open();
  if (is_doubled(name)) name = path_of_the_double();
  return open(name, mode);
}
