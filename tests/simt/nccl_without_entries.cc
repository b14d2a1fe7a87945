// A library that calls itself NCCL, of a known version, and has nothing else.
extern "C" int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
