// Two devices for PyTorch, "twin:0" and "twin:1", whose memory is the host's.
//
// To PyTorch they are as separate as two GPUs: an operation whose tensors are on different devices raises the same
// error. Every operation is computed by the CPU's kernel on copies. Their memory can be limited. They can be without
// float64, as Apple's GPUs are: then they refuse such tensors, copies that convert from or to them, and operations with
// such tensors of the host.
#include <ATen/EmptyTensor.h>
#include <ATen/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_copy_from.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr auto kTwin = c10::DeviceType::PrivateUse1;
thread_local c10::DeviceIndex current = 0;

struct Guard final : public c10::impl::NoOpDeviceGuardImpl<kTwin> {
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    current = device.index();
    return before;
  }
  c10::Device getDevice() const override { return {kTwin, current}; }
  void setDevice(c10::Device device) const override { current = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  // Derivatives ask for each device's stream.
  c10::Stream getStream(c10::Device place) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, place); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : public at::PrivateUse1HooksInterface {  // derivatives ask for them
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};
Hooks hooks;
const bool registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

std::atomic<size_t> used{0}, limit{SIZE_MAX};
constexpr size_t kHeader = 64;  // holds the number of bytes, and keeps what follows aligned

void release(void* start) {
  used -= *static_cast<size_t*>(start);
  std::free(start);
}

struct Allocator final : public c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK_WITH(OutOfMemoryError, used + bytes <= limit, "TWIN out of memory. Tried to allocate ", bytes, " bytes");
    char* start = static_cast<char*>(std::malloc(kHeader + bytes));
    *reinterpret_cast<size_t*>(start) = bytes;
    used += bytes;
    return {start + kHeader, start, &release, c10::Device(kTwin, current)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Allocator allocator;
REGISTER_ALLOCATOR(kTwin, &allocator)

std::atomic<bool> without_float64{false};

void check_type(at::ScalarType type) {
  TORCH_CHECK_TYPE(!without_float64 || (type != at::kDouble && type != at::kComplexDouble),
                   "Cannot convert a TWIN Tensor to float64 dtype as these devices don't support float64.");
}

c10::DeviceIndex index_of(std::optional<c10::Device> device) {
  return device && device->has_index() ? device->index() : current;
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  check_type(c10::dtype_or_default(dtype));
  c10::DeviceGuard guard({kTwin, index_of(device)});
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  check_type(c10::dtype_or_default(dtype));
  c10::DeviceGuard guard({kTwin, index_of(device)});
  return at::detail::empty_strided_generic(size, stride, &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  check_type(from.scalar_type());
  check_type(to.scalar_type());
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::native::resize_(to, from.sizes());
  return copy_from(from, to, false);
}

at::Scalar item(const at::Tensor& tensor) { return at::_local_scalar_dense(on_host(tensor)); }

std::optional<at::Tensor> on_host(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? std::optional<at::Tensor>(on_host(*tensor)) : std::nullopt;
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                       bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  TORCH_CHECK(input.device() == weight.device(), "Expected all tensors to be on the same device, but found at least ",
              "two devices, ", input.device(), " and ", weight.device(), "! (convolution)");
  return at::convolution_symint(on_host(input), on_host(weight), on_host(bias), stride, padding, dilation, transposed,
                                output_padding, groups)
      .to(input.device());
}

// Its schema does not say that it changes the running statistics, so the fallback would change a copy.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& mean, const std::optional<at::Tensor>& variance, bool training, double momentum,
    double eps) {
  auto [output, saved_mean, saved_variance] =
      at::native_batch_norm(on_host(input), on_host(weight), on_host(bias), on_host(mean), on_host(variance), training,
                            momentum, eps);
  auto device = input.device();
  return {output.to(device), saved_mean.to(device), saved_variance.to(device)};
}

void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<c10::Device> device;
  auto check = [&](const at::Tensor& tensor) {
    if (tensor.defined() && !tensor.unsafeGetTensorImpl()->is_wrapped_number()) check_type(tensor.scalar_type());
    if (!tensor.defined() || tensor.dim() == 0) return;  // a number may be on the host, as with GPUs
    TORCH_CHECK(!device || *device == tensor.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", *device, " and ",
                tensor.device(), "! (", op.schema().name(), ")");
    device = tensor.device();
  };
  for (const auto& value : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (value.isTensor()) check(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) check(tensor);
    if (value.isOptionalTensorList())
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        if (tensor) check(*tensor);
  }
  std::optional<c10::DeviceGuard> guard;
  if (device && device->type() == kTwin) guard.emplace(*device);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("resize_", TORCH_FN(at::native::resize_));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("convolution_overrideable", &convolution);
  m.impl("native_batch_norm", &batch_norm);
  m.impl("_local_scalar_dense", &item);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>()); }

}  // namespace

extern "C" size_t twin_memory() { return used; }
extern "C" void leave_twins_without_float64() { without_float64 = true; }
extern "C" void limit_twin_memory(size_t bytes) { limit = bytes; }
