// Prints the instruction sets that a build for this machine has kernels for, as a CMake list.
#include <cstdio>

#include "kernels/cpu/isa/x86_features.h"

int main() {
  const tandem::X86Features has = tandem::FindX86Features();
  const char* isas = "";
  if (has.avx512_amx) {
    isas = "avx512_bf16;avx512_amx";
  } else if (has.avx512_bf16) {
    isas = "avx512_bf16";
  } else if (has.avx512_vnni) {
    isas = "avx512_vnni";
  } else if (has.avx512) {
    isas = "avx512";
  } else if (has.avx2_vnni) {
    isas = "avx2_vnni";
  } else if (has.avx2) {
    isas = "avx2";
  }
  std::fputs(isas, stdout);
}
