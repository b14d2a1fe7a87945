// The devices that the host simulates for kernels.
#ifndef TANDEM_TESTS_SIMT_DEVICES_H_
#define TANDEM_TESTS_SIMT_DEVICES_H_

#include <cstddef>
#include <vector>

namespace tandem::simt {

struct Device {
  int major = 0;  // compute capability
  int minor = 0;
  // The free memory that it reports. Allocations do not change it.
  size_t free_bytes = size_t{1} << 30;
};

struct Devices {
  std::vector<Device> all = {{9, 0}, {8, 0}};  // cuda:0, cuda:1
  bool has_driver = true;

  // The devices of this process. They share the host's memory, and an allocation belongs to the
  // device that made it. A test that changes them restores them.
  static Devices& Get();
};

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_DEVICES_H_
