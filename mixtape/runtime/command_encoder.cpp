#include "mixtape/runtime/command_encoder.h"

#include <algorithm>
#include <tuple>

#include "mixtape/runtime/trace.h"

namespace mixtape {
namespace {

struct Range {
  const Buffer* buffer;
  std::size_t begin, end;
  bool is_written;
};

// What is written is wholly another buffer's memory or wholly apart from it.
void check_ranges(const Dispatch& d) {
  std::vector<Range> ranges;
  const auto add = [&](const Buffer& b, bool is_written) {
    if (b.bytes() > 0) ranges.push_back({&b, b.byte_offset(), b.byte_offset() + b.bytes(), is_written});
  };
  for (const Buffer& b : d.reads) add(b, false);
  for (const Buffer& b : d.writes) add(b, true);
  const auto key = [](const Range& r) { return std::make_tuple(&r.buffer->memory(), r.begin, r.end); };
  std::sort(ranges.begin(), ranges.end(), [&](const Range& a, const Range& b) { return key(a) < key(b); });
  for (auto a = ranges.begin(); a != ranges.end(); ++a) {
    for (auto b = a + 1; b != ranges.end() && overlap(*a->buffer, *b->buffer); ++b) {
      require(key(*a) == key(*b) || (!a->is_written && !b->is_written), d.kernel, ": ", *a->buffer, " and ",
              *b->buffer, " share a part of their memory, expected all or nothing of an output");
    }
  }
}

thread_local bool is_recording = false;

bool writes_nothing(const Dispatch& d) {
  return !d.writes.empty() &&
         std::all_of(d.writes.begin(), d.writes.end(), [](const Buffer& b) { return b.numel() == 0; });
}

}  // namespace

void CommandEncoder::check(const Buffer& buffer, const std::string& kernel) const {
  // Every buffer of every dispatch: names are made for a message alone.
  if (!buffer)
    fail(ErrorCode::invalid_argument, kernel, ": a buffer is null, expected memory on ", device_.name());
  if (buffer.device() == device_) return;
  fail(ErrorCode::invalid_argument, kernel, ": ", buffer, " is on ", buffer.device().name(), ", expected ",
       device_.name());
}

void CommandEncoder::check_fresh(const Buffer& buffer) const {
  const std::uint64_t written = buffer.memory().last_write();
  const bool is_stale =
      written > stale_->recorded && written <= stale_->began && &buffer.memory() != stale_->upstream;
  require(!is_stale, "backward of ", stale_->op, ": ", buffer,
          ", which its gradient needs, was overwritten after the forward pass; expected it unchanged until "
          "backward");
}

void CommandEncoder::encode(const Dispatch& dispatch) {
  for (const Buffer& b : dispatch.reads) {
    check(b, dispatch.kernel);
    if (stale_ != nullptr) check_fresh(b);
  }
  for (const Buffer& b : dispatch.writes) check(b, dispatch.kernel);
  check_ranges(dispatch);
  if (!device_.kernels().has(dispatch.kernel)) {
    fail(ErrorCode::not_supported, "kernel '", dispatch.kernel, "' does not exist on ", device_.name());
  }
  if (dispatch.is_empty || writes_nothing(dispatch)) return encode_empty(dispatch);
  Backend& backend = device_.backend();
  if (is_tracing()) {
    trace(device_, dispatch, is_recording, [&] {
      backend.run(dispatch, *errors_);
      if (!is_recording) backend.synchronize();
    });
  } else {
    backend.run(dispatch, *errors_);
  }
  for (const Buffer& b : dispatch.writes) b.memory().mark_written();
}

void CommandEncoder::encode_empty(const Dispatch& dispatch) {
  for (std::size_t i = 0; i < dispatch.writes.size(); ++i) {
    const Buffer& b = dispatch.writes[i];
    if (b.numel() > 0 && (dispatch.adds >> i & 1) == 0) fill(b, 0.0f);
  }
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

std::shared_ptr<Replay> CommandEncoder::record(const std::function<void()>& work) {
  Backend& backend = device_.backend();
  backend.begin_recording();
  is_recording = true;
  try {
    work();
  } catch (...) {
    is_recording = false;
    backend.end_recording(false);
    throw;
  }
  is_recording = false;
  return backend.end_recording(true);
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
