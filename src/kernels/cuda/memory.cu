// CudaDevice: memory in pieces behind reserved addresses, page-locked memory of others, and copies of any thread.
#include <cuda.h>

#include <algorithm>
#include <mutex>

#include "base/bytes.h"
#include "kernels/cuda/context.h"

namespace lode::kernels::cuda {
namespace {

// The driver's functions, asked of the runtime: the binary links no libcuda, and starts on machines without one.
struct Driver {
  decltype(&::cuMemAddressReserve) reserve = nullptr;
  decltype(&::cuMemAddressFree) unreserve = nullptr;
  decltype(&::cuMemCreate) create = nullptr;
  decltype(&::cuMemRelease) release = nullptr;
  decltype(&::cuMemMap) map = nullptr;
  decltype(&::cuMemUnmap) unmap = nullptr;
  decltype(&::cuMemSetAccess) set_access = nullptr;
  bool ok = false;

  static const Driver& get() {
    static const Driver driver = [] {
      Driver d;
      d.ok = find("cuMemAddressReserve", d.reserve) && find("cuMemAddressFree", d.unreserve) &&
             find("cuMemCreate", d.create) && find("cuMemRelease", d.release) && find("cuMemMap", d.map) &&
             find("cuMemUnmap", d.unmap) && find("cuMemSetAccess", d.set_access);
      return d;
    }();
    return driver;
  }

 private:
  template <typename Fn>
  static bool find(const char* name, Fn& fn) {
    void* at = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    const auto e = cudaGetDriverEntryPointByVersion(name, &at, 12000, cudaEnableDefault, &result);
#else
    const auto e = cudaGetDriverEntryPoint(name, &at, cudaEnableDefault, &result);
#endif
    fn = reinterpret_cast<Fn>(at);
    return e == cudaSuccess && result == cudaDriverEntryPointSuccess && at;
  }
};

CUdeviceptr address(const std::byte* at) {
  return reinterpret_cast<CUdeviceptr>(at);
}

}  // namespace

Result<std::byte*> CudaDevice::reserve(std::uint64_t bytes) {
  const Driver& driver = Driver::get();
  if (!driver.ok)
    return Status::unsupported(description_ + ": this driver cannot map memory piece by piece; install a newer one");
  bytes = align_up(std::max<std::uint64_t>(bytes, 1), kDevicePieceBytes);
  CUdeviceptr at = 0;
  if (const CUresult e = driver.reserve(&at, bytes, kDevicePieceBytes, 0, 0); e != CUDA_SUCCESS)
    return Status::exhausted(description_ + ": cannot reserve " + std::to_string(bytes) +
                             " bytes of addresses (error " + std::to_string(static_cast<int>(e)) + ")");
  const std::unique_lock lock(ranges_mutex_);
  ranges_.push_back({reinterpret_cast<std::byte*>(at), bytes});
  return ranges_.back().at;
}

void CudaDevice::unreserve(std::byte* range) {
  const std::unique_lock lock(ranges_mutex_);
  const auto found = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.at == range; });
  if (found == ranges_.end()) return;
  Driver::get().unreserve(address(found->at), found->bytes);
  ranges_.erase(found);
}

Status CudaDevice::commit(std::byte* piece) {
  const Driver& driver = Driver::get();
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  what.location.id = options_.ordinal;
  CUmemGenericAllocationHandle handle = 0;
  if (driver.create(&handle, kDevicePieceBytes, &what, 0) != CUDA_SUCCESS)
    return Status::exhausted(description_ + ": the card has no " + std::to_string(kDevicePieceBytes) +
                             " bytes left; other programs may use it");
  CUmemAccessDesc access{};
  access.location = what.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (driver.map(address(piece), kDevicePieceBytes, 0, handle, 0) == CUDA_SUCCESS) {
    if (driver.set_access(address(piece), kDevicePieceBytes, &access, 1) == CUDA_SUCCESS) {
      pieces_[piece] = handle;
      return Status::success();
    }
    driver.unmap(address(piece), kDevicePieceBytes);
  }
  driver.release(handle);
  return Status::exhausted(description_ + ": the driver refuses to map memory");
}

void CudaDevice::decommit(std::byte* piece) {
  const auto found = pieces_.find(piece);
  if (found == pieces_.end()) return;
  const Driver& driver = Driver::get();
  driver.unmap(address(piece), kDevicePieceBytes);
  driver.release(found->second);
  pieces_.erase(found);
}

Status CudaDevice::pin(std::byte* at, std::uint64_t bytes) {
  if (const auto e = cudaHostRegister(at, bytes, cudaHostRegisterDefault); e != cudaSuccess)
    return {Code::resource_exhausted, refuse(e, "page-locking memory").message()};
  return Status::success();
}

void CudaDevice::unpin(std::byte* at) {
  cudaHostUnregister(at);
}

bool CudaDevice::on_device(const std::byte* at) const {
  const std::shared_lock lock(ranges_mutex_);
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& r) { return at >= r.at && at < r.at + r.bytes; });
}

Status CudaDevice::copy(std::span<const DeviceCopy> parts) {
  // A thread that was never here has no device yet; afterwards this costs nothing.
  if (const auto e = cudaSetDevice(options_.ordinal); e != cudaSuccess) return refuse(e, "a copy");
  for (const DeviceCopy& part : parts)
    if (const auto e = cudaMemcpyAsync(part.to, part.from, part.bytes, cudaMemcpyDefault, cudaStreamPerThread);
        e != cudaSuccess)
      return refuse(e, "a copy");
  if (const auto e = cudaStreamSynchronize(cudaStreamPerThread); e != cudaSuccess) return refuse(e, "a copy");
  return Status::success();
}

}  // namespace lode::kernels::cuda
