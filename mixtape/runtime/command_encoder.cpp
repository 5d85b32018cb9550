#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void CommandEncoder::check(const Buffer& buffer, const std::string& kernel) const {
  require(static_cast<bool>(buffer), kernel, ": a buffer is null, expected memory on ", device_.name());
  require(buffer.device() == device_, kernel, ": ", buffer, " is on ", buffer.device().name(), ", expected ",
          device_.name());
}

void CommandEncoder::encode(const Dispatch& dispatch) {
  for (const Buffer& b : dispatch.reads) check(b, dispatch.kernel);
  for (const Buffer& b : dispatch.writes) check(b, dispatch.kernel);
  if (!device_.kernels().has(dispatch.kernel)) {
    fail(ErrorCode::not_supported, "kernel '", dispatch.kernel, "' does not exist on ", device_.name());
  }
  device_.backend().run(dispatch, *errors_);
}

void CommandEncoder::copy(const Buffer& src, const Buffer& dst) {
  require(src && dst && src.dtype() == dst.dtype() && src.numel() == dst.numel(), "copy: source is ", src,
          ", destination is ", dst, ", expected equal dtypes and counts");
  require(!overlap(src, dst), "copy: source and destination share memory");
  encode({.kernel = "copy", .params = {}, .reads = {src}, .writes = {dst}});
}

void CommandEncoder::fill(const Buffer& dst, float value) {
  require(static_cast<bool>(dst), "fill: destination is null");
  require(is_value(dst.dtype()) || value == 0.0f, "fill: ", dst, " takes only 0, got ", value);
  encode({.kernel = "fill", .params = params_bytes(value), .reads = {}, .writes = {dst}});
}

void CommandEncoder::accumulate(const Buffer& src, const Buffer& dst) {
  require(src && dst && src.dtype() == dst.dtype() && is_value(dst.dtype()) && src.numel() == dst.numel(),
          "accumulate: source is ", src, ", destination is ", dst,
          ", expected equal value dtypes and counts");
  encode({.kernel = str("accumulate_", dst.dtype()), .params = {}, .reads = {src}, .writes = {dst}});
}

void CommandEncoder::wait() {
  device_.backend().synchronize();
  errors_->rethrow();
}

void CommandEncoder::commit_and_wait() {
  commit();
  wait();
}

}  // namespace mixtape
