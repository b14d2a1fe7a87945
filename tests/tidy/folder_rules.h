// Rules for includes and links between folders (docs/design.md, "Folders: one chain").
#ifndef TANDEM_TESTS_TIDY_FOLDER_RULES_H_
#define TANDEM_TESTS_TIDY_FOLDER_RULES_H_

#include "tests/tidy/source_text.h"

namespace tandem::tidy {

// Whether the chain has this folder.
bool IsInChain(std::string_view folder);

// A file includes from its own folder and from folders to the left. Only tests/, benchmarks/ and
// tests next to the code can also use tests/. Quoted paths start at the root of the sources or name
// a known library.
Violations CheckFolderChain(const Files& files);

// verify/ sees the proposal, not the proposer: from draft/ it includes only proposal.h.
Violations CheckVerifySeesProposalsOnly(const Files& files);

// Only kernels/ includes devices' folders, and a device's folder does not include another's.
Violations CheckDevicesAreHidden(const Files& files);

// .cu and .cuh files include the toolkit, CUB, a few standard headers, plain headers and
// kernels/cuda/; those plain headers do not include anything heavier. This keeps nvcc fast.
Violations CheckCudaIncludes(const Files& files);

// Each kernels/cuda/x.cu has a twin in kernels/cpu/ with the stem x, followed by the suffix or an
// underscore.
Violations CheckCudaHasTwins(const Files& files);

// A folder's CMakeLists.txt names libraries of folders to the left only.
Violations CheckCMakeChain(const Files& files);

// CMakeLists.txt, CONTRIBUTING.md and docs/design.md state the chain of folders that these rules
// know, the table of docs/design.md has a row for each folder, and README.md's map a row for each
// top folder that names its parts.
Violations CheckFolderMaps(const Files& files);

}  // namespace tandem::tidy

#endif  // TANDEM_TESTS_TIDY_FOLDER_RULES_H_
