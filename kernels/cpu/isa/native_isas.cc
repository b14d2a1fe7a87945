// Exits with the number of this machine's best instruction set in the list of
// kernels/CMakeLists.txt, or with 0 if it can run none of them.
#include "kernels/cpu/isa/x86_features.h"

int main() {
  const tandem::X86Features has = tandem::FindX86Features();
  const bool supported[] = {has.avx2,        has.avx2_vnni,   has.avx512,
                            has.avx512_vnni, has.avx512_bf16, has.avx512_amx};
  int best = 0;
  for (int i = 0; i < 6; ++i) best = supported[i] ? i + 1 : best;
  return best;
}
