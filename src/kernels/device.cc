// Stands for the CUDA backend in builds without nvcc.
#include "kernels/device.h"

namespace lode::kernels {

#ifndef LODE_HAS_CUDA
Result<std::unique_ptr<Device>> open_cuda(const DeviceOptions&) {
  return Status::unsupported("this build has no CUDA: build where nvcc is found, with -DLODE_CUDA=ON (docs/gpu.md)");
}
#endif

}  // namespace lode::kernels
