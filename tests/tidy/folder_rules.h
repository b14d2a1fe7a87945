// Rules of who may use whom (docs/design.md, "Folders: one chain").
#ifndef TANDEM_TESTS_TIDY_FOLDER_RULES_H_
#define TANDEM_TESTS_TIDY_FOLDER_RULES_H_

#include "tests/tidy/source_text.h"

namespace tandem::tidy {

// A file includes from its own folder and from folders to the left. tests/, benchmarks/, and tests
// beside the code may use tests/ too; nothing else may. Quoted paths begin at the root of the
// sources or name a known library.
Violations CheckFolderChain(const Files& files);

// verify/ sees the proposal, not the proposer: of draft/ it includes proposal.h
// and draft_tokens.h only.
Violations CheckVerifySeesProposalsOnly(const Files& files);

// Nothing outside kernels/ includes a device's folder, and no device's folder another's.
Violations CheckDevicesAreHidden(const Files& files);

// .cu and .cuh files include the toolkit, CUB, a few standard headers, plain headers
// and kernels/cuda/; those plain views include nothing heavier. So nvcc stays fast.
Violations CheckCudaIncludes(const Files& files);

// Each kernels/cuda/x.cu has a twin in kernels/cpu/ with the stem x, alone or before an underscore.
Violations CheckCudaHasTwins(const Files& files);

// A folder's CMakeLists.txt names libraries of folders to the left only.
Violations CheckCMakeChain(const Files& files);

}  // namespace tandem::tidy

#endif  // TANDEM_TESTS_TIDY_FOLDER_RULES_H_
