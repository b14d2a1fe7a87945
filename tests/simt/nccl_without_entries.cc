// A library that reports a known version of NCCL and has no other functions.
extern "C" int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
