// A library that reports a known version of cuBLASLt and has no other functions.
#include <cstddef>

extern "C" size_t cublasLtGetVersion() { return 130100; }
