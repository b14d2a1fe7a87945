// A library that calls itself cuBLASLt, of a known version, and has nothing else.
#include <cstddef>

extern "C" size_t cublasLtGetVersion() { return 130100; }
