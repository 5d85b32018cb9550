#include "mixtape/runtime/kernel_registry.h"

#include <algorithm>
#include <new>
#include <utility>

namespace mixtape {
namespace {

using Table = std::unordered_map<std::string, HostKernel>;

Table& builtin_table() {
  static Table table;
  return table;
}

}  // namespace

void ErrorSlot::report_index(const std::string& kernel, std::int64_t position, std::int64_t value,
                             std::int64_t limit) {
  const std::lock_guard lock(mutex_);
  const bool other_kernel_came_first = !index_.kernel.empty() && index_.kernel != kernel;
  if (other_kernel_came_first || position >= index_.position) return;
  index_ = {kernel, position, value, limit};
}

namespace {

std::exception_ptr named(const std::string& kernel) {
  try {
    throw;
  } catch (const Error&) {
    return std::current_exception();
  } catch (const std::bad_alloc&) {
    return std::current_exception();
  } catch (const std::exception& error) {
    return std::make_exception_ptr(Error(ErrorCode::device, kernel + ": " + error.what()));
  } catch (...) {
    return std::make_exception_ptr(Error(ErrorCode::device, kernel + ": threw what is no std::exception"));
  }
}

}  // namespace

void ErrorSlot::report_exception(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!exception_) exception_ = std::move(error);
}

void ErrorSlot::report_caught(const std::string& kernel) { report_exception(named(kernel)); }

bool ErrorSlot::has_exception() const {
  const std::lock_guard lock(mutex_);
  return exception_ != nullptr;
}

void ErrorSlot::rethrow() {
  std::unique_lock lock(mutex_);
  const IndexError index = std::exchange(index_, {});
  const std::exception_ptr exception = std::exchange(exception_, nullptr);
  lock.unlock();
  if (!index.kernel.empty()) {
    fail(ErrorCode::index_out_of_range, index.kernel, ": index ", index.value, " at position ",
         index.position, " is out of range, expected 0 to ", index.limit - 1);
  }
  if (!exception) return;
  try {
    std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, "wait: a kernel found no host memory to work in");
  }
}

bool register_builtin_host_kernel(const std::string& name, HostKernel kernel) {
  return builtin_table().emplace(name, std::move(kernel)).second;
}

const HostKernel* find_builtin_host_kernel(const std::string& name) {
  const auto found = builtin_table().find(name);
  return found == builtin_table().end() ? nullptr : &found->second;
}

std::vector<std::string> builtin_host_kernels() {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : builtin_table()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace mixtape
